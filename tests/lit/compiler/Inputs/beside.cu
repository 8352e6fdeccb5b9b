//===--- graph ---===//
/*
cermet.kernel.1
target sm_90
numerics traced
schedule flat threads=128 threads_per_row=128 vector=8 vectors_per_thread=1 stages=0 blocks_per_sm=0 resident_blocks=1 shared_bytes=0
program select 128
in operand0 row f32
in operand1 tile bf16
out result0 tile bf16
%0 = load operand0 : f32 row 0
%1 = load operand1 : bf16 element 0
%2 = constant 0 : f32 uniform 0
%3 = less %2 %0 : i1 row 0
%4 = constant 0 : bf16 uniform 0
%5 = select %3 %1 %4 : bf16 element 0
%6 = store %5 result0 : bf16 element 0
schedule flat threads=128 threads_per_row=128 vector=4 vectors_per_thread=1 stages=0 blocks_per_sm=0 resident_blocks=1 shared_bytes=0
program select 64
in operand0 row f32
in operand1 tile f32
out result0 tile f32
%0 = load operand0 : f32 row 0
%1 = load operand1 : f32 element 0
%2 = constant 0 : f32 uniform 0
%3 = less %2 %0 : i1 row 0
%4 = select %3 %1 %2 : f32 element 0
%5 = store %4 result0 : f32 element 0
*/
struct Program0 {
  static constexpr int kColumns = 128;
  static constexpr int kThreads = 128, kThreadsPerRow = 128, kStages = 0;
  template <int V> static constexpr bool kCached = V == 8 ? true : false;
  template <int V> static constexpr int kHeld = V == 8 ? 0 : 0;
  static constexpr int kStageCount = 1, kMostReductions = 1, kAccumulators = 0;
  static constexpr bool kCompensated = false, kStoresTiles = true;
  static constexpr int kKept = 0;
  static constexpr bool kPairs = false, kAhead = false, kCumsums = false;
  typedef RowArguments<3> Arguments;
  template <int V, int N> struct Tiles {
    static constexpr int kVector = V;
    Vector<bf16, V> operand1_1[N];
  };
  template <int V, int N> struct Columns {
    static constexpr int kVector = V;
  };
  template <int V> struct Stores {
    float result0_2[V];
  };
  struct Element {
    float operand1_1;
  };
  struct Row {
    float v0;
    bool v3;
  };
  struct Offsets {
    i64 operand0_0;
    i64 operand1_1;
    i64 result0_2;
  };
  template <class Index> static DEVICE Offsets offsets(const Arguments& arguments, const Index& index) {
    return {row_offset(arguments.operand[0], index), row_offset(arguments.operand[1], index), row_offset(arguments.operand[2], index)};
  }
  template <int V> struct TileBytes {
    static constexpr int kAll = V * 2, kSmallest = (V * 2 < 16 ? V * 2 : 16);
  };
  template <int V, int N>
  static DEVICE void load_tiles(Tiles<V, N>& tiles, int slot, const Arguments& arguments, const Offsets& offsets, int column) {
    tiles.operand1_1[slot] = load_vector<bf16, V>(arguments.operand[1].base, offsets.operand1_1 + column);
  }
  template <int V, int N>
  static DEVICE void load_columns(Columns<V, N>& columns, int slot, const Arguments& arguments, int column) {
  }
  template <int V>
  static DEVICE void copy_tiles(char* shared, const Arguments& arguments, const Offsets& offsets, int column) {
    copy_async<V * 2>(shared + (0) * kThreads + thread_index() * (V * 2), arguments.operand[1].base + (offsets.operand1_1 + column) * 2);
  }
  template <int V, int N> static DEVICE void take_tiles(Tiles<V, N>& tiles, int slot, const char* shared) {
    move_vector<bf16, V>(reinterpret_cast<char*>(&tiles.operand1_1[slot]), shared + (0) * kThreads + thread_index() * (V * 2));
  }
  template <int V, int N> static DEVICE void keep_tiles(Tiles<V, N>& tiles) {
#pragma unroll
    for (int slot = 0; slot < N; ++slot) {
      keep_packed(tiles.operand1_1[slot]);
    }
  }
  template <class Tiles, class Columns>
  static DEVICE Element element(const Tiles& tiles, int tileSlot, const Columns& columns, int columnSlot, int column, int i) {
    return {float_at(tiles.operand1_1[tileSlot], i)};
  }
  static DEVICE void load_row(Row& row, const Arguments& arguments, const Offsets& offsets) {
    row.v0 = to_float(load_vector<float, 1>(arguments.operand[0].base, offsets.operand0_0).at[0]);
    row.v3 = 0x0p+0f < row.v0;
  }
  template <class Stores, int Sums, int Slots, class Kept>
  static DEVICE void emit(const Element& element, const Row& row, Stores& stores, float (&accumulators)[Sums][Slots],
                          int i, int slot, const Kept& kept, int keptSlot) {
    const float v1 = element.operand1_1;
    const float v5 = row.v3 ? v1 : 0x0p+0f;
    stores.result0_2[i] = v5;
  }
  template <int V>
  static DEVICE void store_tiles(const Stores<V>& stores, const Arguments& arguments, const Offsets& offsets,
                                 int column) {
    store_vector<bf16, V>(arguments.operand[2].base, offsets.result0_2 + column, vector_from_floats<bf16>(stores.result0_2));
  }
  static DEVICE void store_row(const Row& row, const Arguments& arguments, const Offsets& offsets) {
  }
  static constexpr bool kScales = false;
};

