// The one argument of every generated kernel, CUDA or host, passed by value (CUDA) or by pointer (host). The same layout
// is declared in compiler/device/prelude.cuh and built by compiler/HostTarget.cpp; tests compare the three.
#pragma once
#include <cstdint>

namespace cermet {

constexpr int kMaxRowExtents = 4;
constexpr int kGatheredStride = kMaxRowExtents - 1, kGatheredRows = kMaxRowExtents - 2; // in RowOperand::stride
constexpr int kMaxOperands = 16;
// Threads of one block of `fold`: columns by slices of the partial rows (compiler/device/fold.cuh).
constexpr int kFoldColumns = 32, kFoldSlices = 16;

struct RowOperand {
  char* base;
  // In elements, for the row extents; 0 repeats. Unused for Column and Scalar. Of a gathered operand the last is from
  // one of its own rows to the next, the one before it is their number, and the others are 0.
  int64_t stride[kMaxRowExtents];
  int64_t step;                   // in elements, from one column to the next; read where the operand is strided
};

struct RowArguments {
  int64_t rows;                   // product of the extents
  int64_t partialRows;            // rows of `partials` that the main kernel writes (one per block) and `fold` sums
  int64_t rowRank;                // extents in use after the launcher merged what collapses: 1 to 4
  int64_t extent[kMaxRowExtents]; // outermost first; the last `rowRank` are used, i.e. extent[4 - rowRank .. 3]
  float* partials;                // [accumulators][partialRows][columns], in workspace; null without AccumulateRows
  RowOperand operand[kMaxOperands];
};

} // namespace cermet
