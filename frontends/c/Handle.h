// Handles that are recognised: memory of a destroyed handle stays this library's and says so, so that using or
// destroying it again is an error with a name and not a crash. Its place is given to another handle only when 1,024 of
// its kind have been destroyed behind it. What was never a handle cannot be told from one unless it is readable memory.
#pragma once
#include "runtime/support/Fork.h"
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>

namespace cermet {

// Any thread may ask whether it is alive, without a lock.
template <typename Content> class Handle {
public:
  bool alive() const noexcept { return mark_.load(std::memory_order_acquire) == kAlive; }
  // Of one that is alive.
  Content& operator*() const noexcept { return *content_; }
  Content* operator->() const noexcept { return content_.get(); }
  const std::shared_ptr<Content>& shared() const noexcept { return content_; }

private:
  template <typename> friend class Handles;
  static constexpr uint64_t kAlive = 0x63724d6574a11fe5;
  std::atomic<uint64_t> mark_{0};
  std::shared_ptr<Content> content_;
};

// All handles of one kind, for the life of the process. `Kind` derives from Handle.
template <typename Kind> class Handles {
public:
  template <typename Content> static Kind* make(std::shared_ptr<Content> content) {
    Handles& all = instance();
    const ForkSection section; // a fork does not find the lists half written
    std::lock_guard lock(all.mutex_);
    if (all.destroyed_.size() <= kKept)
      all.destroyed_.push_front(&all.handles_.emplace_back());
    Kind* handle = all.destroyed_.front();
    all.destroyed_.pop_front();
    handle->content_ = std::move(content);
    handle->mark_.store(Kind::kAlive, std::memory_order_release);
    return handle;
  }

  // Nothing for what is not alive.
  static void destroy(Kind* handle) noexcept {
    uint64_t alive = Kind::kAlive;
    if (!handle || !handle->mark_.compare_exchange_strong(alive, 0, std::memory_order_acq_rel))
      return;
    handle->content_.reset();
    Handles& all = instance();
    const ForkSection section;
    std::lock_guard lock(all.mutex_);
    try {
      all.destroyed_.push_back(handle);
    } catch (const std::bad_alloc&) { // its place is not used again
    }
  }

private:
  static constexpr size_t kKept = 1024;
  static Handles& instance() {
    static Handles* all = new Handles; // as long as any static object that holds a handle
    return *all;
  }
  std::mutex mutex_;
  std::deque<Kind> handles_;
  std::deque<Kind*> destroyed_; // the one that was destroyed first in front
};

} // namespace cermet
