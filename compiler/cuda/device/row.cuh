// The row skeleton: a group of threads owns a row. It covers one thread-group per warp or less (many short rows a block)
// up to a whole block per row, one row per group or persistent groups that walk over rows, and sums over rows
// (column accumulators) that `fold_kernel` finishes in a fixed order.
//
// A program P is straight-line code and constants:
//   kColumns, kThreads, kThreadsPerRow, kStages, kAccumulators, kStageCount, kMostReductions
//   kKept                         how many expensive values a thread keeps for a later stage
//   kStoresTiles                  whether there are tile outputs
//   kCompensated                  whether accumulators carry what their additions lose, in as many again behind them
//   kCached<V>                    whether a thread keeps its part of a row in registers, or reads it again in every stage
//   Arguments, Offsets            the kernel's argument; where the row's operands begin
//   any_tile(offsets)             where one of its tiles does, if vectors do not divide a row (long_row.cuh)
//   Tiles<V, N>, Columns<V, N>    a thread's packed inputs, N vectors of V elements each
//   Row                           per-row values: loads, finished reductions and what follows from them
//   Element                       one element's inputs, in f32
//   Reductions<S>                 kCount, of stage S; kRuns: whether there are running maxima and sums among them
//   begin<S>(row, sums)           what the reductions that end stage S start from, where that is not 0
//   raise<S>(element, row, sums)  raises the running maxima to the element, before any element is summed
//   rescale<S>(row, sums)         shrinks the running sums to maxima that were raised
//   reduce<S>(element, row, sums, added)  adds the element's share to them, what is summed to `added`; that may be `sums`
//   add<S>(sums, added)           adds what was summed apart
//   combine<S>(a, b)              adds another thread's shares, b, to a
//   keep_tiles(tiles)             keep_packed on each of them
//   finish<S>(row, sums)          per-row arithmetic after them
//   emit(element, row, stores, accumulators, i, slot)  the last stage: tile outputs and accumulator contributions
//   kPairs, pair(...), emit_pair(...)                  the same for two neighbours at once, where that is cheaper
//   kCumsums                      whether it has cumulative sums; if so, of stage S kRealSums<S> and kWholeSums<S>, and
//   kBackward                     whether they are of the columns from each on
//   cumulate<S>(element, row, reals, wholes)  adds the element to the running sums, which become its own
//   offset<S>(element, reals, wholes)         adds the sums of what lies before to the element's
//   kAhead                        whether persistent groups ask for a row while they compute the one before it
//
// Threads of a group own the same columns in every row, so staged copies and accumulators need no barrier: the only one
// per reduction is the reduction's own.

template <class P, int V> struct RowShape {
  static constexpr int kSpan = P::kThreadsPerRow * V; // columns that one vector of each thread covers
  static constexpr int kSteps = (P::kColumns + kSpan - 1) / kSpan;
  static constexpr bool kWhole = P::kColumns % kSpan == 0;
  static constexpr int kRowsPerBlock = P::kThreads / P::kThreadsPerRow;
  static constexpr int kWarpsPerRow = P::kThreadsPerRow / 32;
  // Asynchronous copies move 4 bytes or more. Staged tiles stay in shared memory, which every stage reads again: that
  // is cheaper than the registers.
  static constexpr bool kStaged = P::kStages > 0 && P::template TileBytes<V>::kSmallest >= 4;
  static constexpr int kStageBytes = kStaged ? kSteps * P::kThreads * P::template TileBytes<V>::kAll : 0;
};

// Combines the Count values of stage S of Lanes neighbouring threads.
template <class P, int S, int Lanes, int Count> DEVICE void butterfly(float (&values)[Count]) {
#pragma unroll
  for (int mask = Lanes / 2; mask > 0; mask /= 2) {
    float others[Count];
#pragma unroll
    for (int n = 0; n < Count; ++n)
      others[n] = shuffle_xor(values[n], mask);
    P::template combine<S>(values, others);
  }
}

