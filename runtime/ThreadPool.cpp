#include "runtime/ThreadPool.h"
#include <system_error>
#include <unistd.h>

namespace cermet {

ThreadPool::ThreadPool(int threads) : threads_(threads), process_(getpid()) {
  for (int worker = 1; worker < threads; ++worker) {
    try {
      workers_.emplace_back(&ThreadPool::serve, this);
    } catch (const std::system_error&) {
      break; // no more threads to be had: fewer share the work
    }
  }
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  start_.notify_all();
  for (std::thread& worker : workers_)
    worker.join();
}

void ThreadPool::Ender::operator()(ThreadPool* pool) const {
  if (getpid() == pool->process_)
    delete pool;
}

void ThreadPool::takeParts() {
  for (int part = next_.fetch_add(1, std::memory_order_relaxed); part < parts_;
       part = next_.fetch_add(1, std::memory_order_relaxed))
    work_(user_, part);
}

void ThreadPool::serve() {
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

void ThreadPool::run(int parts, void (*work)(void* user, int part), void* user) {
  std::unique_lock running(running_, std::defer_lock);
  if (parts < 2 || workers_.empty() || getpid() != process_ || !running.try_lock()) {
    for (int part = 0; part < parts; ++part)
      work(user, part);
    return;
  }
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

} // namespace cermet
