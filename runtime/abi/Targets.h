// The targets that code is generated for, with the limits that schedules and launches keep. They ascend: a GPU takes
// the last one of its major that it can run.
#pragma once
#include <algorithm>
#include <iterator>

namespace cermet {

// What a multiprocessor has: shared memory that blocks may use, less 1 KiB that the system keeps for each of up to
// four; and how many threads and blocks it holds at once (CUDA C++ Programming Guide, Compute Capabilities).
struct CudaTarget {
  const char* name;
  int capability; // major * 10 + minor
  int sharedBytes, threads, blocks;
};

#define TARGET(capability, kilobytes, threads, blocks)                                                                 \
  { "sm_" #capability, capability, kilobytes * 1024, threads, blocks }
constexpr CudaTarget kCudaTargets[] = {TARGET(80, 160, 2048, 32),  TARGET(86, 96, 1536, 16),
                                       TARGET(89, 96, 1536, 24),   TARGET(90, 224, 2048, 32),
                                       TARGET(100, 224, 2048, 32), TARGET(120, 96, 1536, 24)};
#undef TARGET
static_assert(std::is_sorted(std::begin(kCudaTargets), std::end(kCudaTargets),
                             [](const CudaTarget& a, const CudaTarget& b) { return a.capability < b.capability; }));

// This CPU's or another's, by its level of x86-64.
constexpr const char* kHostTargets[] = {"host:x86-64-v2", "host:x86-64-v3", "host:x86-64-v4"};
constexpr int kLowestHostLevel = 2; // the first one's

} // namespace cermet
