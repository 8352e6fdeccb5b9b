// ThreadPool: threads that a launch on the host shares its rows with. One run at a time: a second caller meanwhile, or
// a process that was forked from the pool's, does its own work itself. Threads sleep between runs.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace cermet {

class ThreadPool {
public:
  // `threads` counts the caller of run().
  explicit ThreadPool(int threads);
  // In a forked process nothing can be joined, and destroying what the parent's threads wait on would hang: the pool is
  // left as it is.
  struct Ender {
    void operator()(ThreadPool* pool) const;
  };
  using Pointer = std::unique_ptr<ThreadPool, Ender>;
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Calls work(user, part) once for each part in [0, parts), in any order, and returns when all are done.
  void run(int parts, void (*work)(void* user, int part), void* user);
  int threads() const { return threads_; }

private:
  void serve();
  void takeParts();

  const int threads_;
  const int process_;
  std::vector<std::thread> workers_;
  std::mutex running_; // held by the thread that runs
  std::mutex mutex_;
  std::condition_variable start_, finish_;
  // The current run; written under mutex_ before `generation_` is raised.
  uint64_t generation_ = 0;
  int busy_ = 0; // workers that have not finished the current run
  bool stop_ = false;
  int parts_ = 0;
  void (*work_)(void*, int) = nullptr;
  void* user_ = nullptr;
  std::atomic<int> next_{0};
};

} // namespace cermet
