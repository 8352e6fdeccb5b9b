// The turned skeleton: elementwise work on tiles that may lie in memory the other way round, as a transposed matrix
// does. A block has a tile of as many rows as columns, kThreadsPerRow threads for each. It reads those inputs down the
// columns, whose neighbours lie together, into shared memory; then each thread moves vectors along the rows, as in
// flat.cuh, which stands before this.
//
// A program P supplies what flat.cuh asks for, but that load_tiles takes the row's number in the block's tile, and
//   turn_tiles(arguments, offsets, row, column)  brings the thread's part of a row of such tiles to shared memory

// An input's tile of Side rows and columns in shared memory. Rows are so far apart that a warp's threads, each in a row
// of its own, meet in no bank; so they are aligned for no more than kPiece elements.
template <class T, int Side> struct TurnedTile {
  static constexpr int kAlignment = sizeof(T) < 4 ? 4 : sizeof(T), kPiece = kAlignment / sizeof(T);
  static constexpr int kPitch = Side * sizeof(T) + kAlignment, kBytes = Side * kPitch;
};

// Whether rows lie closer together than columns, which strides tell only at a launch. Others are read as in flat.cuh.
DEVICE bool is_turned(const RowOperand& operand) { return operand.stride[3] < operand.step; }

// Every so many columns of a row, from the thread's first on; a group is asked for before one of it is there.
template <class T, int Columns, int Side, int Threads>
DEVICE void turn_tile(char* tile, const RowOperand& operand, i64 offset, int row, int column) {
  constexpr int kApart = Threads / Side, kGroup = 16 < Side / kApart ? 16 : Side / kApart;
  if (!is_turned(operand))
    return;
#pragma unroll 1
  for (int first = thread_index() / Side; first < Side; first += kGroup * kApart) {
    const auto has = [&](int i) { return Columns % Side == 0 || column + first + i * kApart < Columns; };
    Vector<T, 1> values[kGroup];
#pragma unroll
    for (int i = 0; i < kGroup; ++i)
      if (has(i))
        values[i] = load_strided<T, 1>(operand.base, offset, column + first + i * kApart, operand.step);
#pragma unroll
    for (int i = 0; i < kGroup; ++i)
      if (has(i))
        store_vector(tile + row * TurnedTile<T, Side>::kPitch, first + i * kApart, values[i]);
  }
}

template <class T, int Side, int V>
DEVICE Vector<T, V> load_turned(const char* tile, const RowOperand& operand, i64 offset, int row, int column) {
  if (!is_turned(operand))
    return load_strided<T, V>(operand.base, offset, column, operand.step);
  constexpr int kPiece = V < TurnedTile<T, Side>::kPiece ? V : TurnedTile<T, Side>::kPiece;
  const char* source = tile + row * TurnedTile<T, Side>::kPitch + column % Side * int(sizeof(T));
  Vector<T, V> result;
#pragma unroll
  for (int i = 0; i < V; i += kPiece)
    move_vector<T, kPiece>(reinterpret_cast<char*>(&result.at[i]), source + i * int(sizeof(T)));
  return result;
}

template <class P, int V, class Blocks = WholeGrid>
DEVICE void turned_kernel(const typename P::Arguments& arguments, const Blocks& blocks = Blocks()) {
  constexpr int kSide = P::kThreads / P::kThreadsPerRow;
  constexpr int kAcross = (P::kColumns + kSide - 1) / kSide; // tiles
  constexpr int kSteps = kSide / V;                          // vectors in a row of a tile
  const u32 block = u32(blocks.index());                     // a grid has fewer than 2^31
  const i64 top = i64(block / kAcross) * kSide;
  const int left = int(block % kAcross) * kSide;
  const int mine = thread_index() % kSide;
  if (top + mine < arguments.rows)
    P::turn_tiles(arguments, row_offsets<P>(arguments, top + mine), mine, left);
  barrier();
  for (int at = thread_index(); at < kSide * kSteps; at += P::kThreads) {
    const int row = at / kSteps, column = left + at % kSteps * V;
    if (top + row < arguments.rows && column < P::kColumns)
      flat_vector<P, V>(arguments, top + row, column, row);
  }
}
