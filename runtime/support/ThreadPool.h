// ThreadPool: threads that a launch on the host shares its rows with. One run at a time: a second caller meanwhile
// does its own work itself. Threads sleep between runs. In a forked process, which has none of them, new ones are
// started by the first run.
#pragma once
#include "runtime/support/Fork.h"
#include <atomic>
#include <memory>
#include <mutex>

namespace cermet {

class ThreadPool final : private Forkable {
public:
  // `threads` counts the caller of run().
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Calls work(user, part) once for each part in [0, parts), in any order, and returns when all are done.
  void run(int parts, void (*work)(void* user, int part), void* user);
  int threads() const { return threads_; }

private:
  class Crew; // threads, and what they wait for

  void lockForFork(ForkDeadline) override {} // a run may be long; what it holds stays behind
  void unlockAfterFork() override {}
  void renewInChild() override;

  const int threads_;
  std::mutex running_; // held by the thread that runs
  std::unique_ptr<Crew> crew_;
};

} // namespace cermet
