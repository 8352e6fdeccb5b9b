//===--- graph ---===//
/*
cermet.kernel.1
target sm_90
numerics traced
schedule flat threads=128 threads_per_row=128 vector=8 vectors_per_thread=1 stages=0 blocks_per_sm=0 resident_blocks=1 shared_bytes=0
program glu 14336
in gate tile bf16
in up tile bf16
out result0 tile bf16
%0 = load gate : bf16 element 0
%1 = load up : bf16 element 0
%2 = silu %0 : bf16 element 0
%3 = mul %2 %1 : bf16 element 0
%4 = store %3 result0 : bf16 element 0
*/
struct Program {
  static constexpr int kColumns = 14336;
  static constexpr int kThreads = 128, kThreadsPerRow = 128, kStages = 0;
  template <int V> static constexpr bool kCached = V == 8 ? false : false;
  template <int V> static constexpr int kHeld = V == 8 ? 0 : 0;
  static constexpr int kStageCount = 1, kMostReductions = 1, kAccumulators = 0;
  static constexpr bool kCompensated = false, kStoresTiles = true;
  static constexpr int kKept = 0;
  static constexpr bool kPairs = true, kAhead = false, kCumsums = false;
  typedef RowArguments<3> Arguments;
  template <int V, int N> struct Tiles {
    static constexpr int kVector = V;
    Vector<bf16, V> gate_0[N];
    Vector<bf16, V> up_1[N];
  };
  template <int V, int N> struct Columns {
    static constexpr int kVector = V;
  };
  template <int V> struct Stores {
    Vector<bf16, V> result0_2;
  };
  struct Element {
    float gate_0;
    float up_1;
  };
  struct ElementPair {
    Pair<bf16> gate_0;
    Pair<bf16> up_1;
  };
  struct Row {
  };
  struct Offsets {
    i64 gate_0;
    i64 up_1;
    i64 result0_2;
  };
  template <class Index> static DEVICE Offsets offsets(const Arguments& arguments, const Index& index) {
    return {row_offset(arguments.operand[0], index), row_offset(arguments.operand[1], index), row_offset(arguments.operand[2], index)};
  }
  template <int V> struct TileBytes {
    static constexpr int kAll = V * 2 + V * 2, kSmallest = (V * 2 < (V * 2 < 16 ? V * 2 : 16) ? V * 2 : (V * 2 < 16 ? V * 2 : 16));
  };
  template <int V, int N>
  static DEVICE void load_tiles(Tiles<V, N>& tiles, int slot, const Arguments& arguments, const Offsets& offsets, int column) {
    tiles.gate_0[slot] = load_vector<bf16, V>(arguments.operand[0].base, offsets.gate_0 + column);
    tiles.up_1[slot] = load_vector<bf16, V>(arguments.operand[1].base, offsets.up_1 + column);
  }
  template <int V, int N>
  static DEVICE void load_columns(Columns<V, N>& columns, int slot, const Arguments& arguments, int column) {
  }
  template <int V>
  static DEVICE void copy_tiles(char* shared, const Arguments& arguments, const Offsets& offsets, int column) {
    copy_async<V * 2>(shared + (0) * kThreads + thread_index() * (V * 2), arguments.operand[0].base + (offsets.gate_0 + column) * 2);
    copy_async<V * 2>(shared + (0 + V * 2) * kThreads + thread_index() * (V * 2), arguments.operand[1].base + (offsets.up_1 + column) * 2);
  }
  template <int V, int N> static DEVICE void take_tiles(Tiles<V, N>& tiles, int slot, const char* shared) {
    move_vector<bf16, V>(reinterpret_cast<char*>(&tiles.gate_0[slot]), shared + (0) * kThreads + thread_index() * (V * 2));
    move_vector<bf16, V>(reinterpret_cast<char*>(&tiles.up_1[slot]), shared + (0 + V * 2) * kThreads + thread_index() * (V * 2));
  }
  template <int V, int N> static DEVICE void keep_tiles(Tiles<V, N>& tiles) {
#pragma unroll
    for (int slot = 0; slot < N; ++slot) {
      keep_packed(tiles.gate_0[slot]);
      keep_packed(tiles.up_1[slot]);
    }
  }
  template <class Tiles, class Columns>
  static DEVICE Element element(const Tiles& tiles, int tileSlot, const Columns& columns, int columnSlot, int column, int i) {
    return {float_at(tiles.gate_0[tileSlot], i), float_at(tiles.up_1[tileSlot], i)};
  }
  template <class Tiles, class Columns>
  static DEVICE ElementPair pair(const Tiles& tiles, int tileSlot, const Columns& columns, int columnSlot, int column, int i) {
    return {pair_at(tiles.gate_0[tileSlot], i), pair_at(tiles.up_1[tileSlot], i)};
  }
  static DEVICE void load_row(Row& row, const Arguments& arguments, const Offsets& offsets) {
  }
  template <class Stores, int Sums, int Slots, class Kept>
  static DEVICE void emit(const Element& element, const Row& row, Stores& stores, float (&accumulators)[Sums][Slots],
                          int i, int slot, const Kept& kept, int keptSlot) {
    const float v0 = element.gate_0;
    const float v1 = element.up_1;
    const float v2 = round_to<bf16>(fast_silu(v0));
    const float v3 = v2 * v1;
    stores.result0_2.at[i] = from_float<bf16>(v3);
  }
  template <class Stores, int Sums, int Slots, class Kept>
  static DEVICE void emit_pair(const ElementPair& element, const Row& row, Stores& stores,
                               float (&accumulators)[Sums][Slots], int i, int slot, const Kept& kept, int keptSlot) {
    const Pair<bf16> v0 = element.gate_0;
    const Pair<bf16> v1 = element.up_1;
    const Pair<bf16> v2 = pair_of<bf16>(fast_silu(low(v0)), fast_silu(high(v0)));
    const Pair<bf16> v3 = v2 * v1;
    set_pair(stores.result0_2, i, v3);
  }
  template <int V>
  static DEVICE void store_tiles(const Stores<V>& stores, const Arguments& arguments, const Offsets& offsets,
                                 int column) {
    store_vector<bf16, V>(arguments.operand[2].base, offsets.result0_2 + column, stores.result0_2);
  }
  static DEVICE void store_row(const Row& row, const Arguments& arguments, const Offsets& offsets) {
  }
  static constexpr bool kScales = false;
};

