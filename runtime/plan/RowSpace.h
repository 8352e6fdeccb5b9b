// Row extents in the order in which a kernel walks them, and merged: it walks at most kMaxRowExtents, and fewer is
// faster.
#pragma once
#include "runtime/plan/Plan.h"
#include "runtime/abi/RowArguments.h"
#include <bit>
#include <cstdint>
#include <utility>

namespace cermet {

// Strides in elements of one operand along the row extents, outermost first.
using RowStrides = int64_t[kMaxRank];

// The strides of an index: rows are numbered in row-major order of the extents that it counts along.
inline void countRows(int rank, const int64_t* extent, const PlanOperand& index, RowStrides& stride) {
  int64_t below = 1;
  for (int dim = rank; dim-- > 0;) {
    stride[dim] = index.axis[dim] < 0 ? 0 : below;
    below *= index.axis[dim] < 0 ? 1 : extent[dim];
  }
}

// Brings the extents into the order in which `leading`, one of the operands, has them in memory: its strides descend.
// Rows that lie beside each other are then walked one after another, and merge. Equal strides keep their order.
inline void sortRows(int rank, int64_t* extent, int operands, RowStrides* stride, int leading) {
  for (int end = 1; end < rank; ++end)
    for (int inner = end; inner > 0 && stride[leading][inner - 1] < stride[leading][inner]; --inner) {
      std::swap(extent[inner - 1], extent[inner]);
      for (int operand = 0; operand < operands; ++operand)
        std::swap(stride[operand][inner - 1], stride[operand][inner]);
    }
}

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

// Granlund and Montgomery, Division by Invariant Integers using Multiplication: of 31 bits one word is enough.
inline RowDivisor divisorOf(uint64_t extent) {
  const uint32_t shift = uint32_t(std::bit_width(extent - 1)); // the least power of two that is not below the extent
  return {uint32_t(((uint64_t(1) << (31 + shift)) + extent - 1) / extent), 31 + shift};
}

// Fills in the divisors; rows, rank, extents and strides are there.
inline void setDivisors(RowArguments& arguments, int operands) {
  arguments.divisor[0] = arguments.divisor[1] = {0, 0};
  if (arguments.rowRank < 2 || arguments.rowRank == kMaxRowExtents || arguments.rows >= int64_t(1) << 31)
    return;
  uint64_t wide = 0;
  for (int operand = 0; operand < operands; ++operand)
    for (int64_t stride : arguments.operand[operand].stride)
      wide |= uint64_t(stride) >> 32;
  if (wide == 0)
    for (int position : {0, 1})
      arguments.divisor[position] = divisorOf(uint64_t(arguments.extent[kMaxRowExtents - 2 + position]));
}

} // namespace cermet
