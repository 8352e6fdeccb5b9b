//===--- graph ---===//
/*
cermet.kernel.1
target sm_90
numerics traced
schedule row threads=128 threads_per_row=128 vector=8 vectors_per_thread=1 stages=0 blocks_per_sm=0 resident_blocks=10 shared_bytes=32
program dropout 1024
in x tile bf16
in residual tile bf16
in weight column bf16
in seed scalar i64
in index0 index i64
out result0 tile bf16
out result1 tile bf16
%0 = load x : bf16 element 0
%1 = load residual : bf16 element 0
%2 = load weight : bf16 column 0
%3 = load seed : i64 uniform 0
%4 = load index0 : i64 row 0
%5 = column_index : i64 column 0
%6 = random_key %3 %4 : i64 row 0
%7 = random_bits %6 %5 : i64 element 0
%8 = constant 429496730 : i64 uniform 0
%9 = less_equal %8 %7 : i1 element 0
%10 = constant 1.1111111640930176 : f32 uniform 0
%11 = constant 0 : f32 uniform 0
%12 = select %9 %10 %11 : f32 element 0
%13 = mul %0 %12 : f32 element 0
%14 = cast %13 : bf16 element 0
%15 = add %14 %1 : bf16 element 0
%16 = mul %15 %15 : f32 element 0
%17 = reduce_sum %16 : f32 row 0
%18 = constant 1024 : f32 uniform 0
%19 = div %17 %18 : f32 row 1
%20 = constant 9.999999974752427e-07 : f32 uniform 0
%21 = add %19 %20 : f32 row 1
%22 = rsqrt %21 : f32 row 1
%23 = mul %15 %22 : f32 element 1
%24 = mul %2 %23 : f32 element 1
%25 = cast %24 : bf16 element 1
%26 = store %25 result0 : bf16 element 1
%27 = store %15 result1 : bf16 element 0
*/
struct Program {
  static constexpr int kColumns = 1024;
  static constexpr int kThreads = 128, kThreadsPerRow = 128, kStages = 0;
  template <int V> static constexpr bool kCached = V == 8 ? true : false;
  template <int V> static constexpr int kHeld = V == 8 ? 0 : 0;
  static constexpr int kStageCount = 2, kMostReductions = 1, kAccumulators = 0;
  static constexpr bool kCompensated = false, kStoresTiles = true;
  static constexpr int kKept = 1;
  static constexpr bool kPairs = true, kAhead = false, kCumsums = false;
  template <int S, class = void> struct Reductions;
  template <class Any> struct Reductions<0, Any> {
    static constexpr int kCount = 1;
    static constexpr bool kRuns = false;
  };
  typedef RowArguments<7> Arguments;
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
    Vector<bf16, V> result0_5;
    Vector<bf16, V> result1_6;
  };
  struct Element {
    float x_0;
    float residual_1;
    float weight_2;
    int first, lane;
    DEVICE int column() const { return first + lane; }
  };
  struct ElementPair {
    Pair<bf16> x_0;
    Pair<bf16> residual_1;
    Pair<bf16> weight_2;
    int first, lane;
    DEVICE int column() const { return first + lane; }
  };
  struct Row {
    i64 v3;
    i64 v4;
    i64 v6;
    float v17;
    float v19;
    float v21;
    float v22;
  };
  struct Offsets {
    i64 x_0;
    i64 residual_1;
    i64 index0_4;
    i64 result0_5;
    i64 result1_6;
  };
  template <class Index> static DEVICE Offsets offsets(const Arguments& arguments, const Index& index) {
    return {row_offset(arguments.operand[0], index), row_offset(arguments.operand[1], index), row_offset(arguments.operand[4], index), row_offset(arguments.operand[5], index), row_offset(arguments.operand[6], index)};
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
    return {float_at(tiles.x_0[tileSlot], i), float_at(tiles.residual_1[tileSlot], i), float_at(columns.weight_2[columnSlot], i), column, i};
  }
  template <class Tiles, class Columns>
  static DEVICE ElementPair pair(const Tiles& tiles, int tileSlot, const Columns& columns, int columnSlot, int column, int i) {
    return {pair_at(tiles.x_0[tileSlot], i), pair_at(tiles.residual_1[tileSlot], i), pair_at(columns.weight_2[columnSlot], i), column, i};
  }
  static DEVICE void load_row(Row& row, const Arguments& arguments, const Offsets& offsets) {
    row.v3 = to_integer(load_vector<i64, 1>(arguments.operand[3].base, 0).at[0]);
    row.v4 = offsets.index0_4;
    row.v6 = random_key(row.v3, row.v4);
  }
  template <int S, int Count> static DEVICE void begin(Row& row, float (&sums)[Count]) {
  }
  template <int S, int Count, class Kept>
  static DEVICE void reduce(const Element& element, const Row& row, float (&sums)[Count],
                            float (&added)[Count], Kept& kept, int keptSlot) {
    if constexpr (S == 0) {
      const float v0 = element.x_0;
      const float v1 = element.residual_1;
      const i64 v5 = i64(element.column());
      const i64 v7 = random_bits(row.v6, v5);
      const bool v9 = 429496730ll <= v7;
      const float v12 = v9 ? 0x1.1c71c8p+0f : 0x0p+0f;
      if constexpr (Kept::kIsUsed)
        kept.at[0][keptSlot] = v12;
      const float v13 = v0 * v12;
      const float v14 = round_to<bf16>(v13);
      const float v15 = round_to<bf16>(v14 + v1);
      const float v16 = v15 * v15;
      added[0] += v16;
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
      row.v17 = sums[0];
    row.v19 = exact_divide(row.v17, 0x1p+10f);
    row.v21 = row.v19 + 0x1.0c6f7ap-20f;
    row.v22 = inverse_sqrt(row.v21);
    }
  }
  template <class Stores, int Sums, int Slots, class Kept>
  static DEVICE void emit(const Element& element, const Row& row, Stores& stores, float (&accumulators)[Sums][Slots],
                          int i, int slot, const Kept& kept, int keptSlot) {
    const float v0 = element.x_0;
    const float v1 = element.residual_1;
    const float v2 = element.weight_2;
    const i64 v5 = i64(element.column());
    const i64 v7 = random_bits(row.v6, v5);
    const bool v9 = 429496730ll <= v7;
    float v12;
    if constexpr (Kept::kIsUsed)
      v12 = kept.at[0][keptSlot];
    else
      v12 = v9 ? 0x1.1c71c8p+0f : 0x0p+0f;
    const float v13 = v0 * v12;
    const float v14 = round_to<bf16>(v13);
    const float v15 = round_to<bf16>(v14 + v1);
    const float v23 = v15 * row.v22;
    const float v24 = v2 * v23;
    const float v25 = v24;
    stores.result0_5.at[i] = from_float<bf16>(v25);
    stores.result1_6.at[i] = from_float<bf16>(v15);
  }
  template <class Stores, int Sums, int Slots, class Kept>
  static DEVICE void emit_pair(const ElementPair& element, const Row& row, Stores& stores,
                               float (&accumulators)[Sums][Slots], int i, int slot, const Kept& kept, int keptSlot) {
    const Pair<bf16> v0 = element.x_0;
    const Pair<bf16> v1 = element.residual_1;
    const Pair<bf16> v2 = element.weight_2;
    const i64 v5[2] = {i64(element.column()), i64((element.column() + 1))};
    const i64 v7[2] = {random_bits(row.v6, v5[0]), random_bits(row.v6, v5[1])};
    const bool v9[2] = {429496730ll <= v7[0], 429496730ll <= v7[1]};
    float v12[2];
    if constexpr (Kept::kIsUsed) {
      v12[0] = kept.at[0][keptSlot];
      v12[1] = kept.at[0][keptSlot + 1];
    } else {
      v12[0] = v9[0] ? 0x1.1c71c8p+0f : 0x0p+0f;
      v12[1] = v9[1] ? 0x1.1c71c8p+0f : 0x0p+0f;
    }
    const float v13[2] = {low(v0) * v12[0], high(v0) * v12[1]};
    const Pair<bf16> v14 = pair_of<bf16>(v13[0], v13[1]);
    const Pair<bf16> v15 = v14 + v1;
    const float v23[2] = {low(v15) * row.v22, high(v15) * row.v22};
    const float v24[2] = {low(v2) * v23[0], high(v2) * v23[1]};
    const Pair<bf16> v25 = pair_of<bf16>(v24[0], v24[1]);
    set_pair(stores.result0_5, i, v25);
    set_pair(stores.result1_6, i, v15);
  }
  template <int V>
  static DEVICE void store_tiles(const Stores<V>& stores, const Arguments& arguments, const Offsets& offsets,
                                 int column) {
    store_vector<bf16, V>(arguments.operand[5].base, offsets.result0_5 + column, stores.result0_5);
    store_vector<bf16, V>(arguments.operand[6].base, offsets.result1_6 + column, stores.result1_6);
  }
  static DEVICE void store_row(const Row& row, const Arguments& arguments, const Offsets& offsets) {
  }
};

