//===--- graph ---===//
/*
cermet.kernel.1
target sm_90
numerics traced
schedule row threads=128 threads_per_row=128 vector=8 vectors_per_thread=4 stages=0 blocks_per_sm=0 resident_blocks=6 shared_bytes=32
program rms_norm 4096
in x tile bf16
in weight column bf16
out result0 tile bf16
%0 = load x : bf16 element 0
%1 = load weight : bf16 column 0
%2 = mul %0 %0 : f32 element 0
%3 = reduce_sum %2 : f32 row 0
%4 = constant 4096 : f32 uniform 0
%5 = div %3 %4 : f32 row 1
%6 = constant 9.999999974752427e-07 : f32 uniform 0
%7 = add %5 %6 : f32 row 1
%8 = rsqrt %7 : f32 row 1
%9 = mul %0 %8 : f32 element 1
%10 = cast %9 : bf16 element 1
%11 = mul %1 %10 : bf16 element 1
%12 = store %11 result0 : bf16 element 1
*/
struct Program {
  static constexpr int kColumns = 4096;
  static constexpr int kThreads = 128, kThreadsPerRow = 128, kStages = 0;
  template <int V> static constexpr bool kCached = V == 8 ? true : false;
  template <int V> static constexpr int kHeld = V == 8 ? 0 : 0;
  static constexpr int kStageCount = 2, kMostReductions = 1, kAccumulators = 0;
  static constexpr bool kCompensated = false, kStoresTiles = true;
  static constexpr int kKept = 0;
  static constexpr bool kPairs = true, kAhead = false, kCumsums = false;
  template <int S, class = void> struct Reductions;
  template <class Any> struct Reductions<0, Any> {
    static constexpr int kCount = 1;
    static constexpr bool kRuns = false;
  };
  typedef RowArguments<3> Arguments;
  template <int V, int N> struct Tiles {
    static constexpr int kVector = V;
    Vector<bf16, V> x_0[N];
  };
  template <int V, int N> struct Columns {
    static constexpr int kVector = V;
    Vector<bf16, V> weight_1[N];
  };
  template <int V> struct Stores {
    Vector<bf16, V> result0_2;
  };
  struct Element {
    float x_0;
    float weight_1;
  };
  struct ElementPair {
    Pair<bf16> x_0;
    Pair<bf16> weight_1;
  };
  struct Row {
    float v3;
    float v5;
    float v7;
    float v8;
  };
  struct Offsets {
    i64 x_0;
    i64 result0_2;
  };
  template <class Index> static DEVICE Offsets offsets(const Arguments& arguments, const Index& index) {
    return {row_offset(arguments.operand[0], index), row_offset(arguments.operand[2], index)};
  }
  template <int V> struct TileBytes {
    static constexpr int kAll = V * 2, kSmallest = (V * 2 < 16 ? V * 2 : 16);
  };
  template <int V, int N>
  static DEVICE void load_tiles(Tiles<V, N>& tiles, int slot, const Arguments& arguments, const Offsets& offsets, int column) {
    tiles.x_0[slot] = load_vector<bf16, V>(arguments.operand[0].base, offsets.x_0 + column);
  }
  template <int V, int N>
  static DEVICE void load_columns(Columns<V, N>& columns, int slot, const Arguments& arguments, int column) {
    columns.weight_1[slot] = load_vector<bf16, V>(arguments.operand[1].base, column);
  }
  template <int V>
  static DEVICE void copy_tiles(char* shared, const Arguments& arguments, const Offsets& offsets, int column) {
    copy_async<V * 2>(shared + (0) * kThreads + thread_index() * (V * 2), arguments.operand[0].base + (offsets.x_0 + column) * 2);
  }
  template <int V, int N> static DEVICE void take_tiles(Tiles<V, N>& tiles, int slot, const char* shared) {
    move_vector<bf16, V>(reinterpret_cast<char*>(&tiles.x_0[slot]), shared + (0) * kThreads + thread_index() * (V * 2));
  }
  template <int V, int N> static DEVICE void keep_tiles(Tiles<V, N>& tiles) {
#pragma unroll
    for (int slot = 0; slot < N; ++slot) {
      keep_packed(tiles.x_0[slot]);
    }
  }
  template <class Tiles, class Columns>
  static DEVICE Element element(const Tiles& tiles, int tileSlot, const Columns& columns, int columnSlot, int column, int i) {
    return {float_at(tiles.x_0[tileSlot], i), float_at(columns.weight_1[columnSlot], i)};
  }
  template <class Tiles, class Columns>
  static DEVICE ElementPair pair(const Tiles& tiles, int tileSlot, const Columns& columns, int columnSlot, int column, int i) {
    return {pair_at(tiles.x_0[tileSlot], i), pair_at(columns.weight_1[columnSlot], i)};
  }
  static DEVICE void load_row(Row& row, const Arguments& arguments, const Offsets& offsets) {
  }
  template <int S, int Count> static DEVICE void begin(Row& row, float (&sums)[Count]) {
  }
  template <int S, int Count, class Kept>
  static DEVICE void reduce(const Element& element, const Row& row, float (&sums)[Count],
                            float (&added)[Count], Kept& kept, int keptSlot) {
    if constexpr (S == 0) {
      const float v0 = element.x_0;
      const float v2 = v0 * v0;
      added[0] += v2;
    }
  }
  template <int S, int Count>
  static DEVICE void add(float (&sums)[Count], const float (&added)[Count]) {
    if constexpr (S == 0) {
      sums[0] += added[0];
    }
  }
  template <int S, int Count> static DEVICE void combine(float (&a)[Count], const float (&b)[Count]) {
    if constexpr (S == 0) {
      a[0] += b[0];
    }
  }
  template <int S, int Count> static DEVICE void finish(Row& row, const float (&sums)[Count]) {
    if constexpr (S == 0) {
      row.v3 = sums[0];
    row.v5 = exact_divide(row.v3, 0x1p+12f);
    row.v7 = row.v5 + 0x1.0c6f7ap-20f;
    row.v8 = inverse_sqrt(row.v7);
    }
  }
  template <class Stores, int Sums, int Slots, class Kept>
  static DEVICE void emit(const Element& element, const Row& row, Stores& stores, float (&accumulators)[Sums][Slots],
                          int i, int slot, const Kept& kept, int keptSlot) {
    const float v0 = element.x_0;
    const float v1 = element.weight_1;
    const float v9 = v0 * row.v8;
    const float v10 = round_to<bf16>(v9);
    const float v11 = v1 * v10;
    stores.result0_2.at[i] = from_float<bf16>(v11);
  }
  template <class Stores, int Sums, int Slots, class Kept>
  static DEVICE void emit_pair(const ElementPair& element, const Row& row, Stores& stores,
                               float (&accumulators)[Sums][Slots], int i, int slot, const Kept& kept, int keptSlot) {
    const Pair<bf16> v0 = element.x_0;
    const Pair<bf16> v1 = element.weight_1;
    const float v9[2] = {low(v0) * row.v8, high(v0) * row.v8};
    const Pair<bf16> v10 = pair_of<bf16>(v9[0], v9[1]);
    const Pair<bf16> v11 = v1 * v10;
    set_pair(stores.result0_2, i, v11);
  }
  template <int V>
  static DEVICE void store_tiles(const Stores<V>& stores, const Arguments& arguments, const Offsets& offsets,
                                 int column) {
    store_vector<bf16, V>(arguments.operand[2].base, offsets.result0_2 + column, stores.result0_2);
  }
  static DEVICE void store_row(const Row& row, const Arguments& arguments, const Offsets& offsets) {
  }
};