struct Program1 {
  static constexpr int kColumns = 64;
  static constexpr int kThreads = 128, kThreadsPerRow = 128, kStages = 0;
  template <int V> static constexpr bool kCached = V == 4 ? true : false;
  template <int V> static constexpr int kHeld = V == 4 ? 0 : 0;
  static constexpr int kStageCount = 1, kMostReductions = 1, kAccumulators = 0;
  static constexpr bool kCompensated = false, kStoresTiles = true;
  static constexpr int kKept = 0;
  static constexpr bool kPairs = false, kAhead = false, kCumsums = false;
  typedef RowArguments<3> Arguments;
  template <int V, int N> struct Tiles {
    static constexpr int kVector = V;
    Vector<float, V> operand1_1[N];
  };
  template <int V, int N> struct Columns {
    static constexpr int kVector = V;
  };
  template <int V> struct Stores {
    float result0_2[V];
  };
  struct Element {
    float operand1_1;
  };
  struct Row {
    float v0;
    bool v3;
  };
  struct Offsets {
    i64 operand0_0;
    i64 operand1_1;
    i64 result0_2;
  };
  template <class Index> static DEVICE Offsets offsets(const Arguments& arguments, const Index& index) {
    return {row_offset(arguments.operand[0], index), row_offset(arguments.operand[1], index), row_offset(arguments.operand[2], index)};
  }
  template <int V> struct TileBytes {
    static constexpr int kAll = V * 4, kSmallest = (V * 4 < 16 ? V * 4 : 16);
  };
  template <int V, int N>
  static DEVICE void load_tiles(Tiles<V, N>& tiles, int slot, const Arguments& arguments, const Offsets& offsets, int column) {
    tiles.operand1_1[slot] = load_vector<float, V>(arguments.operand[1].base, offsets.operand1_1 + column);
  }
  template <int V, int N>
  static DEVICE void load_columns(Columns<V, N>& columns, int slot, const Arguments& arguments, int column) {
  }
  template <int V>
  static DEVICE void copy_tiles(char* shared, const Arguments& arguments, const Offsets& offsets, int column) {
    copy_async<V * 4>(shared + (0) * kThreads + thread_index() * (V * 4), arguments.operand[1].base + (offsets.operand1_1 + column) * 4);
  }
  template <int V, int N> static DEVICE void take_tiles(Tiles<V, N>& tiles, int slot, const char* shared) {
    move_vector<float, V>(reinterpret_cast<char*>(&tiles.operand1_1[slot]), shared + (0) * kThreads + thread_index() * (V * 4));
  }
  template <int V, int N> static DEVICE void keep_tiles(Tiles<V, N>& tiles) {
#pragma unroll
    for (int slot = 0; slot < N; ++slot) {
      keep_packed(tiles.operand1_1[slot]);
    }
  }
  template <class Tiles, class Columns>
  static DEVICE Element element(const Tiles& tiles, int tileSlot, const Columns& columns, int columnSlot, int column, int i) {
    return {float_at(tiles.operand1_1[tileSlot], i)};
  }
  static DEVICE void load_row(Row& row, const Arguments& arguments, const Offsets& offsets) {
    row.v0 = to_float(load_vector<float, 1>(arguments.operand[0].base, offsets.operand0_0).at[0]);
    row.v3 = 0x0p+0f < row.v0;
  }
  template <class Stores, int Sums, int Slots, class Kept>
  static DEVICE void emit(const Element& element, const Row& row, Stores& stores, float (&accumulators)[Sums][Slots],
                          int i, int slot, const Kept& kept, int keptSlot) {
    const float v1 = element.operand1_1;
    const float v4 = row.v3 ? v1 : 0x0p+0f;
    stores.result0_2[i] = v4;
  }
  template <int V>
  static DEVICE void store_tiles(const Stores<V>& stores, const Arguments& arguments, const Offsets& offsets,
                                 int column) {
    store_vector<float, V>(arguments.operand[2].base, offsets.result0_2 + column, vector_from_floats<float>(stores.result0_2));
  }
  static DEVICE void store_row(const Row& row, const Arguments& arguments, const Offsets& offsets) {
  }
  static constexpr bool kScales = false;
};