// Combines each of Count values of stage S over the group's threads; every thread receives the result. `parity`
// alternates between two scratch areas, so that one barrier per call is enough.
template <class P, int S, int Count> DEVICE void group_reduce(float (&values)[Count], float* scratch, int& parity) {
  constexpr int kLanes = P::kThreadsPerRow < 32 ? P::kThreadsPerRow : 32;
  butterfly<P, S, kLanes>(values);
  if constexpr (P::kThreadsPerRow > 32) {
    constexpr int kWarps = P::kThreads / 32, kPerRow = P::kThreadsPerRow / 32;
    float* area = scratch + parity * (P::kMostReductions * kWarps);
    parity ^= 1;
    const int warp = thread_index() / 32;
    if (thread_index() % 32 == 0)
#pragma unroll
      for (int n = 0; n < Count; ++n)
        area[n * kWarps + warp] = values[n];
    barrier();
    const int first = warp / kPerRow * kPerRow;
    // Many warps: each does again what a warp has done, which is shorter than one after the other.
    constexpr bool kMany = kPerRow >= 8 && (kPerRow & (kPerRow - 1)) == 0;
#pragma unroll
    for (int n = 0; n < Count; ++n)
      values[n] = area[n * kWarps + first + (kMany ? thread_index() % kPerRow : 0)];
    if constexpr (kMany) {
      butterfly<P, S, kPerRow>(values);
    } else {
#pragma unroll
      for (int i = 1; i < kPerRow; ++i) {
        float others[Count];
#pragma unroll
        for (int n = 0; n < Count; ++n)
          others[n] = area[n * kWarps + first + i];
        P::template combine<S>(values, others);
      }
    }
  }
}

// A stage's walk over the steps of a row; where it has cumulative sums, in their order (cumsum.cuh).
template <class P, int V, int S, bool HasCumsums = P::kCumsums> struct RowWalk {
  static constexpr int step(int turn) { return turn; }
  template <class Given, class Kept>
  DEVICE void enter(bool, const Given&, const typename P::Row&, Kept&, int, float*, int&) {}
  template <class Given> DEVICE typename P::Element element(const Given& given, int i) const { return given(i); }
};

// Runs the stages that end in reductions, S up to the last but one.
template <class P, int V, int S, class Tiles, class Columns, class Kept, class Load>
DEVICE void run_stages(Tiles& tiles, Columns& columns, Kept& kept, typename P::Row& values, float* scratch, int& parity,
                       int lane, const Load& load) {
  if constexpr (S + 1 < P::kStageCount) {
    typedef RowShape<P, V> Shape;
    float sums[P::template Reductions<S>::kCount] = {};
    P::template begin<S>(values, sums);
    constexpr int kUnroll = P::template kCached<V> ? Shape::kSteps : 1;
    RowWalk<P, V, S> walk;
#pragma unroll kUnroll
    for (int turn = 0; turn < Shape::kSteps; ++turn) {
      const int step = walk.step(turn);
      const int column = step * Shape::kSpan + lane * V;
      const bool has = Shape::kWhole || column < P::kColumns;
      const int columnSlot = P::template kCached<V> ? step : 0, tileSlot = Shape::kStaged ? 0 : columnSlot;
      const auto given = [&](int i) { return P::element(tiles, tileSlot, columns, columnSlot, column, i); };
      if constexpr (Shape::kStaged || !P::template kCached<V>)
        if (has)
          load(step, column);
      walk.enter(has, given, values, kept, columnSlot * V, scratch, parity);
      if (has) {
        if constexpr (P::template Reductions<S>::kRuns) {
#pragma unroll
          for (int i = 0; i < V; ++i)
            P::template raise<S>(walk.element(given, i), values, sums);
          P::template rescale<S>(values, sums);
        }
#pragma unroll
        for (int i = 0; i < V; ++i)
          P::template reduce<S>(walk.element(given, i), values, sums, sums, kept, columnSlot * V + i);
      }
    }
    group_reduce<P, S>(sums, scratch, parity);
    P::keep_tiles(tiles);
    P::template finish<S>(values, sums);
    run_stages<P, V, S + 1>(tiles, columns, kept, values, scratch, parity, lane, load);
  }
}

// Loads what a row has once and, where registers keep its tiles, these.
template <class P, int V, class Tiles>
DEVICE void load_all(const typename P::Arguments& arguments, const typename P::Offsets& offsets, int lane, Tiles& tiles,
                     typename P::Row& values) {
  typedef RowShape<P, V> Shape;
  P::load_row(values, arguments, offsets);
  if constexpr (P::template kCached<V> && !Shape::kStaged)
#pragma unroll
    for (int step = 0; step < Shape::kSteps; ++step) {
      const int column = step * Shape::kSpan + lane * V;
      if (Shape::kWhole || column < P::kColumns)
        P::load_tiles(tiles, step, arguments, offsets, column);
    }
}

