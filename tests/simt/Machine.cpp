#include "tests/simt/Machine.h"

#include <boost/context/detail/fcontext.hpp>
#include <cstring>
#include <deque>
#include <fmt/format.h>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace cermet::simt {
namespace {

using boost::context::detail::fcontext_t;
using boost::context::detail::jump_fcontext;
using boost::context::detail::make_fcontext;
using boost::context::detail::transfer_t;

constexpr size_t kStackBytes = 96 * 1024;
constexpr int kWarp = 32;

struct Copy {
  char* target;
  const char* source;
  int bytes;
};

// A simulated thread. It lives as long as the launch: what ended in one block begins again in the next, so that nothing
// is left on its stack and none has to be made for each block.
struct Fiber {
  enum State { Ready, AtBarrier, AtShuffle, Done } state = Ready;
  std::unique_ptr<char[]> stack{new char[kStackBytes]};
  fcontext_t context = nullptr; // where it goes on
  void* fakeStack = nullptr;
  float value = 0;
  int mask = 0;
  std::vector<Copy> open;
  std::deque<std::vector<Copy>> committed;
};

// One block at a time; the calls below find it here.
struct Block {
  void (*kernel)(const void*);
  const void* arguments;
  Grid grid;
  int64_t x;
  int y;
  std::vector<Fiber> fibers;
  std::vector<uint32_t> shared;
  fcontext_t scheduler = nullptr;
  void* schedulerFakeStack = nullptr;
  const void* schedulerStack = nullptr;
  size_t schedulerStackSize = 0;
  int current = 0;
  std::string error;
};
Block* block;

void enter(int index) {
  Fiber& fiber = block->fibers[index];
  block->current = index;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&block->schedulerFakeStack, fiber.stack.get(), kStackBytes);
#endif
  fiber.context = jump_fcontext(fiber.context, nullptr).fctx;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(block->schedulerFakeStack, nullptr, nullptr);
#endif
}

void leave(Fiber::State state) {
  Fiber& fiber = block->fibers[block->current];
  fiber.state = state;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&fiber.fakeStack, block->schedulerStack, block->schedulerStackSize);
#endif
  block->scheduler = jump_fcontext(block->scheduler, nullptr).fctx;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fiber.fakeStack, nullptr, nullptr);
#endif
}

void body(transfer_t from) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &block->schedulerStack, &block->schedulerStackSize);
#endif
  block->scheduler = from.fctx;
  for (;;) {
    block->kernel(block->arguments);
    const Fiber& fiber = block->fibers[block->current];
    for (const std::vector<Copy>& group : fiber.committed)
      if (!group.empty())
        block->error = fmt::format("thread {} ends with an asynchronous copy that it never waited for", block->current);
    leave(Fiber::Done);
  }
}

int threadIndex() {
  return block->current;
}
long long blockIndex() {
  return block->x;
}
int blockRow() {
  return block->y;
}
long long blockCount() {
  return block->grid.x;
}
void barrier() {
  leave(Fiber::AtBarrier);
}
char* sharedMemory() {
  return reinterpret_cast<char*>(block->shared.data());
}

float shuffleXor(float value, int mask) {
  Fiber& fiber = block->fibers[block->current];
  fiber.value = value;
  fiber.mask = mask;
  leave(Fiber::AtShuffle);
  return fiber.value;
}

void copyAsync(char* shared, const char* global, int bytes) {
  block->fibers[block->current].open.push_back({shared, global, bytes});
}
void commitAsync() {
  Fiber& fiber = block->fibers[block->current];
  fiber.committed.push_back(std::move(fiber.open));
  fiber.open.clear();
}
void waitAsync(int pending) {
  Fiber& fiber = block->fibers[block->current];
  while (fiber.committed.size() > static_cast<size_t>(pending)) {
    for (const Copy& copy : fiber.committed.front())
      std::memcpy(copy.target, copy.source, copy.bytes);
    fiber.committed.pop_front();
  }
}
void misaligned(const void* address, int bytes) {
  block->error =
      fmt::format("thread {} moves {} bytes at {}, which is not aligned to them", block->current, bytes, address);
}

