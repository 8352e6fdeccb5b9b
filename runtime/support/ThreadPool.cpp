#include "runtime/support/ThreadPool.h"
#include <condition_variable>
#include <system_error>
#include <thread>
#include <vector>

namespace cermet {

class ThreadPool::Crew {
public:
  explicit Crew(int workers) {
    workers_.reserve(static_cast<size_t>(workers));
    for (int worker = 0; worker < workers; ++worker) {
      try {
        workers_.emplace_back(&Crew::serve, this);
      } catch (const std::system_error&) {
        break; // no more threads to be had: fewer share the work
      }
    }
  }
  ~Crew() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    start_.notify_all();
    for (std::thread& worker : workers_)
      worker.join();
  }
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  bool isEmpty() const { return workers_.empty(); }

  void run(int parts, void (*work)(void* user, int part), void* user) {
    {
      std::lock_guard lock(mutex_);
      parts_ = parts;
      work_ = work;
      user_ = user;
      next_.store(0, std::memory_order_relaxed);
      busy_ = static_cast<int>(workers_.size());
      ++generation_;
    }
    start_.notify_all();
    takeParts();
    std::unique_lock lock(mutex_);
    finish_.wait(lock, [&] { return busy_ == 0; });
  }

private:
  void takeParts() {
    for (int part = next_.fetch_add(1, std::memory_order_relaxed); part < parts_;
         part = next_.fetch_add(1, std::memory_order_relaxed))
      work_(user_, part);
  }

  void serve() {
    uint64_t seen = 0;
    std::unique_lock lock(mutex_);
    while (true) {
      start_.wait(lock, [&] { return stop_ || generation_ != seen; });
      if (stop_)
        return;
      seen = generation_;
      lock.unlock();
      takeParts();
      lock.lock();
      if (--busy_ == 0)
        finish_.notify_one();
    }
  }

  std::vector<std::thread> workers_;
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

ThreadPool::ThreadPool(int threads) : threads_(threads), crew_(std::make_unique<Crew>(threads - 1)) {
  addForkable(this);
}

ThreadPool::~ThreadPool() {
  removeForkable(this);
}

// The parent's crew is left as it is: nothing of it can be joined or woken here.
void ThreadPool::renewInChild() {
  renew(running_);
  (void)crew_.release();
}

void ThreadPool::run(int parts, void (*work)(void* user, int part), void* user) {
  std::unique_lock running(running_, std::defer_lock);
  if (parts > 1 && threads_ > 1 && running.try_lock()) {
    if (!crew_) [[unlikely]]
      crew_ = std::make_unique<Crew>(threads_ - 1);
    if (!crew_->isEmpty())
      return crew_->run(parts, work, user);
  }
  for (int part = 0; part < parts; ++part)
    work(user, part);
}

} // namespace cermet
