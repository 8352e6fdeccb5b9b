// The one argument of every generated kernel, CUDA or host, passed by value (CUDA) or by pointer (host). The same
// layout is declared in compiler/cuda/device/prelude.cuh and built by compiler/host/HostTarget.cpp; tests compare the
// three. A kernel of several programs has one for each, cut after its last operand and followed by the next.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace cermet {

constexpr int kMaxRowExtents = 4;
constexpr int kGatheredStride = kMaxRowExtents - 1, kGatheredRows = kMaxRowExtents - 2; // in RowOperand::stride
constexpr int kMaxOperands = 32;
constexpr int kMaxPrograms = 4;            // of one kernel, side by side
constexpr size_t kMaxArgumentBytes = 4096; // of one kernel, for all of its programs
// Threads of one block of `fold`: columns by slices of the partial rows (compiler/cuda/device/fold.cuh).
constexpr int kFoldColumns = 16, kFoldSlices = 32;

struct RowOperand {
  char* base;
  // In elements, for the row extents; 0 repeats. Unused for Column and Scalar. Of a gathered operand the last is from
  // one of its own rows to the next, the one before it is their number, and the others are 0; of a list, of its
  // numbers.
  int64_t stride[kMaxRowExtents];
  int64_t step; // in elements, from one column to the next; read where the operand is strided
};

// number / extent = number * multiplier >> shift, of numbers below 2^31.
struct RowDivisor {
  uint32_t multiplier, shift;
};

struct RowArguments {
  int64_t rows; // product of the extents
  // Blocks that run the program; rows of `partials` that they write (one each) and `fold` sums. On the host the latter.
  int64_t partialRows;
  int64_t rowRank;                // extents in use after the launcher merged what collapses: 1 to 4
  int64_t extent[kMaxRowExtents]; // outermost first; the last `rowRank` are used, i.e. extent[4 - rowRank .. 3]
  // Of the last two extents, where at most three are used, `rows` < 2^31 and strides fit 32 bits: rows are numbered in
  // 32 bits then. Else the multipliers are 0.
  RowDivisor divisor[2];
  float* partials; // [accumulators][partialRows][columns], in workspace; null without AccumulateRows
  RowOperand operand[kMaxOperands];
};

// What a host kernel says of the first of its rows that reads by a number which is none: that of a row (a gathered
// one's) or of a column (a pick's). It computes on, with NaN there (0 where the type is no real).
struct HostFault {
  int64_t row = -1; // counted as the kernel counts its program's rows; negative: none so far
  int64_t number = 0;
  int64_t bound = 0; // numbers from 0 on, below this one, are there
  int64_t isColumn = 0;
};

// Bytes of the argument of a program with so many operands.
inline size_t argumentBytes(size_t operands) {
  return offsetof(RowArguments, operand) + operands * sizeof(RowOperand);
}
static_assert(sizeof(RowArguments) <= kMaxArgumentBytes);

} // namespace cermet
