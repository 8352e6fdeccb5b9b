// The column skeleton: sums over rows too long for a block's registers, of which nothing is reduced. A block has the
// columns of kThreadsPerRow vectors in all rows: each of its groups adds up every so many rows, then the groups' sums are
// added in their order, in f64, and rounded once. So no other block has any of a sum, and none is in memory before it is
// whole. A program P supplies what row.cuh asks for.

template <class P, int V, class Blocks = WholeGrid>
DEVICE void column_kernel(const typename P::Arguments& arguments, const Blocks& blocks = Blocks()) {
  constexpr int kGroups = P::kThreads / P::kThreadsPerRow, kSpan = P::kThreadsPerRow * V;
  const int lane = int(u32(thread_index()) % P::kThreadsPerRow);
  const int group = int(u32(thread_index()) / P::kThreadsPerRow);
  float* sums = reinterpret_cast<float*>(shared_memory()); // [group][column]

  for (i64 first = blocks.index() * kSpan; first < P::kColumns; first += blocks.count() * kSpan) {
    const int column = int(first) + lane * V;
    float accumulators[P::kAccumulators * (P::kCompensated ? 2 : 1)][V] = {};
    if (column < P::kColumns) {
      typename P::template Columns<V, 1> columns;
      P::load_columns(columns, 0, arguments, column);
      // Unrolled: loads that do not wait for each other.
#pragma unroll 8
      for (i64 row = group; row < arguments.rows; row += kGroups) {
        const typename P::Offsets offsets = row_offsets<P>(arguments, row);
        typename P::template Tiles<V, 1> tiles;
        typename P::Row values;
        P::load_tiles(tiles, 0, arguments, offsets, column);
        P::load_row(values, arguments, offsets);
        typename P::template Stores<V> stores;
        const KeptValues<0, 0> kept = {};
        emit_vector<P, V>(tiles, 0, columns, 0, column, values, stores, accumulators, 0, kept, 0);
        P::store_tiles(stores, arguments, offsets, column);
        if (column == 0)
          P::store_row(values, arguments, offsets);
      }
    }
#pragma unroll
    for (int a = 0; a < P::kAccumulators; ++a) {
#pragma unroll
      for (int i = 0; i < V; ++i)
        sums[group * kSpan + lane * V + i] = accumulators[a][i];
      barrier();
      for (int at = thread_index(); at < kSpan && int(first) + at < P::kColumns; at += P::kThreads) {
        double sum = 0;
#pragma unroll
        for (int each = 0; each < kGroups; ++each)
          sum += sums[each * kSpan + at];
        P::store_fold(arguments, a, int(first) + at, float(sum));
      }
      barrier();
    }
  }
}
