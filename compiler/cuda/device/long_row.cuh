// The skeleton of long rows: a block owns a row and walks over it once for every stage, since registers do not hold it.
// Shared memory holds as much of it as there is room for, the first kHeld<V> vectors of each thread; the last stage that
// reads them asks for the next row's in their place. What is not held is read again, several vectors at a time: the
// second time it comes from the L2 cache.
//
// A row whose width is no multiple of a vector's begins at any element. Its vectors are the whole ones in it that are
// aligned; what lies before and behind these, less than two vectors, are the row's edges: an element for each of the
// first threads, which registers hold. All tiles have their vectors at the same columns then: the launcher has seen to
// that.
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
  static constexpr bool kHasEdges = P::kColumns % V != 0;
  static constexpr int kLeastVectors = kHasEdges ? (P::kColumns - (V - 1)) / V : P::kColumns / V; // of any row
};

// Where a row's vectors lie.
template <class P, int V> class RowPlace {
  typedef LongRow<P, V> Shape;
  int head = 0, vectors = Shape::kLeastVectors;

public:
  DEVICE explicit RowPlace(const typename P::Offsets& offsets) {
    if constexpr (Shape::kHasEdges) {
      head = int(u64(0 - P::any_tile(offsets)) % V);
      vectors = (P::kColumns - head) / V;
    }
  }
  // Whether there is a vector for the calling thread in a step, and its first column.
  DEVICE bool has(int step) const {
    return (step + 1) * P::kThreads <= Shape::kLeastVectors || step * P::kThreads + thread_index() < vectors;
  }
  DEVICE int column(int step) const { return head + step * Shape::kSpan + thread_index() * V; }
  // The same for an element of the edges.
  DEVICE bool has_edge() const { return Shape::kHasEdges && thread_index() < P::kColumns - vectors * V; }
  DEVICE int edge() const { return thread_index() < head ? thread_index() : vectors * V + thread_index(); }
};

template <class P, int V, int Group> struct LongRowInputs {
  static constexpr int kGroup = Group;
  typename P::template Tiles<V, Group> tiles;
  typename P::template Columns<V, Group> columns;

  DEVICE typename P::Element element(int slot, int column, int i) const {
    return P::element(tiles, slot, columns, slot, column, i);
  }
};

// The element of a row's edges that the calling thread has, if any.
template <class P, int V>
DEVICE LongRowInputs<P, 1, 1> load_edge(const typename P::Arguments& arguments, const typename P::Offsets& offsets,
                                        const RowPlace<P, V>& place) {
  LongRowInputs<P, 1, 1> edge;
  if (place.has_edge())
    P::load_tiles(edge.tiles, 0, arguments, offsets, place.edge());
  return edge;
}

// Asks for a group of the row's held vectors; a row beyond the last is asked for as an empty group.
template <class P, int V>
DEVICE void copy_group(char* held, int group, const typename P::Arguments& arguments,
                       const typename P::Offsets& offsets, bool exists) {
  typedef LongRow<P, V> Shape;
  if constexpr (Shape::kCopied) {
    const RowPlace<P, V> place(offsets);
    if (exists)
#pragma unroll
      for (int slot = 0; slot < Shape::kGroup; ++slot) {
        const int step = group * Shape::kGroup + slot;
        if (step < Shape::kHeldSteps && place.has(step))
          P::template copy_tiles<V>(held + step * Shape::kStepBytes, arguments, offsets, place.column(step));
      }
    commit_async();
  }
}

// Calls body(inputs, first step, group or -1) for groups of the thread's vectors, in order. Waits: the copies of the row
// may be under way.
template <class P, int V, bool Waits, int Group, class Body>
DEVICE void walk_held(char* held, const typename P::Arguments& arguments, const RowPlace<P, V>& place,
                      const Body& body) {
  typedef LongRow<P, V> Shape;
  if constexpr (Group < Shape::kGroups) {
    constexpr int kFirst = Group * Shape::kGroup;
    constexpr int kCount = Shape::kHeldSteps - kFirst < Shape::kGroup ? Shape::kHeldSteps - kFirst : Shape::kGroup;
    if constexpr (Waits)
      wait_async<Shape::kGroups - 1 - Group>();
    LongRowInputs<P, V, kCount> inputs;
#pragma unroll
    for (int slot = 0; slot < kCount; ++slot)
      if (place.has(kFirst + slot)) {
        P::template take_tiles<V>(inputs.tiles, slot, held + (kFirst + slot) * Shape::kStepBytes);
        P::load_columns(inputs.columns, slot, arguments, place.column(kFirst + slot));
      }
    body(inputs, kFirst, Group);
    walk_held<P, V, Waits, Group + 1>(held, arguments, place, body);
  }
}