KERNEL(128, 6, rms_norm_v8, Program::Arguments, row_kernel<Program, 8>)
KERNEL(128, 1, rms_norm_v1, Program::Arguments, row_kernel<Program, 1>)

//===--- forward ---===//
/*
cermet.kernel.1
target sm_90
numerics traced
schedule row threads=128 threads_per_row=128 vector=8 vectors_per_thread=4 stages=0 blocks_per_sm=0 resident_blocks=6 shared_bytes=32
program rms_norm_forward 4096
in x tile bf16
in weight column bf16
out result0 tile bf16
out result1 row f32
%0 = load x : bf16 element 0
%1 = load weight : bf16 column 0
%2 = mul %0 %0 : f32 element 0
%3 = reduce_sum %2 : f32 row 0
%4 = constant 4096 : f32 uniform 0
%5 = div %3 %4 : f32 row 1
%6 = constant 9.999999974752427e-07 : f32 uniform 0
%7 = add %5 %6 : f32 row 1
%8 = rsqrt %7 : f32 row 1
%9 = mul %0 %8 : f32 element 1
%10 = cast %9 : bf16 element 1
%11 = mul %1 %10 : bf16 element 1
%12 = store %11 result0 : bf16 element 1
%13 = store %8 result1 : f32 row 1
*/
struct Program {
  static constexpr int kColumns = 4096;
  static constexpr int kThreads = 128, kThreadsPerRow = 128, kStages = 0;
  template <int V> static constexpr bool kCached = V == 8 ? true : false;
  template <int V> static constexpr int kHeld = V == 8 ? 0 : 0;
  static constexpr int kStageCount = 2, kMostReductions = 1, kAccumulators = 0;
  static constexpr bool kCompensated = false, kStoresTiles = true;
  static constexpr int kKept = 0;
  static constexpr bool kPairs = true, kAhead = false, kCumsums = false;
  template <int S, class = void> struct Reductions;
  template <class Any> struct Reductions<0, Any> {
    static constexpr int kCount = 1;
    static constexpr bool kRuns = false;
  };
  typedef RowArguments<4> Arguments;
  template <int V, int N> struct Tiles {
    static constexpr int kVector = V;
    Vector<bf16, V> x_0[N];
  };
  template <int V, int N> struct Columns {
    static constexpr int kVector = V;
    Vector<bf16, V> weight_1[N];
  };
  template <int V> struct Stores {
    Vector<bf16, V> result0_2;
  };
  struct Element {
    float x_0;
    float weight_1;
  };
  struct ElementPair {
    Pair<bf16> x_0;
    Pair<bf16> weight_1;
  };
  struct Row {
    float v3;
    float v5;
    float v7;
    float v8;
  };
  struct Offsets {
    i64 x_0;
    i64 result0_2;
    i64 result1_3;
  };
  template <class Index> static DEVICE Offsets offsets(const Arguments& arguments, const Index& index) {
    return {row_offset(arguments.operand[0], index), row_offset(arguments.operand[2], index), row_offset(arguments.operand[3], index)};
  }
  template <int V> struct TileBytes {
    static constexpr int kAll = V * 2, kSmallest = (V * 2 < 16 ? V * 2 : 16);
  };
  template <int V, int N>
  static DEVICE void load_tiles(Tiles<V, N>& tiles, int slot, const Arguments& arguments, const Offsets& offsets, int column) {
    tiles.x_0[slot] = load_vector<bf16, V>(arguments.operand[0].base, offsets.x_0 + column);
  }
  template <int V, int N>
  static DEVICE void load_columns(Columns<V, N>& columns, int slot, const Arguments& arguments, int column) {
    columns.weight_1[slot] = load_vector<bf16, V>(arguments.operand[1].base, column);
  }
  template <int V>
  static DEVICE void copy_tiles(char* shared, const Arguments& arguments, const Offsets& offsets, int column) {
    copy_async<V * 2>(shared + (0) * kThreads + thread_index() * (V * 2), arguments.operand[0].base + (offsets.x_0 + column) * 2);
  }
  template <int V, int N> static DEVICE void take_tiles(Tiles<V, N>& tiles, int slot, const char* shared) {
    move_vector<bf16, V>(reinterpret_cast<char*>(&tiles.x_0[slot]), shared + (0) * kThreads + thread_index() * (V * 2));
  }
  template <int V, int N> static DEVICE void keep_tiles(Tiles<V, N>& tiles) {
#pragma unroll
    for (int slot = 0; slot < N; ++slot) {
      keep_packed(tiles.x_0[slot]);
    }
  }
  template <class Tiles, class Columns>
  static DEVICE Element element(const Tiles& tiles, int tileSlot, const Columns& columns, int columnSlot, int column, int i) {
    return {float_at(tiles.x_0[tileSlot], i), float_at(columns.weight_1[columnSlot], i)};
  }
  template <class Tiles, class Columns>
  static DEVICE ElementPair pair(const Tiles& tiles, int tileSlot, const Columns& columns, int columnSlot, int column, int i) {
    return {pair_at(tiles.x_0[tileSlot], i), pair_at(columns.weight_1[columnSlot], i)};
  }
  static DEVICE void load_row(Row& row, const Arguments& arguments, const Offsets& offsets) {
  }
  template <int S, int Count> static DEVICE void begin(Row& row, float (&sums)[Count]) {
  }
  template <int S, int Count, class Kept>
  static DEVICE void reduce(const Element& element, const Row& row, float (&sums)[Count],
                            float (&added)[Count], Kept& kept, int keptSlot) {
    if constexpr (S == 0) {
      const float v0 = element.x_0;
      const float v2 = v0 * v0;
      added[0] += v2;
    }
  }
  template <int S, int Count>
  static DEVICE void add(float (&sums)[Count], const float (&added)[Count]) {
    if constexpr (S == 0) {
      sums[0] += added[0];
    }
  }
  template <int S, int Count> static DEVICE void combine(float (&a)[Count], const float (&b)[Count]) {
    if constexpr (S == 0) {
      a[0] += b[0];
    }
  }
  template <int S, int Count> static DEVICE void finish(Row& row, const float (&sums)[Count]) {
    if constexpr (S == 0) {
      row.v3 = sums[0];
    row.v5 = exact_divide(row.v3, 0x1p+12f);
    row.v7 = row.v5 + 0x1.0c6f7ap-20f;
    row.v8 = inverse_sqrt(row.v7);
    }
  }
  template <class Stores, int Sums, int Slots, class Kept>
  static DEVICE void emit(const Element& element, const Row& row, Stores& stores, float (&accumulators)[Sums][Slots],
                          int i, int slot, const Kept& kept, int keptSlot) {
    const float v0 = element.x_0;
    const float v1 = element.weight_1;
    const float v9 = v0 * row.v8;
    const float v10 = round_to<bf16>(v9);
    const float v11 = v1 * v10;
    stores.result0_2.at[i] = from_float<bf16>(v11);
  }
  template <class Stores, int Sums, int Slots, class Kept>
  static DEVICE void emit_pair(const ElementPair& element, const Row& row, Stores& stores,
                               float (&accumulators)[Sums][Slots], int i, int slot, const Kept& kept, int keptSlot) {
    const Pair<bf16> v0 = element.x_0;
    const Pair<bf16> v1 = element.weight_1;
    const float v9[2] = {low(v0) * row.v8, high(v0) * row.v8};
    const Pair<bf16> v10 = pair_of<bf16>(v9[0], v9[1]);
    const Pair<bf16> v11 = v1 * v10;
    set_pair(stores.result0_2, i, v11);
  }
  template <int V>
  static DEVICE void store_tiles(const Stores<V>& stores, const Arguments& arguments, const Offsets& offsets,
                                 int column) {
    store_vector<bf16, V>(arguments.operand[2].base, offsets.result0_2 + column, stores.result0_2);
  }
  static DEVICE void store_row(const Row& row, const Arguments& arguments, const Offsets& offsets) {
    {
      store_vector<float, 1>(arguments.operand[3].base, offsets.result1_3, {from_float<float>(row.v8)});
    }
  }
};

