// The skeleton of long rows: a block owns a row and walks over it once for every stage, since registers do not hold it.
// Shared memory holds as much of it as there is room for, the first kHeld<V> vectors of each thread; the last stage that
// reads them asks for the next row's in their place. What is not held is read again, several vectors at a time: the
// second time it comes from the L2 cache.
//
// A program P is what row.cuh says. A thread reads only what it has copied itself, so held tiles need no barrier.

template <class P, int V> struct LongRow {
  static constexpr int kSpan = P::kThreads * V;
  static constexpr int kSteps = (P::kColumns + kSpan - 1) / kSpan;
  // Vectors that are read before the first is used: from shared memory, and from the L2 cache, which is farther.
  static constexpr int kRegisters = P::template TileBytes<V>::kAll < 4 ? 1 : P::template TileBytes<V>::kAll / 4;
  static constexpr int kGroup = kRegisters < 8 ? 8 / kRegisters : 1, kFarGroup = 2 * kGroup;
  static constexpr bool kCopied = P::template TileBytes<V>::kSmallest >= 4;
  static constexpr int kRoom = P::template kHeld<V> < kSteps ? P::template kHeld<V> : kSteps;
  static constexpr int kGroups = kCopied ? (kRoom + kGroup - 1) / kGroup : 0; // held, the last perhaps in part
  static constexpr int kHeldSteps = kCopied ? kRoom : 0;
  static constexpr int kStepBytes = P::kThreads * P::template TileBytes<V>::kAll;
  static constexpr int kLastWalk = P::kStageCount - (P::kStoresTiles ? 1 : 2); // the last stage that reads the row

  static DEVICE bool has(int step) {
    return (step + 1) * kSpan <= P::kColumns || (step < kSteps && step * kSpan + thread_index() * V < P::kColumns);
  }
};

template <class P, int V, int Group> struct LongRowInputs {
  static constexpr int kGroup = Group;
  typename P::template Tiles<V, Group> tiles;
  typename P::template Columns<V, Group> columns;

  DEVICE typename P::Element element(int slot, int column, int i) const {
    return P::element(tiles, slot, columns, slot, column, i);
  }
};

// Asks for a group of the row's held vectors; a row beyond the last is asked for as an empty group.
template <class P, int V>
DEVICE void copy_group(char* held, int group, const typename P::Arguments& arguments,
                       const typename P::Offsets& offsets, bool exists) {
  typedef LongRow<P, V> Shape;
  if constexpr (Shape::kCopied) {
    if (exists)
#pragma unroll
      for (int slot = 0; slot < Shape::kGroup; ++slot) {
        const int step = group * Shape::kGroup + slot;
        if (step < Shape::kHeldSteps && Shape::has(step))
          P::template copy_tiles<V>(held + step * Shape::kStepBytes, arguments, offsets,
                                    step * Shape::kSpan + thread_index() * V);
      }
    commit_async();
  }
}

// Calls body(inputs, first step, group or -1) for groups of the thread's vectors, in order. Waits: the copies of the row
// may be under way.
template <class P, int V, bool Waits, int Group, class Body>
DEVICE void walk_held(char* held, const typename P::Arguments& arguments, const Body& body) {
  typedef LongRow<P, V> Shape;
  if constexpr (Group < Shape::kGroups) {
    constexpr int kFirst = Group * Shape::kGroup;
    constexpr int kCount = Shape::kHeldSteps - kFirst < Shape::kGroup ? Shape::kHeldSteps - kFirst : Shape::kGroup;
    if constexpr (Waits)
      wait_async<Shape::kGroups - 1 - Group>();
    LongRowInputs<P, V, kCount> inputs;
#pragma unroll
    for (int slot = 0; slot < kCount; ++slot)
      if (Shape::has(kFirst + slot)) {
        P::template take_tiles<V>(inputs.tiles, slot, held + (kFirst + slot) * Shape::kStepBytes);
        P::load_columns(inputs.columns, slot, arguments, (kFirst + slot) * Shape::kSpan + thread_index() * V);
      }
    body(inputs, kFirst, Group);
    walk_held<P, V, Waits, Group + 1>(held, arguments, body);
  }
}

