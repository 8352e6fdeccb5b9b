// The second stage of a sum over rows: adds the blocks' partial rows in a fixed order, in f64, and rounds
// once. Blocks are 32 columns by 16 slices of the partial rows; the grid's second dimension is the accumulator. Of several
// programs the blocks stand one program after the other; one without rows has no partial rows, and nothing to store.

template <class P> DEVICE i64 fold_blocks() { return (P::kColumns + 31) / 32; }

template <class P> DEVICE void fold_kernel(const typename P::Arguments& arguments, i64 block) {
  constexpr int kSlices = 16;
  const int accumulator = block_row();
  if (accumulator >= P::kAccumulators || arguments.partialRows == 0)
    return;
  const int column = int(block) * 32 + thread_index() % 32;
  const int slice = thread_index() / 32;
  const float* partials = arguments.partials + accumulator * (arguments.partialRows * P::kColumns);
  double sum = 0;
  // Unrolled: loads that do not wait for each other.
  if (column < P::kColumns)
#pragma unroll 16
    for (i64 row = slice; row < arguments.partialRows; row += kSlices)
      sum += partials[row * P::kColumns + column];

  SHARED double shared[kSlices * 33];
  shared[slice * 33 + thread_index() % 32] = sum;
  barrier();
#pragma unroll
  for (int half = kSlices / 2; half > 0; half /= 2) {
    if (slice < half)
      shared[slice * 33 + thread_index() % 32] += shared[(slice + half) * 33 + thread_index() % 32];
    barrier();
  }
  if (slice == 0 && column < P::kColumns)
    P::store_fold(arguments, accumulator, column, float(shared[thread_index() % 32]));
}

template <class P> DEVICE void fold_kernel(const typename P::Arguments& arguments) {
  fold_kernel<P>(arguments, block_index());
}