KERNEL(128, 1, glu_v8, Program::Arguments, flat_kernel<Program, 8>)
KERNEL(128, 1, glu_v1, Program::Arguments, flat_kernel<Program, 1>)

//===--- forward ---===//
/*
cermet.kernel.1
target sm_90
numerics traced
schedule flat threads=128 threads_per_row=128 vector=8 vectors_per_thread=1 stages=0 blocks_per_sm=0 resident_blocks=1 shared_bytes=0
program glu_forward 14336
in gate tile bf16
in up tile bf16
out result0 tile bf16
%0 = load gate : bf16 element 0
%1 = load up : bf16 element 0
%2 = silu %0 : bf16 element 0
%3 = mul %2 %1 : bf16 element 0
%4 = store %3 result0 : bf16 element 0
*/
struct Program {
  static constexpr int kColumns = 14336;
  static constexpr int kThreads = 128, kThreadsPerRow = 128, kStages = 0;
  template <int V> static constexpr bool kCached = V == 8 ? false : false;
  template <int V> static constexpr int kHeld = V == 8 ? 0 : 0;
  static constexpr int kStageCount = 1, kMostReductions = 1, kAccumulators = 0;
  static constexpr bool kCompensated = false, kStoresTiles = true;
  static constexpr int kKept = 0;
  static constexpr bool kPairs = true, kAhead = false, kCumsums = false;
  typedef RowArguments<3> Arguments;
  template <int V, int N> struct Tiles {
    static constexpr int kVector = V;
    Vector<bf16, V> gate_0[N];
    Vector<bf16, V> up_1[N];
  };
  template <int V, int N> struct Columns {
    static constexpr int kVector = V;
  };
  template <int V> struct Stores {
    Vector<bf16, V> result0_2;
  };
  struct Element {
    float gate_0;
    float up_1;
  };
  struct ElementPair {
    Pair<bf16> gate_0;
    Pair<bf16> up_1;
  };
  struct Row {
  };
  struct Offsets {
    i64 gate_0;
    i64 up_1;
    i64 result0_2;
  };
  template <class Index> static DEVICE Offsets offsets(const Arguments& arguments, const Index& index) {
    return {row_offset(arguments.operand[0], index), row_offset(arguments.operand[1], index), row_offset(arguments.operand[2], index)};
  }
  template <int V> struct TileBytes {
    static constexpr int kAll = V * 2 + V * 2, kSmallest = (V * 2 < (V * 2 < 16 ? V * 2 : 16) ? V * 2 : (V * 2 < 16 ? V * 2 : 16));
  };
  template <int V, int N>
  static DEVICE void load_tiles(Tiles<V, N>& tiles, int slot, const Arguments& arguments, const Offsets& offsets, int column) {
    tiles.gate_0[slot] = load_vector<bf16, V>(arguments.operand[0].base, offsets.gate_0 + column);
    tiles.up_1[slot] = load_vector<bf16, V>(arguments.operand[1].base, offsets.up_1 + column);
  }
  template <int V, int N>
  static DEVICE void load_columns(Columns<V, N>& columns, int slot, const Arguments& arguments, int column) {
  }
  template <int V>
  static DEVICE void copy_tiles(char* shared, const Arguments& arguments, const Offsets& offsets, int column) {
    copy_async<V * 2>(shared + (0) * kThreads + thread_index() * (V * 2), arguments.operand[0].base + (offsets.gate_0 + column) * 2);
    copy_async<V * 2>(shared + (0 + V * 2) * kThreads + thread_index() * (V * 2), arguments.operand[1].base + (offsets.up_1 + column) * 2);
  }
  template <int V, int N> static DEVICE void take_tiles(Tiles<V, N>& tiles, int slot, const char* shared) {
    move_vector<bf16, V>(reinterpret_cast<char*>(&tiles.gate_0[slot]), shared + (0) * kThreads + thread_index() * (V * 2));
    move_vector<bf16, V>(reinterpret_cast<char*>(&tiles.up_1[slot]), shared + (0 + V * 2) * kThreads + thread_index() * (V * 2));
  }
  template <int V, int N> static DEVICE void keep_tiles(Tiles<V, N>& tiles) {
#pragma unroll
    for (int slot = 0; slot < N; ++slot) {
      keep_packed(tiles.gate_0[slot]);
      keep_packed(tiles.up_1[slot]);
    }
  }
  template <class Tiles, class Columns>
  static DEVICE Element element(const Tiles& tiles, int tileSlot, const Columns& columns, int columnSlot, int column, int i) {
    return {float_at(tiles.gate_0[tileSlot], i), float_at(tiles.up_1[tileSlot], i)};
  }
  template <class Tiles, class Columns>
  static DEVICE ElementPair pair(const Tiles& tiles, int tileSlot, const Columns& columns, int columnSlot, int column, int i) {
    return {pair_at(tiles.gate_0[tileSlot], i), pair_at(tiles.up_1[tileSlot], i)};
  }
  static DEVICE void load_row(Row& row, const Arguments& arguments, const Offsets& offsets) {
  }
  template <class Stores, int Sums, int Slots, class Kept>
  static DEVICE void emit(const Element& element, const Row& row, Stores& stores, float (&accumulators)[Sums][Slots],
                          int i, int slot, const Kept& kept, int keptSlot) {
    const float v0 = element.gate_0;
    const float v1 = element.up_1;
    const float v2 = round_to<bf16>(fast_silu(v0));
    const float v3 = v2 * v1;
    stores.result0_2.at[i] = from_float<bf16>(v3);
  }
  template <class Stores, int Sums, int Slots, class Kept>
  static DEVICE void emit_pair(const ElementPair& element, const Row& row, Stores& stores,
                               float (&accumulators)[Sums][Slots], int i, int slot, const Kept& kept, int keptSlot) {
    const Pair<bf16> v0 = element.gate_0;
    const Pair<bf16> v1 = element.up_1;
    const Pair<bf16> v2 = pair_of<bf16>(fast_silu(low(v0)), fast_silu(high(v0)));
    const Pair<bf16> v3 = v2 * v1;
    set_pair(stores.result0_2, i, v3);
  }
  template <int V>
  static DEVICE void store_tiles(const Stores<V>& stores, const Arguments& arguments, const Offsets& offsets,
                                 int column) {
    store_vector<bf16, V>(arguments.operand[2].base, offsets.result0_2 + column, stores.result0_2);
  }
  static DEVICE void store_row(const Row& row, const Arguments& arguments, const Offsets& offsets) {
  }
  static constexpr bool kScales = false;
};

