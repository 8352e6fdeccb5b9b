// The flat skeleton: elementwise work without reductions. Each thread moves one vector; vectors are numbered row by row.
//
// A program P supplies Tiles, Columns, Row, Element and Stores (see row.cuh), and
//   kScales, is_unchanged(arguments)  whether it multiplies a tensor by a number; whether that is 1 and the tensor lies
//                                     where the product goes. Its blocks are persistent, so that there are few to start
//                                     where there is nothing to do

// `place`: where else a program finds tiles (turned.cuh).
template <class P, int V, class... Place>
DEVICE void flat_vector(const typename P::Arguments& arguments, i64 row, int column, Place... place) {
  const typename P::Offsets offsets = row_offsets<P>(arguments, row);
  typename P::template Tiles<V, 1> tiles;
  typename P::template Columns<V, 1> columns;
  typename P::Row values;
  P::load_tiles(tiles, 0, arguments, offsets, column, place...);
  P::load_columns(columns, 0, arguments, column);
  P::load_row(values, arguments, offsets);

  typename P::template Stores<V> stores;
  float none[1][V];
  const KeptValues<0, 0> kept = {};
  emit_vector<P, V>(tiles, 0, columns, 0, column, values, stores, none, 0, kept, 0);
  P::store_tiles(stores, arguments, offsets, column);
  if (column == 0)
    P::store_row(values, arguments, offsets);
}

template <class P, int V, class Blocks = WholeGrid>
DEVICE void flat_kernel(const typename P::Arguments& arguments, const Blocks& blocks = Blocks()) {
  constexpr int kSteps = (P::kColumns + V - 1) / V; // vectors in a row; V divides kColumns
  if constexpr (P::kScales) {
    if (P::is_unchanged(arguments))
      return;
    const i64 vectors = arguments.rows * kSteps;
    for (i64 vector = blocks.index() * P::kThreads + thread_index(); vector < vectors;
         vector += blocks.count() * P::kThreads)
      flat_vector<P, V>(arguments, vector / kSteps, int(vector % kSteps) * V);
    return;
  }
  // 32 bits where they are enough: a division by a constant is much cheaper then.
  i64 row;
  int step;
  if (blocks.count() * P::kThreads < 0x80000000ll) {
    const u32 vector = u32(blocks.index()) * P::kThreads + thread_index();
    row = vector / kSteps;
    step = int(vector % kSteps);
  } else {
    const i64 vector = blocks.index() * P::kThreads + thread_index();
    row = vector / kSteps;
    step = int(vector % kSteps);
  }
  if (row < arguments.rows)
    flat_vector<P, V>(arguments, row, step * V);
}
