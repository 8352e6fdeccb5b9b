#include "compiler/program/Target.h"
#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cermet {
namespace {

constexpr std::array kCuda{"sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"};
constexpr std::array kHost{"host:x86-64-v2", "host:x86-64-v3", "host:x86-64-v4"};

template <size_t n> bool contains(const std::array<const char*, n>& names, const std::string& target) {
  return std::find(names.begin(), names.end(), target) != names.end();
}

} // namespace

bool isCudaTarget(const std::string& target) {
  return contains(kCuda, target);
}
bool isHostTarget(const std::string& target) {
  return contains(kHost, target);
}

std::string checkTarget(const std::string& target) {
  if (isCudaTarget(target) || isHostTarget(target))
    return "";
  return fmt::format("target `{}` is not known; expected one of {} {}", target, fmt::join(kCuda, " "),
                     fmt::join(kHost, " "));
}

} // namespace cermet