struct Arguments {
  Program0::Arguments program0;
  Program1::Arguments program1;
};

template <int V0, int V1> DEVICE void programs(const Arguments& arguments) {
  BlockRange blocks;
  if (blocks.next(arguments.program0.partialRows))
    return flat_kernel<Program0, V0>(arguments.program0, blocks);
  if (blocks.next(arguments.program1.partialRows))
    return flat_kernel<Program1, V1>(arguments.program1, blocks);
}

KERNEL(128, 1, select_v8, Arguments, programs<8, 4>)
KERNEL(128, 1, select_v1, Arguments, programs<1, 1>)

//===--- forward ---===//
/*
cermet.kernel.1
target sm_90
numerics traced
schedule flat threads=128 threads_per_row=128 vector=8 vectors_per_thread=1 stages=0 blocks_per_sm=0 resident_blocks=1 shared_bytes=0
program select 128
in operand0 row f32
in operand1 tile bf16
out result0 tile bf16
%0 = load operand0 : f32 row 0
%1 = load operand1 : bf16 element 0
%2 = constant 0 : f32 uniform 0
%3 = less %2 %0 : i1 row 0
%4 = constant 0 : bf16 uniform 0
%5 = select %3 %1 %4 : bf16 element 0
%6 = store %5 result0 : bf16 element 0
schedule flat threads=128 threads_per_row=128 vector=4 vectors_per_thread=1 stages=0 blocks_per_sm=0 resident_blocks=1 shared_bytes=0
program select 64
in operand0 row f32
in operand1 tile f32
out result0 tile f32
%0 = load operand0 : f32 row 0
%1 = load operand1 : f32 element 0
%2 = constant 0 : f32 uniform 0
%3 = less %2 %0 : i1 row 0
%4 = select %3 %1 %2 : f32 element 0
%5 = store %4 result0 : f32 element 0
*/
struct Program0 {
  static constexpr int kColumns = 128;
  static constexpr int kThreads = 128, kThreadsPerRow = 128, kStages = 0;
  template <int V> static constexpr bool kCached = V == 8 ? true : false;
  template <int V> static constexpr int kHeld = V == 8 ? 0 : 0;
  static constexpr int kStageCount = 1, kMostReductions = 1, kAccumulators = 0;
  static constexpr bool kCompensated = false, kStoresTiles = true;
  static constexpr int kKept = 0;
  static constexpr bool kPairs = false, kAhead = false, kCumsums = false;
  typedef RowArguments<3> Arguments;
  template <int V, int N> struct Tiles {
    static constexpr int kVector = V;
    Vector<bf16, V> operand1_1[N];
  };
  template <int V, int N> struct Columns {
    static constexpr int kVector = V;
  };
  template <int V> struct Stores {
    float result0_2[V];
  };
  struct Element {
    float operand1_1;
  };
  struct Row {
    float v0;
    bool v3;
  };
  struct Offsets {
    i64 operand0_0;
    i64 operand1_1;
    i64 result0_2;
  };
  template <class Index> static DEVICE Offsets offsets(const Arguments& arguments, const Index& index) {
    return {row_offset(arguments.operand[0], index), row_offset(arguments.operand[1], index), row_offset(arguments.operand[2], index)};
  }
  template <int V> struct TileBytes {
    static constexpr int kAll = V * 2, kSmallest = (V * 2 < 16 ? V * 2 : 16);
  };
  template <int V, int N>
  static DEVICE void load_tiles(Tiles<V, N>& tiles, int slot, const Arguments& arguments, const Offsets& offsets, int column) {
    tiles.operand1_1[slot] = load_vector<bf16, V>(arguments.operand[1].base, offsets.operand1_1 + column);
  }
  template <int V, int N>
  static DEVICE void load_columns(Columns<V, N>& columns, int slot, const Arguments& arguments, int column) {
  }
  template <int V>
  static DEVICE void copy_tiles(char* shared, const Arguments& arguments, const Offsets& offsets, int column) {
    copy_async<V * 2>(shared + (0) * kThreads + thread_index() * (V * 2), arguments.operand[1].base + (offsets.operand1_1 + column) * 2);
  }
  template <int V, int N> static DEVICE void take_tiles(Tiles<V, N>& tiles, int slot, const char* shared) {
    move_vector<bf16, V>(reinterpret_cast<char*>(&tiles.operand1_1[slot]), shared + (0) * kThreads + thread_index() * (V * 2));
  }
  template <int V, int N> static DEVICE void keep_tiles(Tiles<V, N>& tiles) {
#pragma unroll
    for (int slot = 0; slot < N; ++slot) {
      keep_packed(tiles.operand1_1[slot]);
    }
  }
  template <class Tiles, class Columns>
  static DEVICE Element element(const Tiles& tiles, int tileSlot, const Columns& columns, int columnSlot, int column, int i) {
    return {float_at(tiles.operand1_1[tileSlot], i)};
  }
  static DEVICE void load_row(Row& row, const Arguments& arguments, const Offsets& offsets) {
    row.v0 = to_float(load_vector<float, 1>(arguments.operand[0].base, offsets.operand0_0).at[0]);
    row.v3 = 0x0p+0f < row.v0;
  }
  template <class Stores, int Sums, int Slots, class Kept>
  static DEVICE void emit(const Element& element, const Row& row, Stores& stores, float (&accumulators)[Sums][Slots],
                          int i, int slot, const Kept& kept, int keptSlot) {
    const float v1 = element.operand1_1;
    const float v5 = row.v3 ? v1 : 0x0p+0f;
    stores.result0_2[i] = v5;
  }
  template <int V>
  static DEVICE void store_tiles(const Stores<V>& stores, const Arguments& arguments, const Offsets& offsets,
                                 int column) {
    store_vector<bf16, V>(arguments.operand[2].base, offsets.result0_2 + column, vector_from_floats<bf16>(stores.result0_2));
  }
  static DEVICE void store_row(const Row& row, const Arguments& arguments, const Offsets& offsets) {
  }
  static constexpr bool kScales = false;
};