KERNEL(128, 6, rms_norm_forward_v8, Program::Arguments, row_kernel<Program, 8>)
KERNEL(128, 1, rms_norm_forward_v1, Program::Arguments, row_kernel<Program, 1>)

//===--- backward ---===//
/*
cermet.kernel.1
target sm_90
numerics traced
schedule row threads=256 threads_per_row=256 vector=8 vectors_per_thread=2 stages=2 blocks_per_sm=2 resident_blocks=2 shared_bytes=32832
program rms_norm_backward 4096
in x tile bf16
in weight column bf16
in saved0 row f32
in grad_0 tile bf16
out result0 tile bf16
out result1 column bf16
%0 = load x : bf16 element 0
%1 = load weight : bf16 column 0
%2 = load saved0 : f32 row 0
%3 = load grad_0 : bf16 element 0
%4 = constant 4096 : f32 uniform 0
%5 = mul %0 %2 : f32 element 0
%6 = cast %5 : bf16 element 0
%7 = mul %3 %6 : f32 element 0
%8 = mul %3 %1 : f32 element 0
%9 = mul %8 %2 : f32 element 0
%10 = mul %8 %0 : f32 element 0
%11 = reduce_sum %10 : f32 row 0
%12 = mul %2 %2 : f32 row 0
%13 = mul %2 %12 : f32 row 0
%14 = constant -0.5 : f32 uniform 0
%15 = mul %14 %13 : f32 row 0
%16 = mul %11 %15 : f32 row 1
%17 = div %16 %4 : f32 row 1
%18 = constant 2 : f32 uniform 0
%19 = mul %18 %17 : f32 row 1
%20 = mul %19 %0 : f32 element 1
%21 = add %9 %20 : f32 element 1
%22 = cast %21 : bf16 element 1
%23 = store %22 result0 : bf16 element 1
%24 = accumulate_rows %7 result1 : bf16 column 0
*/
struct Program {
  static constexpr int kColumns = 4096;
  static constexpr int kThreads = 256, kThreadsPerRow = 256, kStages = 2;
  template <int V> static constexpr bool kCached = V == 8 ? true : false;
  template <int V> static constexpr int kHeld = V == 8 ? 0 : 0;
  static constexpr int kStageCount = 2, kMostReductions = 1, kAccumulators = 1;
  static constexpr bool kCompensated = false, kStoresTiles = true;
  static constexpr int kKept = 0;
  static constexpr bool kPairs = false, kAhead = false, kCumsums = false;
  template <int S, class = void> struct Reductions;
  template <class Any> struct Reductions<0, Any> {
    static constexpr int kCount = 1;
    static constexpr bool kRuns = false;
  };
  typedef RowArguments<6> Arguments;
  template <int V, int N> struct Tiles {
    static constexpr int kVector = V;
    Vector<bf16, V> x_0[N];
    Vector<bf16, V> grad_0_3[N];
  };
  template <int V, int N> struct Columns {
    static constexpr int kVector = V;
    Vector<bf16, V> weight_1[N];
  };
  template <int V> struct Stores {
    float result0_4[V];
  };
  struct Element {
    float x_0;
    float grad_0_3;
    float weight_1;
  };
  struct Row {
    float v2;
    float v11;
    float v12;
    float v13;
    float v15;
    float v16;
    float v17;
    float v19;
  };
  struct Offsets {
    i64 x_0;
    i64 saved0_2;
    i64 grad_0_3;
    i64 result0_4;
  };
  template <class Index> static DEVICE Offsets offsets(const Arguments& arguments, const Index& index) {
    return {row_offset(arguments.operand[0], index), row_offset(arguments.operand[2], index), row_offset(arguments.operand[3], index), row_offset(arguments.operand[4], index)};
  }
  template <int V> struct TileBytes {
    static constexpr int kAll = V * 2 + V * 2, kSmallest = (V * 2 < (V * 2 < 16 ? V * 2 : 16) ? V * 2 : (V * 2 < 16 ? V * 2 : 16));
  };
  template <int V, int N>
  static DEVICE void load_tiles(Tiles<V, N>& tiles, int slot, const Arguments& arguments, const Offsets& offsets, int column) {
    tiles.x_0[slot] = load_vector<bf16, V>(arguments.operand[0].base, offsets.x_0 + column);
    tiles.grad_0_3[slot] = load_vector<bf16, V>(arguments.operand[3].base, offsets.grad_0_3 + column);
  }
  template <int V, int N>
  static DEVICE void load_columns(Columns<V, N>& columns, int slot, const Arguments& arguments, int column) {
    columns.weight_1[slot] = load_vector<bf16, V>(arguments.operand[1].base, column);
  }
  template <int V>
  static DEVICE void copy_tiles(char* shared, const Arguments& arguments, const Offsets& offsets, int column) {
    copy_async<V * 2>(shared + (0) * kThreads + thread_index() * (V * 2), arguments.operand[0].base + (offsets.x_0 + column) * 2);
    copy_async<V * 2>(shared + (0 + V * 2) * kThreads + thread_index() * (V * 2), arguments.operand[3].base + (offsets.grad_0_3 + column) * 2);
  }
  template <int V, int N> static DEVICE void take_tiles(Tiles<V, N>& tiles, int slot, const char* shared) {
    move_vector<bf16, V>(reinterpret_cast<char*>(&tiles.x_0[slot]), shared + (0) * kThreads + thread_index() * (V * 2));
    move_vector<bf16, V>(reinterpret_cast<char*>(&tiles.grad_0_3[slot]), shared + (0 + V * 2) * kThreads + thread_index() * (V * 2));
  }
  template <int V, int N> static DEVICE void keep_tiles(Tiles<V, N>& tiles) {
#pragma unroll
    for (int slot = 0; slot < N; ++slot) {
      keep_packed(tiles.x_0[slot]);
      keep_packed(tiles.grad_0_3[slot]);
    }
  }
  template <class Tiles, class Columns>
  static DEVICE Element element(const Tiles& tiles, int tileSlot, const Columns& columns, int columnSlot, int column, int i) {
    return {float_at(tiles.x_0[tileSlot], i), float_at(tiles.grad_0_3[tileSlot], i), float_at(columns.weight_1[columnSlot], i)};
  }
  static DEVICE void load_row(Row& row, const Arguments& arguments, const Offsets& offsets) {
    row.v2 = to_float(load_vector<float, 1>(arguments.operand[2].base, offsets.saved0_2).at[0]);
    row.v12 = row.v2 * row.v2;
    row.v13 = row.v2 * row.v12;
    row.v15 = -0x1p-1f * row.v13;
  }
  template <int S, int Count> static DEVICE void begin(Row& row, float (&sums)[Count]) {
  }
  template <int S, int Count, class Kept>
  static DEVICE void reduce(const Element& element, const Row& row, float (&sums)[Count],
                            float (&added)[Count], Kept& kept, int keptSlot) {
    if constexpr (S == 0) {
      const float v0 = element.x_0;
      const float v1 = element.weight_1;
      const float v3 = element.grad_0_3;
      const float v8 = v3 * v1;
      const float v10 = v8 * v0;
      added[0] += v10;
    }
  }
  template <int S, int Count>
  static DEVICE void add(float (&sums)[Count], const float (&added)[Count]) {
    if constexpr (S == 0) {
      sums[0] += added[0];
    }
  }
  template <int S, int Count> static DEVICE void combine(float (&a)[Count], const float (&b)[Count]) {
    if constexpr (S == 0) {
      a[0] += b[0];
    }
  }
  template <int S, int Count> static DEVICE void finish(Row& row, const float (&sums)[Count]) {
    if constexpr (S == 0) {
      row.v11 = sums[0];
    row.v16 = row.v11 * row.v15;
    row.v17 = exact_divide(row.v16, 0x1p+12f);
    row.v19 = 0x1p+1f * row.v17;
    }
  }
  template <class Stores, int Sums, int Slots, class Kept>
  static DEVICE void emit(const Element& element, const Row& row, Stores& stores, float (&accumulators)[Sums][Slots],
                          int i, int slot, const Kept& kept, int keptSlot) {
    const float v0 = element.x_0;
    const float v1 = element.weight_1;
    const float v3 = element.grad_0_3;
    const float v5 = v0 * row.v2;
    const float v6 = round_to<bf16>(v5);
    const float v7 = v3 * v6;
    const float v8 = v3 * v1;
    const float v9 = v8 * row.v2;
    const float v20 = row.v19 * v0;
    const float v21 = v9 + v20;
    const float v22 = v21;
    stores.result0_4[i] = v22;
    accumulators[0][slot] += v7;
  }
  template <int V>
  static DEVICE void store_tiles(const Stores<V>& stores, const Arguments& arguments, const Offsets& offsets,
                                 int column) {
    store_vector<bf16, V>(arguments.operand[4].base, offsets.result0_4 + column, vector_from_floats<bf16>(stores.result0_4));
  }
  static DEVICE void store_row(const Row& row, const Arguments& arguments, const Offsets& offsets) {
  }
  static DEVICE void store_fold(const Arguments& arguments, int accumulator, int column, float value) {
    if (accumulator == 0)
      store_vector<bf16, 1>(arguments.operand[5].base, column, {from_float<bf16>(value)});
  }
};

KERNEL(256, 2, rms_norm_backward_v8, Program::Arguments, row_kernel<Program, 8>)
KERNEL(256, 1, rms_norm_backward_v1, Program::Arguments, row_kernel<Program, 1>)
KERNEL(512, 1, rms_norm_backward_fold, Program::Arguments, fold_kernel<Program>)