KERNEL(128, 10, dropout_v8, Program::Arguments, row_kernel<Program, 8>)
KERNEL(128, 1, dropout_v1, Program::Arguments, row_kernel<Program, 1>)

//===--- forward ---===//
/*
cermet.kernel.1
target sm_90
numerics traced
schedule row threads=128 threads_per_row=128 vector=8 vectors_per_thread=1 stages=0 blocks_per_sm=0 resident_blocks=10 shared_bytes=32
program dropout_forward 1024
in x tile bf16
in residual tile bf16
in weight column bf16
in seed scalar i64
in index0 index i64
out result0 tile bf16
out result1 tile bf16
out result2 row f32
%0 = load x : bf16 element 0
%1 = load residual : bf16 element 0
%2 = load weight : bf16 column 0
%3 = load seed : i64 uniform 0
%4 = load index0 : i64 row 0
%5 = column_index : i64 column 0
%6 = random_key %3 %4 : i64 row 0
%7 = random_bits %6 %5 : i64 element 0
%8 = constant 429496730 : i64 uniform 0
%9 = less_equal %8 %7 : i1 element 0
%10 = constant 1.1111111640930176 : f32 uniform 0
%11 = constant 0 : f32 uniform 0
%12 = select %9 %10 %11 : f32 element 0
%13 = mul %0 %12 : f32 element 0
%14 = cast %13 : bf16 element 0
%15 = add %14 %1 : bf16 element 0
%16 = mul %15 %15 : f32 element 0
%17 = reduce_sum %16 : f32 row 0
%18 = constant 1024 : f32 uniform 0
%19 = div %17 %18 : f32 row 1
%20 = constant 9.999999974752427e-07 : f32 uniform 0
%21 = add %19 %20 : f32 row 1
%22 = rsqrt %21 : f32 row 1
%23 = mul %15 %22 : f32 element 1
%24 = mul %2 %23 : f32 element 1
%25 = cast %24 : bf16 element 1
%26 = store %25 result0 : bf16 element 1
%27 = store %15 result1 : bf16 element 0
%28 = store %22 result2 : f32 row 1
*/
struct Program {
  static constexpr int kColumns = 1024;
  static constexpr int kThreads = 128, kThreadsPerRow = 128, kStages = 0;
  template <int V> static constexpr bool kCached = V == 8 ? true : false;
  template <int V> static constexpr int kHeld = V == 8 ? 0 : 0;
  static constexpr int kStageCount = 2, kMostReductions = 1, kAccumulators = 0;
  static constexpr bool kCompensated = false, kStoresTiles = true;
  static constexpr int kKept = 1;
  static constexpr bool kPairs = true, kAhead = false, kCumsums = false;
  template <int S, class = void> struct Reductions;
  template <class Any> struct Reductions<0, Any> {
    static constexpr int kCount = 1;
    static constexpr bool kRuns = false;
  };
  typedef RowArguments<8> Arguments;
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
    Vector<bf16, V> result0_5;
    Vector<bf16, V> result1_6;
  };
  struct Element {
    float x_0;
    float residual_1;
    float weight_2;
    int first, lane;
    DEVICE int column() const { return first + lane; }
  };
  struct ElementPair {
    Pair<bf16> x_0;
    Pair<bf16> residual_1;
    Pair<bf16> weight_2;
    int first, lane;
    DEVICE int column() const { return first + lane; }
  };
  struct Row {
    i64 v3;
    i64 v4;
    i64 v6;
    float v17;
    float v19;
    float v21;
    float v22;
  };
  struct Offsets {
    i64 x_0;
    i64 residual_1;
    i64 index0_4;
    i64 result0_5;
    i64 result1_6;
    i64 result2_7;
  };
  template <class Index> static DEVICE Offsets offsets(const Arguments& arguments, const Index& index) {
    return {row_offset(arguments.operand[0], index), row_offset(arguments.operand[1], index), row_offset(arguments.operand[4], index), row_offset(arguments.operand[5], index), row_offset(arguments.operand[6], index), row_offset(arguments.operand[7], index)};
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
    return {float_at(tiles.x_0[tileSlot], i), float_at(tiles.residual_1[tileSlot], i), float_at(columns.weight_2[columnSlot], i), column, i};
  }
  template <class Tiles, class Columns>
  static DEVICE ElementPair pair(const Tiles& tiles, int tileSlot, const Columns& columns, int columnSlot, int column, int i) {
    return {pair_at(tiles.x_0[tileSlot], i), pair_at(tiles.residual_1[tileSlot], i), pair_at(columns.weight_2[columnSlot], i), column, i};
  }
  static DEVICE void load_row(Row& row, const Arguments& arguments, const Offsets& offsets) {
    row.v3 = to_integer(load_vector<i64, 1>(arguments.operand[3].base, 0).at[0]);
    row.v4 = offsets.index0_4;
    row.v6 = random_key(row.v3, row.v4);
  }
  template <int S, int Count> static DEVICE void begin(Row& row, float (&sums)[Count]) {
  }
  template <int S, int Count, class Kept>
  static DEVICE void reduce(const Element& element, const Row& row, float (&sums)[Count],
                            float (&added)[Count], Kept& kept, int keptSlot) {
    if constexpr (S == 0) {
      const float v0 = element.x_0;
      const float v1 = element.residual_1;
      const i64 v5 = i64(element.column());
      const i64 v7 = random_bits(row.v6, v5);
      const bool v9 = 429496730ll <= v7;
      const float v12 = v9 ? 0x1.1c71c8p+0f : 0x0p+0f;
      if constexpr (Kept::kIsUsed)
        kept.at[0][keptSlot] = v12;
      const float v13 = v0 * v12;
      const float v14 = round_to<bf16>(v13);
      const float v15 = round_to<bf16>(v14 + v1);
      const float v16 = v15 * v15;
      added[0] += v16;
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
      row.v17 = sums[0];
    row.v19 = exact_divide(row.v17, 0x1p+10f);
    row.v21 = row.v19 + 0x1.0c6f7ap-20f;
    row.v22 = inverse_sqrt(row.v21);
    }
  }
  template <class Stores, int Sums, int Slots, class Kept>
  static DEVICE void emit(const Element& element, const Row& row, Stores& stores, float (&accumulators)[Sums][Slots],
                          int i, int slot, const Kept& kept, int keptSlot) {
    const float v0 = element.x_0;
    const float v1 = element.residual_1;
    const float v2 = element.weight_2;
    const i64 v5 = i64(element.column());
    const i64 v7 = random_bits(row.v6, v5);
    const bool v9 = 429496730ll <= v7;
    float v12;
    if constexpr (Kept::kIsUsed)
      v12 = kept.at[0][keptSlot];
    else
      v12 = v9 ? 0x1.1c71c8p+0f : 0x0p+0f;
    const float v13 = v0 * v12;
    const float v14 = round_to<bf16>(v13);
    const float v15 = round_to<bf16>(v14 + v1);
    const float v23 = v15 * row.v22;
    const float v24 = v2 * v23;
    const float v25 = v24;
    stores.result0_5.at[i] = from_float<bf16>(v25);
    stores.result1_6.at[i] = from_float<bf16>(v15);
  }
  template <class Stores, int Sums, int Slots, class Kept>
  static DEVICE void emit_pair(const ElementPair& element, const Row& row, Stores& stores,
                               float (&accumulators)[Sums][Slots], int i, int slot, const Kept& kept, int keptSlot) {
    const Pair<bf16> v0 = element.x_0;
    const Pair<bf16> v1 = element.residual_1;
    const Pair<bf16> v2 = element.weight_2;
    const i64 v5[2] = {i64(element.column()), i64((element.column() + 1))};
    const i64 v7[2] = {random_bits(row.v6, v5[0]), random_bits(row.v6, v5[1])};
    const bool v9[2] = {429496730ll <= v7[0], 429496730ll <= v7[1]};
    float v12[2];
    if constexpr (Kept::kIsUsed) {
      v12[0] = kept.at[0][keptSlot];
      v12[1] = kept.at[0][keptSlot + 1];
    } else {
      v12[0] = v9[0] ? 0x1.1c71c8p+0f : 0x0p+0f;
      v12[1] = v9[1] ? 0x1.1c71c8p+0f : 0x0p+0f;
    }
    const float v13[2] = {low(v0) * v12[0], high(v0) * v12[1]};
    const Pair<bf16> v14 = pair_of<bf16>(v13[0], v13[1]);
    const Pair<bf16> v15 = v14 + v1;
    const float v23[2] = {low(v15) * row.v22, high(v15) * row.v22};
    const float v24[2] = {low(v2) * v23[0], high(v2) * v23[1]};
    const Pair<bf16> v25 = pair_of<bf16>(v24[0], v24[1]);
    set_pair(stores.result0_5, i, v25);
    set_pair(stores.result1_6, i, v15);
  }
  template <int V>
  static DEVICE void store_tiles(const Stores<V>& stores, const Arguments& arguments, const Offsets& offsets,
                                 int column) {
    store_vector<bf16, V>(arguments.operand[5].base, offsets.result0_5 + column, stores.result0_5);
    store_vector<bf16, V>(arguments.operand[6].base, offsets.result1_6 + column, stores.result1_6);
  }
  static DEVICE void store_row(const Row& row, const Arguments& arguments, const Offsets& offsets) {
    {
      store_vector<float, 1>(arguments.operand[7].base, offsets.result2_7, {from_float<float>(row.v22)});
    }
  }
};

