// Cumulative sums: a row's group walks over it in their direction, a step at a time. Each thread adds up its vector, a
// butterfly tells it what the threads before it have, and what the step adds up to is carried to the next one. All of it
// in a fixed order, and of what a sum has not, nothing is in it: a NaN reaches what lies behind it alone.

DEVICE float added(float a, float b) { return a + b; }
DEVICE i64 added(i64 a, i64 b) { return i64(u64(a) + u64(b)); } // wraps

// Of what each thread has of a step the sums of all columns before that, of earlier steps, too, which are `carry` and
// grow by the step. Every thread of the block comes here.
template <class P, class T, int Count>
DEVICE void group_cumsum(T (&own)[Count], T (&carry)[Count], float* scratch, int& parity) {
  constexpr int kLanes = P::kThreadsPerRow < 32 ? P::kThreadsPerRow : 32;
  T before[Count] = {};
#pragma unroll
  for (int mask = 1; mask < kLanes; mask *= 2)
#pragma unroll
    for (int n = 0; n < Count; ++n) {
      const T other = shuffle_xor(own[n], mask);
      if (((thread_index() & mask) != 0) != P::kBackward)
        before[n] = added(other, before[n]);
      own[n] = added(own[n], other);
    }
  if constexpr (P::kThreadsPerRow > 32) {
    constexpr int kWarps = P::kThreads / 32, kPerRow = P::kThreadsPerRow / 32;
    T* area = reinterpret_cast<T*>(scratch + parity * (P::kMostReductions * kWarps));
    parity ^= 1;
    const int warp = thread_index() / 32, first = warp / kPerRow * kPerRow;
    if (thread_index() % 32 == 0)
#pragma unroll
      for (int n = 0; n < Count; ++n)
        area[n * kWarps + warp] = own[n];
    barrier();
#pragma unroll
    for (int n = 0; n < Count; ++n) {
      T sum = 0;
#pragma unroll
      for (int turn = 0; turn < kPerRow; ++turn) {
        const int i = first + (P::kBackward ? kPerRow - 1 - turn : turn);
        if (i == warp)
          before[n] = added(sum, before[n]);
        sum = added(sum, area[n * kWarps + i]);
      }
      own[n] = sum;
    }
  }
#pragma unroll
  for (int n = 0; n < Count; ++n) {
    const T total = own[n];
    own[n] = added(carry[n], before[n]);
    carry[n] = added(carry[n], total);
  }
}

// A walk that has the elements of a step with their sums.
template <class P, int V, int S> struct RowWalk<P, V, S, true> {
  static constexpr int kReals = P::template kRealSums<S>, kWholes = P::template kWholeSums<S>;
  typename P::Element elements[V];
  float reals[kReals > 0 ? kReals : 1] = {}; // of the steps before
  i64 wholes[kWholes > 0 ? kWholes : 1] = {};

  static constexpr int step(int turn) { return P::kBackward ? RowShape<P, V>::kSteps - 1 - turn : turn; }

  // Every thread comes here in every step; `has`: with columns, which are `given`.
  template <class Given, class Kept>
  DEVICE void enter(bool has, const Given& given, const typename P::Row& values, Kept& kept, int keptSlot,
                    float* scratch, int& parity) {
    float ownReals[kReals > 0 ? kReals : 1] = {};
    i64 ownWholes[kWholes > 0 ? kWholes : 1] = {};
    if (has)
#pragma unroll
      for (int turn = 0; turn < V; ++turn) {
        const int i = P::kBackward ? V - 1 - turn : turn;
        elements[i] = given(i);
        P::template cumulate<S>(elements[i], values, ownReals, ownWholes, kept, keptSlot + i);
      }
    if constexpr (kReals > 0)
      group_cumsum<P>(ownReals, reals, scratch, parity);
    if constexpr (kWholes > 0)
      group_cumsum<P>(ownWholes, wholes, scratch, parity);
    if (has)
#pragma unroll
      for (int i = 0; i < V; ++i)
        P::template offset<S>(elements[i], ownReals, ownWholes);
  }
  template <class Given> DEVICE typename P::Element element(const Given&, int i) const { return elements[i]; }
};