struct Program1 {
  static constexpr int kColumns = 64;
  static constexpr int kThreads = 128, kThreadsPerRow = 128, kStages = 0;
  template <int V> static constexpr bool kCached = V == 4 ? true : false;
  template <int V> static constexpr int kHeld = V == 4 ? 0 : 0;
  static constexpr int kStageCount = 1, kMostReductions = 1, kAccumulators = 0;
  static constexpr bool kCompensated = false, kStoresTiles = true;
  static constexpr int kKept = 0;
  static constexpr bool kPairs = false, kAhead = false, kCumsums = false;
  typedef RowArguments<3> Arguments;
  template <int V, int N> struct Tiles {
    static constexpr int kVector = V;
    Vector<float, V> operand1_1[N];
  };
  template <int V, int N> struct Columns {
    static constexpr int kVector = V;
  };
  template <int V> struct Stores {
    float result0_2[V];
  };
  struct Element {
    float operand1_1;
  };
  struct Row {
    float v0;
    bool v3;
  };
  struct Offsets {
    i64 operand0_0;
    i64 operand1_1;
    i64 result0_2;
  };
  template <class Index> static DEVICE Offsets offsets(const Arguments& arguments, const Index& index) {
    return {row_offset(arguments.operand[0], index), row_offset(arguments.operand[1], index), row_offset(arguments.operand[2], index)};
  }
  template <int V> struct TileBytes {
    static constexpr int kAll = V * 4, kSmallest = (V * 4 < 16 ? V * 4 : 16);
  };
  template <int V, int N>
  static DEVICE void load_tiles(Tiles<V, N>& tiles, int slot, const Arguments& arguments, const Offsets& offsets, int column) {
    tiles.operand1_1[slot] = load_vector<float, V>(arguments.operand[1].base, offsets.operand1_1 + column);
  }
  template <int V, int N>
  static DEVICE void load_columns(Columns<V, N>& columns, int slot, const Arguments& arguments, int column) {
  }
  template <int V>
  static DEVICE void copy_tiles(char* shared, const Arguments& arguments, const Offsets& offsets, int column) {
    copy_async<V * 4>(shared + (0) * kThreads + thread_index() * (V * 4), arguments.operand[1].base + (offsets.operand1_1 + column) * 4);
  }
  template <int V, int N> static DEVICE void take_tiles(Tiles<V, N>& tiles, int slot, const char* shared) {
    move_vector<float, V>(reinterpret_cast<char*>(&tiles.operand1_1[slot]), shared + (0) * kThreads + thread_index() * (V * 4));
  }
  template <int V, int N> static DEVICE void keep_tiles(Tiles<V, N>& tiles) {
#pragma unroll
    for (int slot = 0; slot < N; ++slot) {
      keep_packed(tiles.operand1_1[slot]);
    }
  }
  template <class Tiles, class Columns>
  static DEVICE Element element(const Tiles& tiles, int tileSlot, const Columns& columns, int columnSlot, int column, int i) {
    return {float_at(tiles.operand1_1[tileSlot], i)};
  }
  static DEVICE void load_row(Row& row, const Arguments& arguments, const Offsets& offsets) {
    row.v0 = to_float(load_vector<float, 1>(arguments.operand[0].base, offsets.operand0_0).at[0]);
    row.v3 = 0x0p+0f < row.v0;
  }
  template <class Stores, int Sums, int Slots, class Kept>
  static DEVICE void emit(const Element& element, const Row& row, Stores& stores, float (&accumulators)[Sums][Slots],
                          int i, int slot, const Kept& kept, int keptSlot) {
    const float v1 = element.operand1_1;
    const float v4 = row.v3 ? v1 : 0x0p+0f;
    stores.result0_2[i] = v4;
  }
  template <int V>
  static DEVICE void store_tiles(const Stores<V>& stores, const Arguments& arguments, const Offsets& offsets,
                                 int column) {
    store_vector<float, V>(arguments.operand[2].base, offsets.result0_2 + column, vector_from_floats<float>(stores.result0_2));
  }
  static DEVICE void store_row(const Row& row, const Arguments& arguments, const Offsets& offsets) {
  }
  static constexpr bool kScales = false;
};