KERNEL(128, 1, glu_forward_v8, Program::Arguments, flat_kernel<Program, 8>)
KERNEL(128, 1, glu_forward_v1, Program::Arguments, flat_kernel<Program, 1>)

//===--- backward ---===//
/*
cermet.kernel.1
target sm_90
numerics traced
schedule flat threads=128 threads_per_row=128 vector=8 vectors_per_thread=1 stages=0 blocks_per_sm=0 resident_blocks=1 shared_bytes=0
program glu_backward 14336
in gate tile bf16
in up tile bf16
in grad_0 tile bf16
out result0 tile bf16
out result1 tile bf16
%0 = load gate : bf16 element 0
%1 = load up : bf16 element 0
%2 = load grad_0 : bf16 element 0
%3 = silu %0 : bf16 element 0
%4 = mul %2 %1 : f32 element 0
%5 = mul %2 %3 : f32 element 0
%6 = sigmoid %0 : f32 element 0
%7 = constant 1 : f32 uniform 0
%8 = sub %7 %6 : f32 element 0
%9 = mul %0 %8 : f32 element 0
%10 = add %7 %9 : f32 element 0
%11 = mul %6 %10 : f32 element 0
%12 = mul %4 %11 : f32 element 0
%13 = cast %12 : bf16 element 0
%14 = cast %5 : bf16 element 0
%15 = store %13 result0 : bf16 element 0
%16 = store %14 result1 : bf16 element 0
*/
struct Program {
  static constexpr int kColumns = 14336;
  static constexpr int kThreads = 128, kThreadsPerRow = 128, kStages = 0;
  template <int V> static constexpr bool kCached = V == 8 ? false : false;
  template <int V> static constexpr int kHeld = V == 8 ? 0 : 0;
  static constexpr int kStageCount = 1, kMostReductions = 1, kAccumulators = 0;
  static constexpr bool kCompensated = false, kStoresTiles = true;
  static constexpr int kKept = 0;
  static constexpr bool kPairs = false, kAhead = false, kCumsums = false;
  typedef RowArguments<5> Arguments;
  template <int V, int N> struct Tiles {
    static constexpr int kVector = V;
    Vector<bf16, V> gate_0[N];
    Vector<bf16, V> up_1[N];
    Vector<bf16, V> grad_0_2[N];
  };
  template <int V, int N> struct Columns {
    static constexpr int kVector = V;
  };
  template <int V> struct Stores {
    float result0_3[V];
    float result1_4[V];
  };
  struct Element {
    float gate_0;
    float up_1;
    float grad_0_2;
  };
  struct Row {
  };
  struct Offsets {
    i64 gate_0;
    i64 up_1;
    i64 grad_0_2;
    i64 result0_3;
    i64 result1_4;
  };
  template <class Index> static DEVICE Offsets offsets(const Arguments& arguments, const Index& index) {
    return {row_offset(arguments.operand[0], index), row_offset(arguments.operand[1], index), row_offset(arguments.operand[2], index), row_offset(arguments.operand[3], index), row_offset(arguments.operand[4], index)};
  }
  template <int V> struct TileBytes {
    static constexpr int kAll = V * 2 + V * 2 + V * 2, kSmallest = (V * 2 < (V * 2 < (V * 2 < 16 ? V * 2 : 16) ? V * 2 : (V * 2 < 16 ? V * 2 : 16)) ? V * 2 : (V * 2 < (V * 2 < 16 ? V * 2 : 16) ? V * 2 : (V * 2 < 16 ? V * 2 : 16)));
  };
  template <int V, int N>
  static DEVICE void load_tiles(Tiles<V, N>& tiles, int slot, const Arguments& arguments, const Offsets& offsets, int column) {
    tiles.gate_0[slot] = load_vector<bf16, V>(arguments.operand[0].base, offsets.gate_0 + column);
    tiles.up_1[slot] = load_vector<bf16, V>(arguments.operand[1].base, offsets.up_1 + column);
    tiles.grad_0_2[slot] = load_vector<bf16, V>(arguments.operand[2].base, offsets.grad_0_2 + column);
  }
  template <int V, int N>
  static DEVICE void load_columns(Columns<V, N>& columns, int slot, const Arguments& arguments, int column) {
  }
  template <int V>
  static DEVICE void copy_tiles(char* shared, const Arguments& arguments, const Offsets& offsets, int column) {
    copy_async<V * 2>(shared + (0) * kThreads + thread_index() * (V * 2), arguments.operand[0].base + (offsets.gate_0 + column) * 2);
    copy_async<V * 2>(shared + (0 + V * 2) * kThreads + thread_index() * (V * 2), arguments.operand[1].base + (offsets.up_1 + column) * 2);
    copy_async<V * 2>(shared + (0 + V * 2 + V * 2) * kThreads + thread_index() * (V * 2), arguments.operand[2].base + (offsets.grad_0_2 + column) * 2);
  }
  template <int V, int N> static DEVICE void take_tiles(Tiles<V, N>& tiles, int slot, const char* shared) {
    move_vector<bf16, V>(reinterpret_cast<char*>(&tiles.gate_0[slot]), shared + (0) * kThreads + thread_index() * (V * 2));
    move_vector<bf16, V>(reinterpret_cast<char*>(&tiles.up_1[slot]), shared + (0 + V * 2) * kThreads + thread_index() * (V * 2));
    move_vector<bf16, V>(reinterpret_cast<char*>(&tiles.grad_0_2[slot]), shared + (0 + V * 2 + V * 2) * kThreads + thread_index() * (V * 2));
  }
  template <int V, int N> static DEVICE void keep_tiles(Tiles<V, N>& tiles) {
#pragma unroll
    for (int slot = 0; slot < N; ++slot) {
      keep_packed(tiles.gate_0[slot]);
      keep_packed(tiles.up_1[slot]);
      keep_packed(tiles.grad_0_2[slot]);
    }
  }
  template <class Tiles, class Columns>
  static DEVICE Element element(const Tiles& tiles, int tileSlot, const Columns& columns, int columnSlot, int column, int i) {
    return {float_at(tiles.gate_0[tileSlot], i), float_at(tiles.up_1[tileSlot], i), float_at(tiles.grad_0_2[tileSlot], i)};
  }
  static DEVICE void load_row(Row& row, const Arguments& arguments, const Offsets& offsets) {
  }
  template <class Stores, int Sums, int Slots, class Kept>
  static DEVICE void emit(const Element& element, const Row& row, Stores& stores, float (&accumulators)[Sums][Slots],
                          int i, int slot, const Kept& kept, int keptSlot) {
    const float v0 = element.gate_0;
    const float v1 = element.up_1;
    const float v2 = element.grad_0_2;
    const float v3 = round_to<bf16>(fast_silu(v0));
    const float v4 = v2 * v1;
    const float v5 = v2 * v3;
    const float v6 = fast_sigmoid(v0);
    const float v8 = 0x1p+0f - v6;
    const float v9 = v0 * v8;
    const float v10 = 0x1p+0f + v9;
    const float v11 = v6 * v10;
    const float v12 = v4 * v11;
    const float v13 = v12;
    const float v14 = v5;
    stores.result0_3[i] = v13;
    stores.result1_4[i] = v14;
  }
  template <int V>
  static DEVICE void store_tiles(const Stores<V>& stores, const Arguments& arguments, const Offsets& offsets,
                                 int column) {
    store_vector<bf16, V>(arguments.operand[3].base, offsets.result0_3 + column, vector_from_floats<bf16>(stores.result0_3));
    store_vector<bf16, V>(arguments.operand[4].base, offsets.result1_4 + column, vector_from_floats<bf16>(stores.result1_4));
  }
  static DEVICE void store_row(const Row& row, const Arguments& arguments, const Offsets& offsets) {
  }
  static constexpr bool kScales = false;
};

KERNEL(128, 1, glu_backward_v8, Program::Arguments, flat_kernel<Program, 8>)
KERNEL(128, 1, glu_backward_v1, Program::Arguments, flat_kernel<Program, 1>)

