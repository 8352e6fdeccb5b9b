// Targets: "sm_90" and its like for CUDA, "host:x86-64-v3" and its like for CPUs, and what stands for one of them:
// "host" (this machine's CPU) and "auto" (device 0 if there is one, else this CPU).
#pragma once
#include "runtime/abi/Targets.h"
#include "runtime/device/Driver.h"
#include "runtime/support/Status.h"
#include <string>
#include <string_view>
#include <vector>

namespace cermet {

// This CPU's level: 4, 3 or 2 (AVX-512, AVX2, SSE4.2), or 0 below that.
int hostLevel();
// "host:x86-64-v<level>", or UNSUPPORTED below level 2.
Result<std::string> hostTarget();
// The target whose cubins run best on a device: the highest known one of its major capability that is not above it.
Result<std::string> deviceTarget(const Device& device);
bool isHostTarget(std::string_view target);
// Whether `target` is a concrete target's name; the message lists them.
Status checkTarget(std::string_view target);
// Whether a plan for `target` runs on this CPU, or on `device`.
Status checkHostRuns(std::string_view target);
Status checkDeviceRuns(std::string_view target, const Device& device, int ordinal);

} // namespace cermet