template <class P, int V, bool Waits, class Body>
DEVICE void walk_row(char* held, const typename P::Arguments& arguments, const typename P::Offsets& offsets,
                     const Body& body) {
  typedef LongRow<P, V> Shape;
  walk_held<P, V, Waits, 0>(held, arguments, body);
#pragma unroll 1
  for (int first = Shape::kHeldSteps; first < Shape::kSteps; first += Shape::kFarGroup) {
    LongRowInputs<P, V, Shape::kFarGroup> inputs;
#pragma unroll
    for (int slot = 0; slot < Shape::kFarGroup; ++slot)
      if (Shape::has(first + slot)) {
        const int column = (first + slot) * Shape::kSpan + thread_index() * V;
        P::load_tiles(inputs.tiles, slot, arguments, offsets, column);
        P::load_columns(inputs.columns, slot, arguments, column);
      }
    body(inputs, first, -1);
  }
}

// Runs the stages that end in reductions, S up to the last but one. `refill` asks for a group of the next row.
template <class P, int V, int S, class Refill>
DEVICE void long_row_stages(char* held, const typename P::Arguments& arguments, const typename P::Offsets& offsets,
                            typename P::Row& values, float* scratch, int& parity, const Refill& refill) {
  if constexpr (S + 1 < P::kStageCount) {
    typedef LongRow<P, V> Shape;
    float sums[P::template Reductions<S>::kCount] = {};
    KeptValues<0, 0> kept;
    P::template begin<S>(values, sums);
    walk_row<P, V, S == 0>(held, arguments, offsets, [&](const auto& inputs, int first, int group) {
      const auto each = [&](const auto& visit) {
#pragma unroll
        for (int slot = 0; slot < inputs.kGroup; ++slot)
          if (Shape::has(first + slot))
#pragma unroll
            for (int i = 0; i < V; ++i)
              visit(inputs.element(slot, (first + slot) * Shape::kSpan + thread_index() * V, i));
      };
      if constexpr (P::template Reductions<S>::kRuns) {
        each([&](const typename P::Element& element) { P::template raise<S>(element, values, sums); });
        P::template rescale<S>(values, sums);
      }
      // A group's own sums first: that adds up with less error, and they wait for no other group's.
      float added[P::template Reductions<S>::kCount] = {};
      each([&](const typename P::Element& element) { P::template reduce<S>(element, values, sums, added, kept, 0); });
      P::template add<S>(sums, added);
      if (S == Shape::kLastWalk)
        refill(group);
    });
    group_reduce<P, S>(sums, scratch, parity);
    P::template finish<S>(values, sums);
    long_row_stages<P, V, S + 1>(held, arguments, offsets, values, scratch, parity, refill);
  }
}

template <class P, int V> DEVICE void long_row_kernel(const typename P::Arguments& arguments) {
  typedef LongRow<P, V> Shape;
  char* held = shared_memory();
  float* scratch = reinterpret_cast<float*>(held + Shape::kHeldSteps * Shape::kStepBytes);
  int parity = 0;
  if (Shape::kGroups > 0 && Shape::kLastWalk >= 0 && block_index() < arguments.rows) {
    const typename P::Offsets offsets = row_offsets<P>(arguments, block_index());
#pragma unroll
    for (int group = 0; group < Shape::kGroups; ++group)
      copy_group<P, V>(held, group, arguments, offsets, true);
  }
  for (i64 row = block_index(); row < arguments.rows; row += block_count()) {
    const i64 next = row + block_count();
    const bool isNext = next < arguments.rows;
    const typename P::Offsets offsets = row_offsets<P>(arguments, row);
    const typename P::Offsets nextOffsets = row_offsets<P>(arguments, isNext ? next : row);
    const auto refill = [&](int group) {
      if (group >= 0)
        copy_group<P, V>(held, group, arguments, nextOffsets, isNext);
    };
    typename P::Row values;
    P::load_row(values, arguments, offsets);
    long_row_stages<P, V, 0>(held, arguments, offsets, values, scratch, parity, refill);

    if constexpr (P::kStoresTiles) {
      float accumulators[1][1];
      KeptValues<0, 0> kept;
      walk_row<P, V, P::kStageCount == 1>(held, arguments, offsets, [&](const auto& inputs, int first, int group) {
#pragma unroll
        for (int slot = 0; slot < inputs.kGroup; ++slot)
          if (Shape::has(first + slot)) {
            const int column = (first + slot) * Shape::kSpan + thread_index() * V;
            typename P::template Stores<V> stores;
            emit_vector<P, V>(inputs.tiles, slot, inputs.columns, slot, column, values, stores, accumulators, 0, kept,
                              0);
            P::store_tiles(stores, arguments, offsets, column);
          }
        refill(group);
      });
    }
    if (thread_index() == 0)
      P::store_row(values, arguments, offsets);
  }
}
