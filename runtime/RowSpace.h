// Merging of row extents: a kernel walks at most kMaxRowExtents of them, and fewer is faster.
#pragma once
#include "runtime/Plan.h"
#include <cstdint>

namespace cermet {

// Strides in elements of one operand along the row extents, outermost first.
using RowStrides = int64_t[kMaxRank];

// Drops extents of 1 and merges each extent into its outer neighbour where every operand steps through both as through
// one; compacts `extent` and `stride` in place and returns how many are left, at least 1. No extent may be 0.
inline int collapseRows(int rank, int64_t* extent, int operands, RowStrides* stride) {
  int kept = 0;
  for (int inner = 0; inner < rank; ++inner) {
    if (extent[inner] == 1)
      continue;
    bool merges = kept > 0;
    // Unsigned: a caller's stride may be anything, and a wrapped product is merely unequal.
    for (int operand = 0; merges && operand < operands; ++operand)
      merges = uint64_t(stride[operand][kept - 1]) == uint64_t(stride[operand][inner]) * uint64_t(extent[inner]);
    extent[merges ? kept - 1 : kept] = merges ? extent[kept - 1] * extent[inner] : extent[inner];
    for (int operand = 0; operand < operands; ++operand)
      stride[operand][merges ? kept - 1 : kept] = stride[operand][inner];
    kept += !merges;
  }
  if (kept > 0)
    return kept;
  extent[0] = 1;
  for (int operand = 0; operand < operands; ++operand)
    stride[operand][0] = 0;
  return 1;
}

} // namespace cermet