struct Calls {
  int (*threadIndex)();
  long long (*blockIndex)();
  int (*blockRow)();
  long long (*blockCount)();
  void (*barrier)();
  float (*shuffleXor)(float, int);
  char* (*sharedMemory)();
  void (*copyAsync)(char*, const char*, int);
  void (*commitAsync)();
  void (*waitAsync)(int);
  void (*misaligned)(const void*, int);
};

// Lets a warp whose threads all wait at one shuffle go on, each with its partner's value.
bool releaseShuffle(int warp) {
  std::vector<Fiber>& fibers = block->fibers;
  const int first = warp * kWarp;
  for (int lane = 0; lane < kWarp; ++lane)
    if (fibers[first + lane].state != Fiber::AtShuffle || fibers[first + lane].mask != fibers[first].mask)
      return false;
  float values[kWarp];
  for (int lane = 0; lane < kWarp; ++lane)
    values[lane] = fibers[first + (lane ^ fibers[first].mask)].value;
  for (int lane = 0; lane < kWarp; ++lane) {
    fibers[first + lane].value = values[lane];
    fibers[first + lane].state = Fiber::Ready;
  }
  return true;
}

void runBlock(std::mt19937_64& random) {
  std::vector<Fiber>& fibers = block->fibers;
  // NaN in every word; the end of the buffer is the end of what the launch asked for.
  block->shared.assign((block->grid.sharedBytes + 3) / 4, 0x7fc0dead);
  for (size_t i = 0; i < fibers.size(); ++i) {
    Fiber& fiber = fibers[i];
    fiber.state = Fiber::Ready;
    fiber.open.clear();
    fiber.committed.clear();
  }
  std::vector<int> ready(fibers.size());
  for (size_t i = 0; i < ready.size(); ++i)
    ready[i] = static_cast<int>(i);
  while (block->error.empty()) {
    while (!ready.empty()) {
      std::swap(ready[random() % ready.size()], ready.back());
      const int index = ready.back();
      ready.pop_back();
      enter(index);
      const int warp = index / kWarp;
      if (fibers[index].state == Fiber::AtShuffle && releaseShuffle(warp))
        for (int lane = 0; lane < kWarp; ++lane)
          ready.push_back(warp * kWarp + lane);
    }
    size_t waiting = 0, done = 0;
    for (const Fiber& fiber : fibers) {
      waiting += fiber.state == Fiber::AtBarrier;
      done += fiber.state == Fiber::Done;
    }
    if (done == fibers.size())
      return;
    if (waiting != fibers.size()) {
      block->error = fmt::format("{} of {} threads wait at a barrier, {} have ended and {} wait at a shuffle", waiting,
                                 fibers.size(), done, fibers.size() - waiting - done);
      return;
    }
    for (size_t i = 0; i < fibers.size(); ++i) {
      fibers[i].state = Fiber::Ready;
      ready.push_back(static_cast<int>(i));
    }
  }
}

} // namespace

std::string run(void (*kernel)(const void*), void* calls, const void* arguments, const Grid& grid, uint64_t seed) {
  const Calls table = {threadIndex,  blockIndex, blockRow,    blockCount, barrier,   shuffleXor,
                       sharedMemory, copyAsync,  commitAsync, waitAsync,  misaligned};
  std::memcpy(calls, &table, sizeof table);
  Block state;
  state.kernel = kernel;
  state.arguments = arguments;
  state.grid = grid;
  state.fibers = std::vector<Fiber>(grid.threads);
  for (Fiber& fiber : state.fibers)
    fiber.context = make_fcontext(fiber.stack.get() + kStackBytes, kStackBytes, body);
  block = &state;
  std::mt19937_64 random(seed);
  for (state.y = 0; state.y < grid.y && state.error.empty(); ++state.y)
    for (state.x = 0; state.x < grid.x && state.error.empty(); ++state.x)
      runBlock(random);
  block = nullptr;
  return state.error.empty() ? "" : fmt::format("block ({}, {}): {}", state.x - 1, state.y, state.error);
}

} // namespace cermet::simt