struct Arguments {
  Program0::Arguments program0;
  Program1::Arguments program1;
};

template <int V0, int V1> DEVICE void programs(const Arguments& arguments) {
  BlockRange blocks;
  if (blocks.next(arguments.program0.partialRows))
    return flat_kernel<Program0, V0>(arguments.program0, blocks);
  if (blocks.next(arguments.program1.partialRows))
    return flat_kernel<Program1, V1>(arguments.program1, blocks);
}

KERNEL(128, 1, select_v8, Arguments, programs<8, 4>)
KERNEL(128, 1, select_v1, Arguments, programs<1, 1>)

//===--- backward ---===//
/*
cermet.kernel.1
target sm_90
numerics traced
schedule flat threads=128 threads_per_row=128 vector=1 vectors_per_thread=1 stages=0 blocks_per_sm=0 resident_blocks=1 shared_bytes=0
program copy 1
out result0 tile f32
%0 = constant 0 : f32 uniform 0
%1 = cast %0 : f32 element 0
%2 = store %1 result0 : f32 element 0
*/
struct Program {
  static constexpr int kColumns = 1;
  static constexpr int kThreads = 128, kThreadsPerRow = 128, kStages = 0;
  template <int V> static constexpr bool kCached = V == 1 ? true : false;
  template <int V> static constexpr int kHeld = V == 1 ? 0 : 0;
  static constexpr int kStageCount = 1, kMostReductions = 1, kAccumulators = 0;
  static constexpr bool kCompensated = false, kStoresTiles = true;
  static constexpr int kKept = 0;
  static constexpr bool kPairs = false, kAhead = false, kCumsums = false;
  typedef RowArguments<1> Arguments;
  template <int V, int N> struct Tiles {
    static constexpr int kVector = V;
  };
  template <int V, int N> struct Columns {
    static constexpr int kVector = V;
  };
  template <int V> struct Stores {
    float result0_0[V];
  };
  struct Element {
  };
  struct Row {
  };
  struct Offsets {
    i64 result0_0;
  };
  template <class Index> static DEVICE Offsets offsets(const Arguments& arguments, const Index& index) {
    return {row_offset(arguments.operand[0], index)};
  }
  template <int V> struct TileBytes {
    static constexpr int kAll = 0, kSmallest = 16;
  };
  template <int V, int N>
  static DEVICE void load_tiles(Tiles<V, N>& tiles, int slot, const Arguments& arguments, const Offsets& offsets, int column) {
  }
  template <int V, int N>
  static DEVICE void load_columns(Columns<V, N>& columns, int slot, const Arguments& arguments, int column) {
  }
  template <int V>
  static DEVICE void copy_tiles(char* shared, const Arguments& arguments, const Offsets& offsets, int column) {
  }
  template <int V, int N> static DEVICE void take_tiles(Tiles<V, N>& tiles, int slot, const char* shared) {
  }
  template <int V, int N> static DEVICE void keep_tiles(Tiles<V, N>& tiles) {
#pragma unroll
    for (int slot = 0; slot < N; ++slot) {
    }
  }
  template <class Tiles, class Columns>
  static DEVICE Element element(const Tiles& tiles, int tileSlot, const Columns& columns, int columnSlot, int column, int i) {
    return {};
  }
  static DEVICE void load_row(Row& row, const Arguments& arguments, const Offsets& offsets) {
  }
  template <class Stores, int Sums, int Slots, class Kept>
  static DEVICE void emit(const Element& element, const Row& row, Stores& stores, float (&accumulators)[Sums][Slots],
                          int i, int slot, const Kept& kept, int keptSlot) {
    const float v1 = 0x0p+0f;
    stores.result0_0[i] = v1;
  }
  template <int V>
  static DEVICE void store_tiles(const Stores<V>& stores, const Arguments& arguments, const Offsets& offsets,
                                 int column) {
    store_vector<float, V>(arguments.operand[0].base, offsets.result0_0 + column, vector_from_floats<float>(stores.result0_0));
  }
  static DEVICE void store_row(const Row& row, const Arguments& arguments, const Offsets& offsets) {
  }
  static constexpr bool kScales = false;
};

