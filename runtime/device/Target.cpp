#include "runtime/device/Target.h"
#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

namespace cermet {

constexpr std::string_view kHostPrefix = "host:x86-64-v";

int hostLevel() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("x86-64-v4"))
    return 4;
  if (__builtin_cpu_supports("x86-64-v3"))
    return 3;
  return __builtin_cpu_supports("x86-64-v2") ? 2 : 0;
}

Result<std::string> hostTarget() {
  if (hostLevel() < kLowestHostLevel)
    return error(CERMET_UNSUPPORTED, "this CPU is below x86-64-v2; the host target needs SSE4.2 and POPCNT");
  return fmt::format("{}{}", kHostPrefix, hostLevel());
}

Result<std::string> deviceTarget(const Device& device) {
  const int capability = device.major * 10 + device.minor;
  const CudaTarget* best = nullptr;
  for (const CudaTarget& target : kCudaTargets)
    if (target.capability / 10 == device.major && target.capability <= capability)
      best = &target;
  if (best)
    return std::string(best->name);
  std::string majors;
  for (int last = 0; const CudaTarget& target : kCudaTargets)
    if (const int major = target.capability / 10; major != std::exchange(last, major))
      majors += fmt::format(" {}.x", major);
  return error(CERMET_UNSUPPORTED, "{} has compute capability {}.{}; code can be made for{}", device.name, device.major,
               device.minor, majors);
}

bool isHostTarget(std::string_view target) {
  return target.starts_with("host");
}

static std::optional<int> numberAfter(std::string_view target, std::string_view prefix) {
  if (!target.starts_with(prefix))
    return std::nullopt;
  target.remove_prefix(prefix.size());
  int number = 0;
  const auto [end, failure] = std::from_chars(target.data(), target.data() + target.size(), number);
  if (failure != std::errc() || end != target.data() + target.size() || target.starts_with('0'))
    return std::nullopt;
  return number;
}

Status checkTarget(std::string_view target) {
  if (std::find(std::begin(kHostTargets), std::end(kHostTargets), target) != std::end(kHostTargets))
    return {};
  std::string known;
  for (const CudaTarget& each : kCudaTargets) {
    if (target == each.name)
      return {};
    known += fmt::format("{} ", each.name);
  }
  return error(CERMET_INVALID_ARGUMENT, "unknown target '{}', expected one of: {}host auto", target, known);
}

Status checkHostRuns(std::string_view target) {
  const auto level = numberAfter(target, kHostPrefix);
  if (!level || *level > hostLevel())
    return error(CERMET_UNSUPPORTED, "the plan is for {}, this CPU is x86-64-v{}; compile for 'host' on this machine",
                 target, hostLevel());
  return {};
}

Status checkDeviceRuns(std::string_view target, const Device& device, int ordinal) {
  const auto capability = numberAfter(target, "sm_");
  if (!capability || *capability / 10 != device.major || *capability % 10 > device.minor)
    return error(CERMET_INVALID_ARGUMENT,
                 "the plan is for {}, device {} ({}) has compute capability {}.{}; compile for it, or for 'auto'",
                 target, ordinal, device.name, device.major, device.minor);
  return {};
}

} // namespace cermet