template <class P, int V, class Blocks = WholeGrid>
DEVICE void row_kernel(const typename P::Arguments& arguments, const Blocks& blocks = Blocks()) {
  typedef RowShape<P, V> Shape;
  constexpr int kSlots = P::template kCached<V> ? Shape::kSteps : 1; // of column inputs and accumulators
  constexpr int kTileSlots = Shape::kStaged ? 1 : kSlots;
  constexpr int kSums = P::kAccumulators > 0 ? P::kAccumulators * (P::kCompensated ? 2 : 1) : 1;
  constexpr int kSumSlots = P::kAccumulators > 0 && P::template kCached<V> ? kSlots * V : V;
  const int lane = int(u32(thread_index()) % P::kThreadsPerRow);
  const int group = int(u32(thread_index()) / P::kThreadsPerRow);
  const i64 stride = blocks.count() * Shape::kRowsPerBlock;
  char* ring = shared_memory();
  float* scratch = reinterpret_cast<float*>(ring + Shape::kStageBytes * (Shape::kStaged ? P::kStages : 0));
  float* partial = arguments.partials + blocks.index() * P::kColumns;
  const i64 partialStride = arguments.partialRows * P::kColumns;
  int parity = 0;

  typename P::template Columns<V, kSlots> columns;
  float accumulators[kSums][kSumSlots] = {};
  if constexpr (P::template kCached<V>) {
#pragma unroll
    for (int step = 0; step < Shape::kSteps; ++step) {
      const int column = step * Shape::kSpan + lane * V;
      if (Shape::kWhole || column < P::kColumns)
        P::load_columns(columns, step, arguments, column);
    }
  } else if constexpr (P::kAccumulators > 0) {
    for (int a = 0; a < P::kAccumulators; ++a)
      for (int column = thread_index(); column < P::kColumns; column += P::kThreads)
        partial[a * partialStride + column] = 0;
    barrier();
  }

  // Asks for a row's tiles; rows beyond the last are asked for as empty groups, so that groups stay countable.
  const auto prefetch = [&](i64 row, int stage) {
    if constexpr (Shape::kStaged) {
      if (row < arguments.rows) {
        const typename P::Offsets offsets = row_offsets<P>(arguments, row);
        char* slots = ring + stage * Shape::kStageBytes;
#pragma unroll
        for (int step = 0; step < Shape::kSteps; ++step) {
          const int column = step * Shape::kSpan + lane * V;
          if (Shape::kWhole || column < P::kColumns)
            P::template copy_tiles<V>(slots + step * P::kThreads * P::template TileBytes<V>::kAll, arguments, offsets,
                                      column);
        }
      }
      commit_async();
    }
  };

  i64 row = blocks.index() * Shape::kRowsPerBlock + group;
  int stage = 0;
  if constexpr (Shape::kStaged)
    for (int ahead = 0; ahead + 1 < P::kStages; ++ahead)
      prefetch(row + ahead * stride, ahead);

  constexpr bool kAhead = P::kAhead && P::template kCached<V> && !Shape::kStaged;
  typedef typename P::template Tiles<V, kTileSlots> RowTiles;
  const i64 last = arguments.rows - 1; // a group past the end reads it and stores nothing
  RowTiles nextTiles;
  typename P::Row nextValues;
  typename P::Offsets nextOffsets;
  if constexpr (kAhead) {
    nextOffsets = row_offsets<P>(arguments, row < last ? row : last);
    load_all<P, V>(arguments, nextOffsets, lane, nextTiles, nextValues);
  }

  // The bound is the block's, not the group's: every thread reaches every barrier.
  for (i64 first = blocks.index() * Shape::kRowsPerBlock; first < arguments.rows; first += stride, row += stride) {
    const bool live = row < arguments.rows;
    RowTiles tiles;
    typename P::Row values;
    typename P::Offsets offsets;
    if constexpr (kAhead) {
      tiles = nextTiles;
      values = nextValues;
      offsets = nextOffsets;
      nextOffsets = row_offsets<P>(arguments, row + stride < last ? row + stride : last);
      load_all<P, V>(arguments, nextOffsets, lane, nextTiles, nextValues);
    } else {
      offsets = row_offsets<P>(arguments, row < last ? row : last);
      load_all<P, V>(arguments, offsets, lane, tiles, values);
    }
    KeptValues<P::kKept, P::template kCached<V> ? kSlots * V : 0> kept;
    char* staged = ring + stage * Shape::kStageBytes;
    const auto load = [&](int step, int column) {
      if constexpr (Shape::kStaged)
        P::template take_tiles<V>(tiles, 0, staged + step * P::kThreads * P::template TileBytes<V>::kAll);
      else
        P::load_tiles(tiles, 0, arguments, offsets, column);
      if constexpr (!P::template kCached<V>)
        P::load_columns(columns, 0, arguments, column);
    };
    if constexpr (Shape::kStaged) {
      prefetch(row + (P::kStages - 1) * stride, stage == 0 ? P::kStages - 1 : stage - 1);
      wait_async<P::kStages - 1>();
      stage = stage + 1 == P::kStages ? 0 : stage + 1;
    }

    run_stages<P, V, 0>(tiles, columns, kept, values, scratch, parity, lane, load);
    // Where nothing is summed over rows only stores are spared: behind a branch what the last stage alone reads would be
    // loaded after the reductions.
    if constexpr (P::kAccumulators > 0 && !P::kCumsums) // which need every thread
      if (!live)
        continue;

    constexpr int kUnroll = P::template kCached<V> ? Shape::kSteps : 1;
    RowWalk<P, V, P::kStageCount - 1> walk;
#pragma unroll kUnroll
    for (int turn = 0; turn < Shape::kSteps; ++turn) {
      const int step = walk.step(turn);
      const int column = step * Shape::kSpan + lane * V;
      const bool has = Shape::kWhole || column < P::kColumns;
      const int columnSlot = P::template kCached<V> ? step : 0, tileSlot = Shape::kStaged ? 0 : columnSlot;
      if constexpr (Shape::kStaged || !P::template kCached<V>)
        if (has)
          load(step, column);
      const auto given = [&](int i) { return P::element(tiles, tileSlot, columns, columnSlot, column, i); };
      walk.enter(has, given, values, kept, columnSlot * V, scratch, parity);
      if (has && (P::kAccumulators == 0 || !P::kCumsums || live)) {
        typename P::template Stores<V> stores;
        const int slot = P::kAccumulators > 0 ? columnSlot * V : 0;
        if constexpr (P::kCumsums)
#pragma unroll
          for (int i = 0; i < V; ++i)
            P::emit(walk.element(given, i), values, stores, accumulators, i, slot + i, kept, columnSlot * V + i);
        else
          emit_vector<P, V>(tiles, tileSlot, columns, columnSlot, column, values, stores, accumulators, slot, kept,
                            columnSlot * V);
        if (live)
          P::store_tiles(stores, arguments, offsets, column);
        if constexpr (P::kAccumulators > 0 && !P::template kCached<V>)
#pragma unroll
          for (int a = 0; a < P::kAccumulators; ++a)
#pragma unroll
            for (int i = 0; i < V; ++i) {
              partial[a * partialStride + column + i] += accumulators[a][i];
              accumulators[a][i] = 0;
              if constexpr (P::kCompensated)
                accumulators[a + P::kAccumulators][i] = 0;
            }
      }
    }
    if (live && lane == 0)
      P::store_row(values, arguments, offsets);
  }

  if constexpr (P::kAccumulators > 0 && P::template kCached<V>) {
    // Groups of one block own the same columns: they add up, those of a warp among themselves and the warps' in shared
    // memory, in order, and the block writes one row.
    constexpr int kPerWarp = P::kThreadsPerRow < 32 ? 32 / P::kThreadsPerRow : 1;
    float* sums = reinterpret_cast<float*>(ring);
    if constexpr (Shape::kStaged)
      wait_async<0>();
#pragma unroll
    for (int a = 0; a < P::kAccumulators; ++a) {
      if constexpr (Shape::kRowsPerBlock > 1) {
#pragma unroll
        for (int mask = P::kThreadsPerRow; mask < 32; mask *= 2)
#pragma unroll
          for (int slot = 0; slot < kSumSlots; ++slot)
            accumulators[a][slot] += shuffle_xor(accumulators[a][slot], mask);
        for (int turn = 0; turn < Shape::kRowsPerBlock; turn += kPerWarp) {
          barrier();
          if (group == turn)
#pragma unroll
            for (int slot = 0; slot < kSumSlots; ++slot) {
              const int column = slot / V * Shape::kSpan + lane * V + slot % V;
              if (Shape::kWhole || column < P::kColumns)
                sums[column] = turn == 0 ? accumulators[a][slot] : sums[column] + accumulators[a][slot];
            }
        }
        barrier();
        for (int column = thread_index(); column < P::kColumns; column += P::kThreads)
          partial[a * partialStride + column] = sums[column];
      } else {
#pragma unroll
        for (int step = 0; step < kSlots; ++step) {
          const int column = step * Shape::kSpan + lane * V;
          if (Shape::kWhole || column < P::kColumns) {
            Vector<float, V> part;
#pragma unroll
            for (int i = 0; i < V; ++i)
              part.at[i] = accumulators[a][step * V + i];
            store_vector(reinterpret_cast<char*>(partial + a * partialStride), column, part);
          }
        }
      }
    }
  }
}
