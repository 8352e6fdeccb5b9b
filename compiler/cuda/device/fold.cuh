// The second stage of a sum over rows: adds the blocks' partial rows in a fixed order, in f64, and rounds once. Blocks
// are 16 columns by 32 slices of the partial rows; the grid's second dimension is the accumulator. Of several programs
// the blocks stand one program after the other; one without rows has no partial rows, and nothing to store.

constexpr int kFoldWidth = 16, kFoldSlices = 32; // few columns, so that there are blocks for all multiprocessors

template <class P> DEVICE i64 fold_blocks() { return (P::kColumns + kFoldWidth - 1) / kFoldWidth; }

template <class P> DEVICE void fold_kernel(const typename P::Arguments& arguments, i64 block) {
  const int accumulator = block_row();
  if (accumulator >= P::kAccumulators || arguments.partialRows == 0)
    return;
  const int lane = thread_index() % kFoldWidth, slice = thread_index() / kFoldWidth;
  const int column = int(block) * kFoldWidth + lane;
  const float* partials = arguments.partials + accumulator * (arguments.partialRows * P::kColumns);
  double sum = 0;
  // Unrolled: loads that do not wait for each other.
  if (column < P::kColumns)
#pragma unroll 16
    for (i64 row = slice; row < arguments.partialRows; row += kFoldSlices)
      sum += partials[row * P::kColumns + column];

  SHARED double sums[kFoldSlices][kFoldWidth + 1];
  sums[slice][lane] = sum;
  barrier();
#pragma unroll
  for (int half = kFoldSlices / 2; half > 0; half /= 2) {
    if (slice < half)
      sums[slice][lane] += sums[slice + half][lane];
    barrier();
  }
  if (slice == 0 && column < P::kColumns)
    P::store_fold(arguments, accumulator, column, float(sums[0][lane]));
}

template <class P> DEVICE void fold_kernel(const typename P::Arguments& arguments) {
  fold_kernel<P>(arguments, block_index());
}
