// What a context did, as monotonic numbers. Every field may be raised from any thread; a snapshot is consistent per
// field only.
#pragma once
#include "frontends/c/cermet.h"
#include <atomic>
#include <cstdint>

namespace cermet {

using Counter = std::atomic<uint64_t>;

struct Counters {
  Counter plansCompiled{0}, plansFromMemory{0}, plansFromDirectory{0}; // plans, matches and gradients
  Counter kernelsCompiled{0}, kernelsFromMemory{0}, kernelsFromDirectory{0};
  Counter plansFromPacks{0}, kernelsFromPacks{0};
  Counter planCompileMicroseconds{0}, kernelCompileMicroseconds{0};
  Counter cacheMisses{0}, cacheWaits{0}, cacheWaitMicroseconds{0}, cacheRemovals{0};
  Counter cacheBytesRead{0}, cacheBytesWritten{0};
  alignas(64) Counter launches{0}; // alone on its cache line: the only field that the launch path writes
  alignas(64) Counter cacheFailures{0};

  static void raise(Counter& counter, uint64_t amount = 1) { counter.fetch_add(amount, std::memory_order_relaxed); }

  cermet_counters snapshot() const {
    const auto now = [](const Counter& counter) { return counter.load(std::memory_order_relaxed); };
    cermet_counters counters{};
    counters.plans_compiled = now(plansCompiled);
    counters.plans_from_memory = now(plansFromMemory);
    counters.plans_from_directory = now(plansFromDirectory);
    counters.kernels_compiled = now(kernelsCompiled);
    counters.kernels_from_memory = now(kernelsFromMemory);
    counters.kernels_from_directory = now(kernelsFromDirectory);
    counters.kernel_compile_microseconds = now(kernelCompileMicroseconds);
    counters.launches = now(launches);
    counters.cache_failures = now(cacheFailures);
    counters.plans_from_packs = now(plansFromPacks);
    counters.kernels_from_packs = now(kernelsFromPacks);
    counters.plan_compile_microseconds = now(planCompileMicroseconds);
    counters.cache_misses = now(cacheMisses);
    counters.cache_waits = now(cacheWaits);
    counters.cache_wait_microseconds = now(cacheWaitMicroseconds);
    counters.cache_removals = now(cacheRemovals);
    counters.cache_bytes_read = now(cacheBytesRead);
    counters.cache_bytes_written = now(cacheBytesWritten);
    return counters;
  }
};

} // namespace cermet
