#include "compiler/program/Target.h"
#include "runtime/abi/Targets.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cermet {

const CudaTarget* cudaTarget(const std::string& name) {
  auto found =
      std::find_if(std::begin(kCudaTargets), std::end(kCudaTargets), [&](auto& it) { return name == it.name; });
  return found == std::end(kCudaTargets) ? nullptr : found;
}
bool isCudaTarget(const std::string& target) {
  return cudaTarget(target);
}
bool isHostTarget(const std::string& target) {
  return std::find(std::begin(kHostTargets), std::end(kHostTargets), target) != std::end(kHostTargets);
}

std::string checkTarget(const std::string& target) {
  if (isCudaTarget(target) || isHostTarget(target))
    return "";
  std::string known;
  for (const CudaTarget& each : kCudaTargets)
    known += fmt::format("{} ", each.name);
  return fmt::format("target `{}` is not known; expected one of {}{}", target, known, fmt::join(kHostTargets, " "));
}

} // namespace cermet
