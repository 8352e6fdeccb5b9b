// Fork: a process that is forked from one with contexts, at any moment and whatever their threads do, works like any
// other. Before a fork, work that cannot be cut in two is waited for and every lock of the runtime is taken, so the
// child finds all of it whole; in the child the locks are new, what other threads were making is forgotten, and
// threads are started again when they are needed. A fork waits for a compile, at most `forkPatience`; beyond that the
// child is told that it cannot compile, and a context whose lock was not to be had that it cannot be used. CUDA does
// not survive a fork: what a parent opened is refused in the child. None of this is on the way of a launch but one
// comparison.
#pragma once
#include "runtime/support/Status.h"
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <new>

namespace cermet {

using ForkDeadline = std::chrono::steady_clock::time_point;

// Something with locks or threads.
class Forkable {
public:
  // In the forking thread, before: takes the locks, or gives up at the deadline.
  virtual void lockForFork(ForkDeadline deadline) = 0;
  // After it in the parent: lets go of those that were taken.
  virtual void unlockAfterFork() = 0;
  // After it in the child, which has no other thread.
  virtual void renewInChild() = 0;

protected:
  ~Forkable() = default;
};
// A forkable adds itself when it is whole and removes itself before it is not; never with a lock held that it takes for
// a fork.
void addForkable(Forkable* member);
void removeForkable(Forkable* member);

// Work that a fork waits for, and that waits for a fork. A thread enters with no lock held; within its own work it enters
// again for nothing, whatever it holds.
class ForkSection {
public:
  ForkSection();
  ~ForkSection();
  ForkSection(const ForkSection&) = delete;
  ForkSection& operator=(const ForkSection&) = delete;

private:
  const bool outermost_;
  const uint64_t generation_;
};

// UNSUPPORTED in a process that was forked in the middle of such work.
Status checkNotCutByFork();

// How many forks lie between the program's start and this process.
inline std::atomic<uint64_t> forkGeneration{0};
inline std::atomic<std::chrono::milliseconds> forkPatience{std::chrono::milliseconds(10'000)};

// A mutex that is taken for a fork.
class ForkLock {
public:
  explicit ForkLock(std::mutex& mutex) : mutex_(mutex) {}
  void lock(ForkDeadline deadline);
  void unlock();
  // In the child. Whether what it guards is whole.
  bool renew();

private:
  std::mutex& mutex_;
  bool held_ = false;
};

// A synchronisation object of the parent's threads, as new. It is not destroyed: that would wait for them.
template <typename Object> void renew(Object& object) {
  new (static_cast<void*>(&object)) Object;
}

} // namespace cermet
