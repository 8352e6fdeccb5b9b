// In a file of its own, so that no caller sees through the pair of operators and takes it for a mismatch.
#include "tests/unit/runtime/launch/Allocations.h"
#include <cstdlib>
#include <new>

std::atomic<uint64_t> cermet::allocations{0};

void* operator new(size_t bytes) {
  ++cermet::allocations;
  if (void* memory = std::malloc(bytes ? bytes : 1))
    return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
