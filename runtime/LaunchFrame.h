// What one launch knows: the sizes behind the symbols and where every value is. It lives on the caller's stack.
#pragma once
#include "runtime/Executable.h"

namespace cermet {

struct Executable::Frame {
  int64_t symbols[kMaxSymbols];
  View* views;                      // one per value
  int64_t (*ownDims)[2 * kMaxRank]; // sizes, then strides, of each buffer and view
  uintptr_t workspace = 0;          // a number: places are computed before there is memory
  float* partials = nullptr;
};

inline int64_t sizeOf(const Dimension& dimension, const int64_t* symbols) {
  return dimension.symbolic() ? symbols[dimension.symbol] : dimension.size;
}

} // namespace cermet