KERNEL(128, 1, copy_v1, Program::Arguments, flat_kernel<Program, 1>)

//===--- backward ---===//
/*
cermet.kernel.1
target sm_90
numerics traced
schedule flat threads=128 threads_per_row=128 vector=4 vectors_per_thread=1 stages=0 blocks_per_sm=0 resident_blocks=1 shared_bytes=0
program select 64
in operand0 row f32
in operand1 tile f32
out result0 tile f32
%0 = load operand0 : f32 row 0
%1 = load operand1 : f32 element 0
%2 = constant 0 : f32 uniform 0
%3 = less %2 %0 : i1 row 0
%4 = select %3 %1 %2 : f32 element 0
%5 = store %4 result0 : f32 element 0
schedule flat threads=128 threads_per_row=128 vector=8 vectors_per_thread=1 stages=0 blocks_per_sm=0 resident_blocks=1 shared_bytes=0
program select 128
in operand0 row f32
in operand1 tile bf16
out result0 tile bf16
%0 = load operand0 : f32 row 0
%1 = load operand1 : bf16 element 0
%2 = constant 0 : f32 uniform 0
%3 = less %2 %0 : i1 row 0
%4 = select %3 %1 %2 : f32 element 0
%5 = cast %4 : bf16 element 0
%6 = store %5 result0 : bf16 element 0
*/
struct Program0 {
  static constexpr int kColumns = 64;
  static constexpr int kThreads = 128, kThreadsPerRow = 128, kStages = 0;
  template <int V> static constexpr bool kCached = V == 4 ? true : false;
  template <int V> static constexpr int kHeld = V == 4 ? 0 : 0;
  static constexpr int kStageCount = 1, kMostReductions = 1, kAccumulators = 0;
  static constexpr bool kCompensated = false, kStoresTiles = true;
  static constexpr int kKept = 0;
  static constexpr bool kPairs = false, kAhead = false, kCumsums = false;
  typedef RowArguments<3> Arguments;
  template <int V, int N> struct Tiles {
    static constexpr int kVector = V;
    Vector<float, V> operand1_1[N];
  };
  template <int V, int N> struct Columns {
    static constexpr int kVector = V;
  };
  template <int V> struct Stores {
    float result0_2[V];
  };
  struct Element {
    float operand1_1;
  };
  struct Row {
    float v0;
    bool v3;
  };
  struct Offsets {
    i64 operand0_0;
    i64 operand1_1;
    i64 result0_2;
  };
  template <class Index> static DEVICE Offsets offsets(const Arguments& arguments, const Index& index) {
    return {row_offset(arguments.operand[0], index), row_offset(arguments.operand[1], index), row_offset(arguments.operand[2], index)};
  }
  template <int V> struct TileBytes {
    static constexpr int kAll = V * 4, kSmallest = (V * 4 < 16 ? V * 4 : 16);
  };
  template <int V, int N>
  static DEVICE void load_tiles(Tiles<V, N>& tiles, int slot, const Arguments& arguments, const Offsets& offsets, int column) {
    tiles.operand1_1[slot] = load_vector<float, V>(arguments.operand[1].base, offsets.operand1_1 + column);
  }
  template <int V, int N>
  static DEVICE void load_columns(Columns<V, N>& columns, int slot, const Arguments& arguments, int column) {
  }
  template <int V>
  static DEVICE void copy_tiles(char* shared, const Arguments& arguments, const Offsets& offsets, int column) {
    copy_async<V * 4>(shared + (0) * kThreads + thread_index() * (V * 4), arguments.operand[1].base + (offsets.operand1_1 + column) * 4);
  }
  template <int V, int N> static DEVICE void take_tiles(Tiles<V, N>& tiles, int slot, const char* shared) {
    move_vector<float, V>(reinterpret_cast<char*>(&tiles.operand1_1[slot]), shared + (0) * kThreads + thread_index() * (V * 4));
  }
  template <int V, int N> static DEVICE void keep_tiles(Tiles<V, N>& tiles) {
#pragma unroll
    for (int slot = 0; slot < N; ++slot) {
      keep_packed(tiles.operand1_1[slot]);
    }
  }
  template <class Tiles, class Columns>
  static DEVICE Element element(const Tiles& tiles, int tileSlot, const Columns& columns, int columnSlot, int column, int i) {
    return {float_at(tiles.operand1_1[tileSlot], i)};
  }
  static DEVICE void load_row(Row& row, const Arguments& arguments, const Offsets& offsets) {
    row.v0 = to_float(load_vector<float, 1>(arguments.operand[0].base, offsets.operand0_0).at[0]);
    row.v3 = 0x0p+0f < row.v0;
  }
  template <class Stores, int Sums, int Slots, class Kept>
  static DEVICE void emit(const Element& element, const Row& row, Stores& stores, float (&accumulators)[Sums][Slots],
                          int i, int slot, const Kept& kept, int keptSlot) {
    const float v1 = element.operand1_1;
    const float v4 = row.v3 ? v1 : 0x0p+0f;
    stores.result0_2[i] = v4;
  }
  template <int V>
  static DEVICE void store_tiles(const Stores<V>& stores, const Arguments& arguments, const Offsets& offsets,
                                 int column) {
    store_vector<float, V>(arguments.operand[2].base, offsets.result0_2 + column, vector_from_floats<float>(stores.result0_2));
  }
  static DEVICE void store_row(const Row& row, const Arguments& arguments, const Offsets& offsets) {
  }
  static constexpr bool kScales = false;
};