KERNEL(128, 10, dropout_forward_v8, Program::Arguments, row_kernel<Program, 8>)
KERNEL(128, 1, dropout_forward_v1, Program::Arguments, row_kernel<Program, 1>)

//===--- backward ---===//
/*
cermet.kernel.1
target sm_90
numerics traced
schedule row threads=128 threads_per_row=128 vector=8 vectors_per_thread=1 stages=2 blocks_per_sm=4 resident_blocks=4 shared_bytes=12320
program dropout_backward 1024
in weight column bf16
in seed scalar i64
in output1 tile bf16
in saved0 row f32
in grad_0 tile bf16
in grad_1 tile bf16
in index0 index i64
out result0 tile bf16
out result1 tile bf16
out result2 column bf16
%0 = load weight : bf16 column 0
%1 = load seed : i64 uniform 0
%2 = load output1 : bf16 element 0
%3 = load saved0 : f32 row 0
%4 = load grad_0 : bf16 element 0
%5 = load grad_1 : bf16 element 0
%6 = load index0 : i64 row 0
%7 = column_index : i64 column 0
%8 = random_key %1 %6 : i64 row 0
%9 = random_bits %8 %7 : i64 element 0
%10 = constant 429496730 : i64 uniform 0
%11 = less_equal %10 %9 : i1 element 0
%12 = constant 1.1111111640930176 : f32 uniform 0
%13 = constant 0 : f32 uniform 0
%14 = select %11 %12 %13 : f32 element 0
%15 = constant 1024 : f32 uniform 0
%16 = mul %2 %3 : f32 element 0
%17 = mul %4 %16 : f32 element 0
%18 = mul %4 %0 : f32 element 0
%19 = mul %18 %3 : f32 element 0
%20 = mul %18 %2 : f32 element 0
%21 = reduce_sum %20 : f32 row 0
%22 = mul %3 %3 : f32 row 0
%23 = mul %3 %22 : f32 row 0
%24 = constant -0.5 : f32 uniform 0
%25 = mul %24 %23 : f32 row 0
%26 = mul %21 %25 : f32 row 1
%27 = div %26 %15 : f32 row 1
%28 = constant 2 : f32 uniform 0
%29 = mul %28 %27 : f32 row 1
%30 = mul %29 %2 : f32 element 1
%31 = add %19 %30 : f32 element 1
%32 = add %5 %31 : f32 element 1
%33 = mul %32 %14 : f32 element 1
%34 = cast %33 : bf16 element 1
%35 = cast %32 : bf16 element 1
%36 = store %34 result0 : bf16 element 1
%37 = store %35 result1 : bf16 element 1
%38 = accumulate_rows %17 result2 : bf16 column 0
*/
struct Program {
  static constexpr int kColumns = 1024;
  static constexpr int kThreads = 128, kThreadsPerRow = 128, kStages = 2;
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
  typedef RowArguments<10> Arguments;
  template <int V, int N> struct Tiles {
    static constexpr int kVector = V;
    Vector<bf16, V> output1_2[N];
    Vector<bf16, V> grad_0_4[N];
    Vector<bf16, V> grad_1_5[N];
  };
  template <int V, int N> struct Columns {
    static constexpr int kVector = V;
    Vector<bf16, V> weight_0[N];
  };
  template <int V> struct Stores {
    float result0_7[V];
    float result1_8[V];
  };
  struct Element {
    float output1_2;
    float grad_0_4;
    float grad_1_5;
    float weight_0;
    int first, lane;
    DEVICE int column() const { return first + lane; }
  };
  struct Row {
    i64 v1;
    float v3;
    i64 v6;
    i64 v8;
    float v21;
    float v22;
    float v23;
    float v25;
    float v26;
    float v27;
    float v29;
  };
  struct Offsets {
    i64 output1_2;
    i64 saved0_3;
    i64 grad_0_4;
    i64 grad_1_5;
    i64 index0_6;
    i64 result0_7;
    i64 result1_8;
  };
  template <class Index> static DEVICE Offsets offsets(const Arguments& arguments, const Index& index) {
    return {row_offset(arguments.operand[2], index), row_offset(arguments.operand[3], index), row_offset(arguments.operand[4], index), row_offset(arguments.operand[5], index), row_offset(arguments.operand[6], index), row_offset(arguments.operand[7], index), row_offset(arguments.operand[8], index)};
  }
  template <int V> struct TileBytes {
    static constexpr int kAll = V * 2 + V * 2 + V * 2, kSmallest = (V * 2 < (V * 2 < (V * 2 < 16 ? V * 2 : 16) ? V * 2 : (V * 2 < 16 ? V * 2 : 16)) ? V * 2 : (V * 2 < (V * 2 < 16 ? V * 2 : 16) ? V * 2 : (V * 2 < 16 ? V * 2 : 16)));
  };
  template <int V, int N>
  static DEVICE void load_tiles(Tiles<V, N>& tiles, int slot, const Arguments& arguments, const Offsets& offsets, int column) {
    tiles.output1_2[slot] = load_vector<bf16, V>(arguments.operand[2].base, offsets.output1_2 + column);
    tiles.grad_0_4[slot] = load_vector<bf16, V>(arguments.operand[4].base, offsets.grad_0_4 + column);
    tiles.grad_1_5[slot] = load_vector<bf16, V>(arguments.operand[5].base, offsets.grad_1_5 + column);
  }
  template <int V, int N>
  static DEVICE void load_columns(Columns<V, N>& columns, int slot, const Arguments& arguments, int column) {
    columns.weight_0[slot] = load_vector<bf16, V>(arguments.operand[0].base, column);
  }
  template <int V>
  static DEVICE void copy_tiles(char* shared, const Arguments& arguments, const Offsets& offsets, int column) {
    copy_async<V * 2>(shared + (0) * kThreads + thread_index() * (V * 2), arguments.operand[2].base + (offsets.output1_2 + column) * 2);
    copy_async<V * 2>(shared + (0 + V * 2) * kThreads + thread_index() * (V * 2), arguments.operand[4].base + (offsets.grad_0_4 + column) * 2);
    copy_async<V * 2>(shared + (0 + V * 2 + V * 2) * kThreads + thread_index() * (V * 2), arguments.operand[5].base + (offsets.grad_1_5 + column) * 2);
  }
  template <int V, int N> static DEVICE void take_tiles(Tiles<V, N>& tiles, int slot, const char* shared) {
    move_vector<bf16, V>(reinterpret_cast<char*>(&tiles.output1_2[slot]), shared + (0) * kThreads + thread_index() * (V * 2));
    move_vector<bf16, V>(reinterpret_cast<char*>(&tiles.grad_0_4[slot]), shared + (0 + V * 2) * kThreads + thread_index() * (V * 2));
    move_vector<bf16, V>(reinterpret_cast<char*>(&tiles.grad_1_5[slot]), shared + (0 + V * 2 + V * 2) * kThreads + thread_index() * (V * 2));
  }
  template <int V, int N> static DEVICE void keep_tiles(Tiles<V, N>& tiles) {
#pragma unroll
    for (int slot = 0; slot < N; ++slot) {
      keep_packed(tiles.output1_2[slot]);
      keep_packed(tiles.grad_0_4[slot]);
      keep_packed(tiles.grad_1_5[slot]);
    }
  }
  template <class Tiles, class Columns>
  static DEVICE Element element(const Tiles& tiles, int tileSlot, const Columns& columns, int columnSlot, int column, int i) {
    return {float_at(tiles.output1_2[tileSlot], i), float_at(tiles.grad_0_4[tileSlot], i), float_at(tiles.grad_1_5[tileSlot], i), float_at(columns.weight_0[columnSlot], i), column, i};
  }
  static DEVICE void load_row(Row& row, const Arguments& arguments, const Offsets& offsets) {
    row.v1 = to_integer(load_vector<i64, 1>(arguments.operand[1].base, 0).at[0]);
    row.v3 = to_float(load_vector<float, 1>(arguments.operand[3].base, offsets.saved0_3).at[0]);
    row.v6 = offsets.index0_6;
    row.v8 = random_key(row.v1, row.v6);
    row.v22 = row.v3 * row.v3;
    row.v23 = row.v3 * row.v22;
    row.v25 = -0x1p-1f * row.v23;
  }
  template <int S, int Count> static DEVICE void begin(Row& row, float (&sums)[Count]) {
  }
  template <int S, int Count, class Kept>
  static DEVICE void reduce(const Element& element, const Row& row, float (&sums)[Count],
                            float (&added)[Count], Kept& kept, int keptSlot) {
    if constexpr (S == 0) {
      const float v0 = element.weight_0;
      const float v2 = element.output1_2;
      const float v4 = element.grad_0_4;
      const float v18 = v4 * v0;
      const float v20 = v18 * v2;
      added[0] += v20;
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
      row.v21 = sums[0];
    row.v26 = row.v21 * row.v25;
    row.v27 = exact_divide(row.v26, 0x1p+10f);
    row.v29 = 0x1p+1f * row.v27;
    }
  }
  template <class Stores, int Sums, int Slots, class Kept>
  static DEVICE void emit(const Element& element, const Row& row, Stores& stores, float (&accumulators)[Sums][Slots],
                          int i, int slot, const Kept& kept, int keptSlot) {
    const float v0 = element.weight_0;
    const float v2 = element.output1_2;
    const float v4 = element.grad_0_4;
    const float v5 = element.grad_1_5;
    const i64 v7 = i64(element.column());
    const i64 v9 = random_bits(row.v8, v7);
    const bool v11 = 429496730ll <= v9;
    const float v14 = v11 ? 0x1.1c71c8p+0f : 0x0p+0f;
    const float v16 = v2 * row.v3;
    const float v17 = v4 * v16;
    const float v18 = v4 * v0;
    const float v19 = v18 * row.v3;
    const float v30 = row.v29 * v2;
    const float v31 = v19 + v30;
    const float v32 = v5 + v31;
    const float v33 = v32 * v14;
    const float v34 = v33;
    const float v35 = v32;
    stores.result0_7[i] = v34;
    stores.result1_8[i] = v35;
    accumulators[0][slot] += v17;
  }
  template <int V>
  static DEVICE void store_tiles(const Stores<V>& stores, const Arguments& arguments, const Offsets& offsets,
                                 int column) {
    store_vector<bf16, V>(arguments.operand[7].base, offsets.result0_7 + column, vector_from_floats<bf16>(stores.result0_7));
    store_vector<bf16, V>(arguments.operand[8].base, offsets.result1_8 + column, vector_from_floats<bf16>(stores.result1_8));
  }
  static DEVICE void store_row(const Row& row, const Arguments& arguments, const Offsets& offsets) {
  }
  static DEVICE void store_fold(const Arguments& arguments, int accumulator, int column, float value) {
    if (accumulator == 0)
      store_vector<bf16, 1>(arguments.operand[9].base, column, {from_float<bf16>(value)});
  }
};

KERNEL(128, 4, dropout_backward_v8, Program::Arguments, row_kernel<Program, 8>)
KERNEL(128, 1, dropout_backward_v1, Program::Arguments, row_kernel<Program, 1>)
KERNEL(512, 1, dropout_backward_fold, Program::Arguments, fold_kernel<Program>)

