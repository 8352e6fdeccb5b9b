//===--- graph ---===//
/*
cermet.kernel.1
target sm_90
numerics traced
schedule row threads=128 threads_per_row=128 vector=8 vectors_per_thread=4 stages=0 blocks_per_sm=0 resident_blocks=4 shared_bytes=32
program add_rms_norm 4096
in x tile bf16
in residual tile bf16
in weight column bf16
out result0 tile bf16
out result1 tile bf16
%0 = load x : bf16 element 0
%1 = load residual : bf16 element 0
%2 = load weight : bf16 column 0
%3 = add %0 %1 : bf16 element 0
%4 = mul %3 %3 : f32 element 0
%5 = reduce_sum %4 : f32 row 0
%6 = constant 4096 : f32 uniform 0
%7 = div %5 %6 : f32 row 1
%8 = constant 9.999999974752427e-07 : f32 uniform 0
%9 = add %7 %8 : f32 row 1
%10 = rsqrt %9 : f32 row 1
%11 = mul %3 %10 : f32 element 1
%12 = cast %11 : bf16 element 1
%13 = mul %2 %12 : bf16 element 1
%14 = store %13 result0 : bf16 element 1
%15 = store %3 result1 : bf16 element 0
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
  typedef RowArguments<5> Arguments;
  template <int V, int N> struct Tiles {
    static constexpr int kVector = V;
    Vector<bf16, V> x_0[N];
    Vector<bf16, V> residual_1[N];
  };
  template <int V, int N> struct Columns {
    static constexpr int kVector = V;
    Vector<bf16, V> weight_2[N];
  };
  template <int V> struct Stores {
    Vector<bf16, V> result0_3;
    Vector<bf16, V> result1_4;
  };
  struct Element {
    float x_0;
    float residual_1;
    float weight_2;
  };
  struct ElementPair {
    Pair<bf16> x_0;
    Pair<bf16> residual_1;
    Pair<bf16> weight_2;
  };
  struct Row {
    float v5;
    float v7;
    float v9;
    float v10;
  };
  struct Offsets {
    i64 x_0;
    i64 residual_1;
    i64 result0_3;
    i64 result1_4;
  };
  template <class Index> static DEVICE Offsets offsets(const Arguments& arguments, const Index& index) {
    return {row_offset(arguments.operand[0], index), row_offset(arguments.operand[1], index), row_offset(arguments.operand[3], index), row_offset(arguments.operand[4], index)};
  }
  template <int V> struct TileBytes {
    static constexpr int kAll = V * 2 + V * 2, kSmallest = (V * 2 < (V * 2 < 16 ? V * 2 : 16) ? V * 2 : (V * 2 < 16 ? V * 2 : 16));
  };
  template <int V, int N>
  static DEVICE void load_tiles(Tiles<V, N>& tiles, int slot, const Arguments& arguments, const Offsets& offsets, int column) {
    tiles.x_0[slot] = load_vector<bf16, V>(arguments.operand[0].base, offsets.x_0 + column);
    tiles.residual_1[slot] = load_vector<bf16, V>(arguments.operand[1].base, offsets.residual_1 + column);
  }
  template <int V, int N>
  static DEVICE void load_columns(Columns<V, N>& columns, int slot, const Arguments& arguments, int column) {
    columns.weight_2[slot] = load_vector<bf16, V>(arguments.operand[2].base, column);
  }
  template <int V>
  static DEVICE void copy_tiles(char* shared, const Arguments& arguments, const Offsets& offsets, int column) {
    copy_async<V * 2>(shared + (0) * kThreads + thread_index() * (V * 2), arguments.operand[0].base + (offsets.x_0 + column) * 2);
    copy_async<V * 2>(shared + (0 + V * 2) * kThreads + thread_index() * (V * 2), arguments.operand[1].base + (offsets.residual_1 + column) * 2);
  }
  template <int V, int N> static DEVICE void take_tiles(Tiles<V, N>& tiles, int slot, const char* shared) {
    move_vector<bf16, V>(reinterpret_cast<char*>(&tiles.x_0[slot]), shared + (0) * kThreads + thread_index() * (V * 2));
    move_vector<bf16, V>(reinterpret_cast<char*>(&tiles.residual_1[slot]), shared + (0 + V * 2) * kThreads + thread_index() * (V * 2));
  }
  template <int V, int N> static DEVICE void keep_tiles(Tiles<V, N>& tiles) {
#pragma unroll
    for (int slot = 0; slot < N; ++slot) {
      keep_packed(tiles.x_0[slot]);
      keep_packed(tiles.residual_1[slot]);
    }
  }
  template <class Tiles, class Columns>
  static DEVICE Element element(const Tiles& tiles, int tileSlot, const Columns& columns, int columnSlot, int column, int i) {
    return {float_at(tiles.x_0[tileSlot], i), float_at(tiles.residual_1[tileSlot], i), float_at(columns.weight_2[columnSlot], i)};
  }
  template <class Tiles, class Columns>
  static DEVICE ElementPair pair(const Tiles& tiles, int tileSlot, const Columns& columns, int columnSlot, int column, int i) {
    return {pair_at(tiles.x_0[tileSlot], i), pair_at(tiles.residual_1[tileSlot], i), pair_at(columns.weight_2[columnSlot], i)};
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
      const float v1 = element.residual_1;
      const float v3 = round_to<bf16>(v0 + v1);
      const float v4 = v3 * v3;
      added[0] += v4;
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
      row.v5 = sums[0];
    row.v7 = exact_divide(row.v5, 0x1p+12f);
    row.v9 = row.v7 + 0x1.0c6f7ap-20f;
    row.v10 = inverse_sqrt(row.v9);
    }
  }
  template <class Stores, int Sums, int Slots, class Kept>
  static DEVICE void emit(const Element& element, const Row& row, Stores& stores, float (&accumulators)[Sums][Slots],
                          int i, int slot, const Kept& kept, int keptSlot) {
    const float v0 = element.x_0;
    const float v1 = element.residual_1;
    const float v2 = element.weight_2;
    const float v3 = round_to<bf16>(v0 + v1);
    const float v11 = v3 * row.v10;
    const float v12 = round_to<bf16>(v11);
    const float v13 = v2 * v12;
    stores.result0_3.at[i] = from_float<bf16>(v13);
    stores.result1_4.at[i] = from_float<bf16>(v3);
  }
  template <class Stores, int Sums, int Slots, class Kept>
  static DEVICE void emit_pair(const ElementPair& element, const Row& row, Stores& stores,
                               float (&accumulators)[Sums][Slots], int i, int slot, const Kept& kept, int keptSlot) {
    const Pair<bf16> v0 = element.x_0;
    const Pair<bf16> v1 = element.residual_1;
    const Pair<bf16> v2 = element.weight_2;
    const Pair<bf16> v3 = v0 + v1;
    const float v11[2] = {low(v3) * row.v10, high(v3) * row.v10};
    const Pair<bf16> v12 = pair_of<bf16>(v11[0], v11[1]);
    const Pair<bf16> v13 = v2 * v12;
    set_pair(stores.result0_3, i, v13);
    set_pair(stores.result1_4, i, v3);
  }
  template <int V>
  static DEVICE void store_tiles(const Stores<V>& stores, const Arguments& arguments, const Offsets& offsets,
                                 int column) {
    store_vector<bf16, V>(arguments.operand[3].base, offsets.result0_3 + column, stores.result0_3);
    store_vector<bf16, V>(arguments.operand[4].base, offsets.result1_4 + column, stores.result1_4);
  }
  static DEVICE void store_row(const Row& row, const Arguments& arguments, const Offsets& offsets) {
  }
};

KERNEL(128, 4, add_rms_norm_v8, Program::Arguments, row_kernel<Program, 8>)
KERNEL(128, 1, add_rms_norm_v1, Program::Arguments, row_kernel<Program, 1>)

//===--- forward ---===//
/*
cermet.kernel.1
target sm_90
numerics traced
schedule row threads=128 threads_per_row=128 vector=8 vectors_per_thread=4 stages=0 blocks_per_sm=0 resident_blocks=4 shared_bytes=32
program add_rms_norm_forward 4096
in x tile bf16
in residual tile bf16
in weight column bf16
out result0 tile bf16
out result1 tile bf16
out result2 row f32
%0 = load x : bf16 element 0
%1 = load residual : bf16 element 0
%2 = load weight : bf16 column 0
%3 = add %0 %1 : bf16 element 0
%4 = mul %3 %3 : f32 element 0
%5 = reduce_sum %4 : f32 row 0
%6 = constant 4096 : f32 uniform 0
%7 = div %5 %6 : f32 row 1
%8 = constant 9.999999974752427e-07 : f32 uniform 0
%9 = add %7 %8 : f32 row 1
%10 = rsqrt %9 : f32 row 1
%11 = mul %3 %10 : f32 element 1
%12 = cast %11 : bf16 element 1
%13 = mul %2 %12 : bf16 element 1
%14 = store %13 result0 : bf16 element 1
%15 = store %3 result1 : bf16 element 0
%16 = store %10 result2 : f32 row 1
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
  typedef RowArguments<6> Arguments;
  template <int V, int N> struct Tiles {
    static constexpr int kVector = V;
    Vector<bf16, V> x_0[N];
    Vector<bf16, V> residual_1[N];
  };
  template <int V, int N> struct Columns {
    static constexpr int kVector = V;
    Vector<bf16, V> weight_2[N];
  };
  template <int V> struct Stores {
    Vector<bf16, V> result0_3;
    Vector<bf16, V> result1_4;
  };
  struct Element {
    float x_0;
    float residual_1;
    float weight_2;
  };
  struct ElementPair {
    Pair<bf16> x_0;
    Pair<bf16> residual_1;
    Pair<bf16> weight_2;
  };
  struct Row {
    float v5;
    float v7;
    float v9;
    float v10;
  };
  struct Offsets {
    i64 x_0;
    i64 residual_1;
    i64 result0_3;
    i64 result1_4;
    i64 result2_5;
  };
  template <class Index> static DEVICE Offsets offsets(const Arguments& arguments, const Index& index) {
    return {row_offset(arguments.operand[0], index), row_offset(arguments.operand[1], index), row_offset(arguments.operand[3], index), row_offset(arguments.operand[4], index), row_offset(arguments.operand[5], index)};
  }
  template <int V> struct TileBytes {
    static constexpr int kAll = V * 2 + V * 2, kSmallest = (V * 2 < (V * 2 < 16 ? V * 2 : 16) ? V * 2 : (V * 2 < 16 ? V * 2 : 16));
  };
  template <int V, int N>
  static DEVICE void load_tiles(Tiles<V, N>& tiles, int slot, const Arguments& arguments, const Offsets& offsets, int column) {
    tiles.x_0[slot] = load_vector<bf16, V>(arguments.operand[0].base, offsets.x_0 + column);
    tiles.residual_1[slot] = load_vector<bf16, V>(arguments.operand[1].base, offsets.residual_1 + column);
  }
  template <int V, int N>
  static DEVICE void load_columns(Columns<V, N>& columns, int slot, const Arguments& arguments, int column) {
    columns.weight_2[slot] = load_vector<bf16, V>(arguments.operand[2].base, column);
  }
  template <int V>
  static DEVICE void copy_tiles(char* shared, const Arguments& arguments, const Offsets& offsets, int column) {
    copy_async<V * 2>(shared + (0) * kThreads + thread_index() * (V * 2), arguments.operand[0].base + (offsets.x_0 + column) * 2);
    copy_async<V * 2>(shared + (0 + V * 2) * kThreads + thread_index() * (V * 2), arguments.operand[1].base + (offsets.residual_1 + column) * 2);
  }
  template <int V, int N> static DEVICE void take_tiles(Tiles<V, N>& tiles, int slot, const char* shared) {
    move_vector<bf16, V>(reinterpret_cast<char*>(&tiles.x_0[slot]), shared + (0) * kThreads + thread_index() * (V * 2));
    move_vector<bf16, V>(reinterpret_cast<char*>(&tiles.residual_1[slot]), shared + (0 + V * 2) * kThreads + thread_index() * (V * 2));
  }
  template <int V, int N> static DEVICE void keep_tiles(Tiles<V, N>& tiles) {
#pragma unroll
    for (int slot = 0; slot < N; ++slot) {
      keep_packed(tiles.x_0[slot]);
      keep_packed(tiles.residual_1[slot]);
    }
  }
  template <class Tiles, class Columns>
  static DEVICE Element element(const Tiles& tiles, int tileSlot, const Columns& columns, int columnSlot, int column, int i) {
    return {float_at(tiles.x_0[tileSlot], i), float_at(tiles.residual_1[tileSlot], i), float_at(columns.weight_2[columnSlot], i)};
  }
  template <class Tiles, class Columns>
  static DEVICE ElementPair pair(const Tiles& tiles, int tileSlot, const Columns& columns, int columnSlot, int column, int i) {
    return {pair_at(tiles.x_0[tileSlot], i), pair_at(tiles.residual_1[tileSlot], i), pair_at(columns.weight_2[columnSlot], i)};
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
      const float v1 = element.residual_1;
      const float v3 = round_to<bf16>(v0 + v1);
      const float v4 = v3 * v3;
      added[0] += v4;
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
      row.v5 = sums[0];
    row.v7 = exact_divide(row.v5, 0x1p+12f);
    row.v9 = row.v7 + 0x1.0c6f7ap-20f;
    row.v10 = inverse_sqrt(row.v9);
    }
  }
  template <class Stores, int Sums, int Slots, class Kept>
  static DEVICE void emit(const Element& element, const Row& row, Stores& stores, float (&accumulators)[Sums][Slots],
                          int i, int slot, const Kept& kept, int keptSlot) {
    const float v0 = element.x_0;
    const float v1 = element.residual_1;
    const float v2 = element.weight_2;
    const float v3 = round_to<bf16>(v0 + v1);
    const float v11 = v3 * row.v10;
    const float v12 = round_to<bf16>(v11);
    const float v13 = v2 * v12;
    stores.result0_3.at[i] = from_float<bf16>(v13);
    stores.result1_4.at[i] = from_float<bf16>(v3);
  }
  template <class Stores, int Sums, int Slots, class Kept>
  static DEVICE void emit_pair(const ElementPair& element, const Row& row, Stores& stores,
                               float (&accumulators)[Sums][Slots], int i, int slot, const Kept& kept, int keptSlot) {
    const Pair<bf16> v0 = element.x_0;
    const Pair<bf16> v1 = element.residual_1;
    const Pair<bf16> v2 = element.weight_2;
    const Pair<bf16> v3 = v0 + v1;
    const float v11[2] = {low(v3) * row.v10, high(v3) * row.v10};
    const Pair<bf16> v12 = pair_of<bf16>(v11[0], v11[1]);
    const Pair<bf16> v13 = v2 * v12;
    set_pair(stores.result0_3, i, v13);
    set_pair(stores.result1_4, i, v3);
  }
  template <int V>
  static DEVICE void store_tiles(const Stores<V>& stores, const Arguments& arguments, const Offsets& offsets,
                                 int column) {
    store_vector<bf16, V>(arguments.operand[3].base, offsets.result0_3 + column, stores.result0_3);
    store_vector<bf16, V>(arguments.operand[4].base, offsets.result1_4 + column, stores.result1_4);
  }
  static DEVICE void store_row(const Row& row, const Arguments& arguments, const Offsets& offsets) {
    {
      store_vector<float, 1>(arguments.operand[5].base, offsets.result2_5, {from_float<float>(row.v10)});
    }
  }
};

KERNEL(128, 4, add_rms_norm_forward_v8, Program::Arguments, row_kernel<Program, 8>)
KERNEL(128, 1, add_rms_norm_forward_v1, Program::Arguments, row_kernel<Program, 1>)

//===--- backward ---===//
/*
cermet.kernel.1
target sm_90
numerics traced
schedule row threads=512 threads_per_row=512 vector=8 vectors_per_thread=1 stages=2 blocks_per_sm=2 resident_blocks=2 shared_bytes=49280
program add_rms_norm_backward 4096
in weight column bf16
in output1 tile bf16
in saved0 row f32
in grad_0 tile bf16
in grad_1 tile bf16
out result0 tile bf16
out result1 column bf16
%0 = load weight : bf16 column 0
%1 = load output1 : bf16 element 0
%2 = load saved0 : f32 row 0
%3 = load grad_0 : bf16 element 0
%4 = load grad_1 : bf16 element 0
%5 = constant 4096 : f32 uniform 0
%6 = mul %1 %2 : f32 element 0
%7 = cast %6 : bf16 element 0
%8 = mul %3 %7 : f32 element 0
%9 = mul %3 %0 : f32 element 0
%10 = mul %9 %2 : f32 element 0
%11 = mul %9 %1 : f32 element 0
%12 = reduce_sum %11 : f32 row 0
%13 = mul %2 %2 : f32 row 0
%14 = mul %2 %13 : f32 row 0
%15 = constant -0.5 : f32 uniform 0
%16 = mul %15 %14 : f32 row 0
%17 = mul %12 %16 : f32 row 1
%18 = div %17 %5 : f32 row 1
%19 = constant 2 : f32 uniform 0
%20 = mul %19 %18 : f32 row 1
%21 = mul %20 %1 : f32 element 1
%22 = add %10 %21 : f32 element 1
%23 = add %4 %22 : f32 element 1
%24 = cast %23 : bf16 element 1
%25 = store %24 result0 : bf16 element 1
%26 = accumulate_rows %8 result1 : bf16 column 0
*/
struct Program {
  static constexpr int kColumns = 4096;
  static constexpr int kThreads = 512, kThreadsPerRow = 512, kStages = 2;
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
  typedef RowArguments<7> Arguments;
  template <int V, int N> struct Tiles {
    static constexpr int kVector = V;
    Vector<bf16, V> output1_1[N];
    Vector<bf16, V> grad_0_3[N];
    Vector<bf16, V> grad_1_4[N];
  };
  template <int V, int N> struct Columns {
    static constexpr int kVector = V;
    Vector<bf16, V> weight_0[N];
  };
  template <int V> struct Stores {
    float result0_5[V];
  };
  struct Element {
    float output1_1;
    float grad_0_3;
    float grad_1_4;
    float weight_0;
  };
  struct Row {
    float v2;
    float v12;
    float v13;
    float v14;
    float v16;
    float v17;
    float v18;
    float v20;
  };
  struct Offsets {
    i64 output1_1;
    i64 saved0_2;
    i64 grad_0_3;
    i64 grad_1_4;
    i64 result0_5;
  };
  template <class Index> static DEVICE Offsets offsets(const Arguments& arguments, const Index& index) {
    return {row_offset(arguments.operand[1], index), row_offset(arguments.operand[2], index), row_offset(arguments.operand[3], index), row_offset(arguments.operand[4], index), row_offset(arguments.operand[5], index)};
  }
  template <int V> struct TileBytes {
    static constexpr int kAll = V * 2 + V * 2 + V * 2, kSmallest = (V * 2 < (V * 2 < (V * 2 < 16 ? V * 2 : 16) ? V * 2 : (V * 2 < 16 ? V * 2 : 16)) ? V * 2 : (V * 2 < (V * 2 < 16 ? V * 2 : 16) ? V * 2 : (V * 2 < 16 ? V * 2 : 16)));
  };
  template <int V, int N>
  static DEVICE void load_tiles(Tiles<V, N>& tiles, int slot, const Arguments& arguments, const Offsets& offsets, int column) {
    tiles.output1_1[slot] = load_vector<bf16, V>(arguments.operand[1].base, offsets.output1_1 + column);
    tiles.grad_0_3[slot] = load_vector<bf16, V>(arguments.operand[3].base, offsets.grad_0_3 + column);
    tiles.grad_1_4[slot] = load_vector<bf16, V>(arguments.operand[4].base, offsets.grad_1_4 + column);
  }
  template <int V, int N>
  static DEVICE void load_columns(Columns<V, N>& columns, int slot, const Arguments& arguments, int column) {
    columns.weight_0[slot] = load_vector<bf16, V>(arguments.operand[0].base, column);
  }
  template <int V>
  static DEVICE void copy_tiles(char* shared, const Arguments& arguments, const Offsets& offsets, int column) {
    copy_async<V * 2>(shared + (0) * kThreads + thread_index() * (V * 2), arguments.operand[1].base + (offsets.output1_1 + column) * 2);
    copy_async<V * 2>(shared + (0 + V * 2) * kThreads + thread_index() * (V * 2), arguments.operand[3].base + (offsets.grad_0_3 + column) * 2);
    copy_async<V * 2>(shared + (0 + V * 2 + V * 2) * kThreads + thread_index() * (V * 2), arguments.operand[4].base + (offsets.grad_1_4 + column) * 2);
  }
  template <int V, int N> static DEVICE void take_tiles(Tiles<V, N>& tiles, int slot, const char* shared) {
    move_vector<bf16, V>(reinterpret_cast<char*>(&tiles.output1_1[slot]), shared + (0) * kThreads + thread_index() * (V * 2));
    move_vector<bf16, V>(reinterpret_cast<char*>(&tiles.grad_0_3[slot]), shared + (0 + V * 2) * kThreads + thread_index() * (V * 2));
    move_vector<bf16, V>(reinterpret_cast<char*>(&tiles.grad_1_4[slot]), shared + (0 + V * 2 + V * 2) * kThreads + thread_index() * (V * 2));
  }
  template <int V, int N> static DEVICE void keep_tiles(Tiles<V, N>& tiles) {
#pragma unroll
    for (int slot = 0; slot < N; ++slot) {
      keep_packed(tiles.output1_1[slot]);
      keep_packed(tiles.grad_0_3[slot]);
      keep_packed(tiles.grad_1_4[slot]);
    }
  }
  template <class Tiles, class Columns>
  static DEVICE Element element(const Tiles& tiles, int tileSlot, const Columns& columns, int columnSlot, int column, int i) {
    return {float_at(tiles.output1_1[tileSlot], i), float_at(tiles.grad_0_3[tileSlot], i), float_at(tiles.grad_1_4[tileSlot], i), float_at(columns.weight_0[columnSlot], i)};
  }
  static DEVICE void load_row(Row& row, const Arguments& arguments, const Offsets& offsets) {
    row.v2 = to_float(load_vector<float, 1>(arguments.operand[2].base, offsets.saved0_2).at[0]);
    row.v13 = row.v2 * row.v2;
    row.v14 = row.v2 * row.v13;
    row.v16 = -0x1p-1f * row.v14;
  }
  template <int S, int Count> static DEVICE void begin(Row& row, float (&sums)[Count]) {
  }
  template <int S, int Count, class Kept>
  static DEVICE void reduce(const Element& element, const Row& row, float (&sums)[Count],
                            float (&added)[Count], Kept& kept, int keptSlot) {
    if constexpr (S == 0) {
      const float v0 = element.weight_0;
      const float v1 = element.output1_1;
      const float v3 = element.grad_0_3;
      const float v9 = v3 * v0;
      const float v11 = v9 * v1;
      added[0] += v11;
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
      row.v12 = sums[0];
    row.v17 = row.v12 * row.v16;
    row.v18 = exact_divide(row.v17, 0x1p+12f);
    row.v20 = 0x1p+1f * row.v18;
    }
  }
  template <class Stores, int Sums, int Slots, class Kept>
  static DEVICE void emit(const Element& element, const Row& row, Stores& stores, float (&accumulators)[Sums][Slots],
                          int i, int slot, const Kept& kept, int keptSlot) {
    const float v0 = element.weight_0;
    const float v1 = element.output1_1;
    const float v3 = element.grad_0_3;
    const float v4 = element.grad_1_4;
    const float v6 = v1 * row.v2;
    const float v7 = round_to<bf16>(v6);
    const float v8 = v3 * v7;
    const float v9 = v3 * v0;
    const float v10 = v9 * row.v2;
    const float v21 = row.v20 * v1;
    const float v22 = v10 + v21;
    const float v23 = v4 + v22;
    const float v24 = v23;
    stores.result0_5[i] = v24;
    accumulators[0][slot] += v8;
  }
  template <int V>
  static DEVICE void store_tiles(const Stores<V>& stores, const Arguments& arguments, const Offsets& offsets,
                                 int column) {
    store_vector<bf16, V>(arguments.operand[5].base, offsets.result0_5 + column, vector_from_floats<bf16>(stores.result0_5));
  }
  static DEVICE void store_row(const Row& row, const Arguments& arguments, const Offsets& offsets) {
  }
  static DEVICE void store_fold(const Arguments& arguments, int accumulator, int column, float value) {
    if (accumulator == 0)
      store_vector<bf16, 1>(arguments.operand[6].base, column, {from_float<bf16>(value)});
  }
};

KERNEL(512, 2, add_rms_norm_backward_v8, Program::Arguments, row_kernel<Program, 8>)
KERNEL(512, 1, add_rms_norm_backward_v1, Program::Arguments, row_kernel<Program, 1>)
KERNEL(512, 1, add_rms_norm_backward_fold, Program::Arguments, fold_kernel<Program>)

