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
  Counter kernelCompileMicroseconds{0};
  alignas(64) Counter launches{0}; // alone on its cache line: the only field that the launch path writes
  alignas(64) Counter cacheFailures{0};

  static void raise(Counter& counter, uint64_t amount = 1) { counter.fetch_add(amount, std::memory_order_relaxed); }

  cermet_counters snapshot() const {
    cermet_counters counters{};
    counters.plans_compiled = plansCompiled.load(std::memory_order_relaxed);
    counters.plans_from_memory = plansFromMemory.load(std::memory_order_relaxed);
    counters.plans_from_directory = plansFromDirectory.load(std::memory_order_relaxed);
    counters.kernels_compiled = kernelsCompiled.load(std::memory_order_relaxed);
    counters.kernels_from_memory = kernelsFromMemory.load(std::memory_order_relaxed);
    counters.kernels_from_directory = kernelsFromDirectory.load(std::memory_order_relaxed);
    counters.kernel_compile_microseconds = kernelCompileMicroseconds.load(std::memory_order_relaxed);
    counters.launches = launches.load(std::memory_order_relaxed);
    counters.cache_failures = cacheFailures.load(std::memory_order_relaxed);
    return counters;
  }
};

} // namespace cermet