struct Program1 {
  static constexpr int kColumns = 128;
  static constexpr int kThreads = 128, kThreadsPerRow = 128, kStages = 0;
  template <int V> static constexpr bool kCached = V == 8 ? true : false;
  template <int V> static constexpr int kHeld = V == 8 ? 0 : 0;
  static constexpr int kStageCount = 1, kMostReductions = 1, kAccumulators = 0;
  static constexpr bool kCompensated = false, kStoresTiles = true;
  static constexpr int kKept = 0;
  static constexpr bool kPairs = false, kAhead = false, kCumsums = false;
  typedef RowArguments<3> Arguments;
  template <int V, int N> struct Tiles {
    static constexpr int kVector = V;
    Vector<bf16, V> operand1_1[N];
  };
  template <int V, int N> struct Columns {
    static constexpr int kVector = V;
  };
  template <int V> struct Stores {
    float result0_2[V];
  };
  struct Element {
    float operand1_1;
  };
  struct Row {
    float v0;
    bool v3;
  };
  struct Offsets {
    i64 operand0_0;
    i64 operand1_1;
    i64 result0_2;
  };
  template <class Index> static DEVICE Offsets offsets(const Arguments& arguments, const Index& index) {
    return {row_offset(arguments.operand[0], index), row_offset(arguments.operand[1], index), row_offset(arguments.operand[2], index)};
  }
  template <int V> struct TileBytes {
    static constexpr int kAll = V * 2, kSmallest = (V * 2 < 16 ? V * 2 : 16);
  };
  template <int V, int N>
  static DEVICE void load_tiles(Tiles<V, N>& tiles, int slot, const Arguments& arguments, const Offsets& offsets, int column) {
    tiles.operand1_1[slot] = load_vector<bf16, V>(arguments.operand[1].base, offsets.operand1_1 + column);
  }
  template <int V, int N>
  static DEVICE void load_columns(Columns<V, N>& columns, int slot, const Arguments& arguments, int column) {
  }
  template <int V>
  static DEVICE void copy_tiles(char* shared, const Arguments& arguments, const Offsets& offsets, int column) {
    copy_async<V * 2>(shared + (0) * kThreads + thread_index() * (V * 2), arguments.operand[1].base + (offsets.operand1_1 + column) * 2);
  }
  template <int V, int N> static DEVICE void take_tiles(Tiles<V, N>& tiles, int slot, const char* shared) {
    move_vector<bf16, V>(reinterpret_cast<char*>(&tiles.operand1_1[slot]), shared + (0) * kThreads + thread_index() * (V * 2));
  }
  template <int V, int N> static DEVICE void keep_tiles(Tiles<V, N>& tiles) {
#pragma unroll
    for (int slot = 0; slot < N; ++slot) {
      keep_packed(tiles.operand1_1[slot]);
    }
  }
  template <class Tiles, class Columns>
  static DEVICE Element element(const Tiles& tiles, int tileSlot, const Columns& columns, int columnSlot, int column, int i) {
    return {float_at(tiles.operand1_1[tileSlot], i)};
  }
  static DEVICE void load_row(Row& row, const Arguments& arguments, const Offsets& offsets) {
    row.v0 = to_float(load_vector<float, 1>(arguments.operand[0].base, offsets.operand0_0).at[0]);
    row.v3 = 0x0p+0f < row.v0;
  }
  template <class Stores, int Sums, int Slots, class Kept>
  static DEVICE void emit(const Element& element, const Row& row, Stores& stores, float (&accumulators)[Sums][Slots],
                          int i, int slot, const Kept& kept, int keptSlot) {
    const float v1 = element.operand1_1;
    const float v4 = row.v3 ? v1 : 0x0p+0f;
    const float v5 = v4;
    stores.result0_2[i] = v5;
  }
  template <int V>
  static DEVICE void store_tiles(const Stores<V>& stores, const Arguments& arguments, const Offsets& offsets,
                                 int column) {
    store_vector<bf16, V>(arguments.operand[2].base, offsets.result0_2 + column, vector_from_floats<bf16>(stores.result0_2));
  }
  static DEVICE void store_row(const Row& row, const Arguments& arguments, const Offsets& offsets) {
  }
  static constexpr bool kScales = false;
};

struct Arguments {
  Program0::Arguments program0;
  Program1::Arguments program1;
};

template <int V0, int V1> DEVICE void programs(const Arguments& arguments) {
  BlockRange blocks;
  if (blocks.next(arguments.program0.partialRows))
    return flat_kernel<Program0, V0>(arguments.program0, blocks);
  if (blocks.next(arguments.program1.partialRows))
    return flat_kernel<Program1, V1>(arguments.program1, blocks);
}

KERNEL(128, 1, select_v8, Arguments, programs<4, 8>)
KERNEL(128, 1, select_v1, Arguments, programs<1, 1>)

