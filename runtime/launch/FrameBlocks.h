// FrameBlocks: memory for the frames of launches that run at once, of one size. Taking one takes no lock, and allocates
// only where more are out than ever before; what comes back is kept, up to kKept.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <memory>

namespace cermet {

class FrameBlocks {
public:
  explicit FrameBlocks(size_t bytes) : bytes_(bytes) {}
  ~FrameBlocks() {
    for (std::atomic<char*>& block : kept_)
      delete[] block.load(std::memory_order_relaxed);
  }
  FrameBlocks(const FrameBlocks&) = delete;
  FrameBlocks& operator=(const FrameBlocks&) = delete;

  size_t bytes() const { return bytes_; }

  char* take() {
    for (std::atomic<char*>& block : kept_)
      if (block.load(std::memory_order_relaxed))
        if (char* taken = block.exchange(nullptr, std::memory_order_acquire))
          return taken;
    return new char[bytes_];
  }
  void giveBack(char* block) {
    for (std::atomic<char*>& place : kept_) {
      char* empty = nullptr;
      if (place.compare_exchange_strong(empty, block, std::memory_order_release, std::memory_order_relaxed))
        return;
    }
    delete[] block;
  }

private:
  static constexpr size_t kKept = 16;
  const size_t bytes_;
  std::array<std::atomic<char*>, kKept> kept_{};
};

} // namespace cermet
