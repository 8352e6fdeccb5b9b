// A GPU's blocks on a CPU: every thread of a block is a fiber, and the next one to run is drawn at random, so that an
// order which only a barrier would forbid does happen. Shared memory begins as NaN; an asynchronous copy lands when it
// is waited for; a barrier or a shuffle that not all threads reach is reported.
#pragma once
#include <cstdint>
#include <string>

namespace cermet::simt {

struct Grid {
  int64_t x = 1;
  int y = 1;
  int threads = 32;
  int sharedBytes = 0;
};

// Runs `kernel` (a function of a library that was compiled with prelude.h; `calls` is its simt_calls) over the grid.
// Returns "" or what went wrong: divergent barriers, misaligned addresses, copies never waited for.
std::string run(void (*kernel)(const void*), void* calls, const void* arguments, const Grid& grid, uint64_t seed);

} // namespace cermet::simt