template <class P, int V, bool Waits, class Body>
DEVICE void walk_row(char* held, const typename P::Arguments& arguments, const typename P::Offsets& offsets,
                     const RowPlace<P, V>& place, const Body& body) {
  typedef LongRow<P, V> Shape;
  walk_held<P, V, Waits, 0>(held, arguments, place, body);
#pragma unroll 1
  for (int first = Shape::kHeldSteps; first < Shape::kSteps; first += Shape::kFarGroup) {
    LongRowInputs<P, V, Shape::kFarGroup> inputs;
#pragma unroll
    for (int slot = 0; slot < Shape::kFarGroup; ++slot)
      if (place.has(first + slot)) {
        const int column = place.column(first + slot);
        P::load_tiles(inputs.tiles, slot, arguments, offsets, column);
        P::load_columns(inputs.columns, slot, arguments, column);
      }
    body(inputs, first, -1);
  }
}

// Runs the stages that end in reductions, S up to the last but one. `refill` asks for a group of the next row.
template <class P, int V, int S, class Refill>
DEVICE void long_row_stages(char* held, const typename P::Arguments& arguments, const typename P::Offsets& offsets,
                            const RowPlace<P, V>& place, const LongRowInputs<P, 1, 1>& edge, typename P::Row& values,
                            float* scratch, int& parity, const Refill& refill) {
  if constexpr (S + 1 < P::kStageCount) {
    typedef LongRow<P, V> Shape;
    float sums[P::template Reductions<S>::kCount] = {};
    KeptValues<0, 0> kept;
    P::template begin<S>(values, sums);
    walk_row<P, V, S == 0>(held, arguments, offsets, place, [&](const auto& inputs, int first, int group) {
      const auto each = [&](const auto& visit) {
#pragma unroll
        for (int slot = 0; slot < inputs.kGroup; ++slot)
          if (place.has(first + slot))
#pragma unroll
            for (int i = 0; i < V; ++i)
              visit(inputs.element(slot, place.column(first + slot), i));
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
    if constexpr (Shape::kHasEdges)
      if (place.has_edge()) {
        const typename P::Element element = edge.element(0, place.edge(), 0);
        if constexpr (P::template Reductions<S>::kRuns) {
          P::template raise<S>(element, values, sums);
          P::template rescale<S>(values, sums);
        }
        P::template reduce<S>(element, values, sums, sums, kept, 0);
      }
    group_reduce<P, S>(sums, scratch, parity);
    P::template finish<S>(values, sums);
    long_row_stages<P, V, S + 1>(held, arguments, offsets, place, edge, values, scratch, parity, refill);
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
    const RowPlace<P, V> place(offsets);
    const LongRowInputs<P, 1, 1> edge = load_edge<P, V>(arguments, offsets, place);
    typename P::Row values;
    P::load_row(values, arguments, offsets);
    long_row_stages<P, V, 0>(held, arguments, offsets, place, edge, values, scratch, parity, refill);

    if constexpr (P::kStoresTiles) {
      float accumulators[1][1];
      KeptValues<0, 0> kept;
      const auto store = [&](const auto& inputs, int first, int group) {
#pragma unroll
        for (int slot = 0; slot < inputs.kGroup; ++slot)
          if (place.has(first + slot)) {
            const int column = place.column(first + slot);
            typename P::template Stores<V> stores;
            emit_vector<P, V>(inputs.tiles, slot, inputs.columns, slot, column, values, stores, accumulators, 0, kept,
                              0);
            P::store_tiles(stores, arguments, offsets, column);
          }
        refill(group);
      };
      walk_row<P, V, P::kStageCount == 1>(held, arguments, offsets, place, store);
      if constexpr (Shape::kHasEdges)
        if (place.has_edge()) {
          typename P::template Stores<1> stores;
          emit_vector<P, 1>(edge.tiles, 0, edge.columns, 0, place.edge(), values, stores, accumulators, 0, kept, 0);
          P::store_tiles(stores, arguments, offsets, place.edge());
        }
    }
    if (thread_index() == 0)
      P::store_row(values, arguments, offsets);
  }
}
