// How often this program has called operator new.
#pragma once
#include <atomic>
#include <cstdint>

namespace cermet {
extern std::atomic<uint64_t> allocations;
} // namespace cermet
