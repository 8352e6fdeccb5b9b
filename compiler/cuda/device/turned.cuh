// The turned skeleton: elementwise work on tiles that may lie in memory the other way round, as a transposed matrix
// does. A block has a tile of as many rows as columns, kThreadsPerRow threads for each. It reads those inputs down the
// columns, whose neighbours lie together, into shared memory; then each thread moves vectors along the rows, as in
// flat.cuh, which stands before this.
//
// A program P supplies what flat.cuh asks for, but that load_tiles takes the row's number in the block's tile, and
//   comes_in_pieces(arguments)                          whether of all such tiles four neighbours come in one access
//   turn_tiles<Pieces>(arguments, offsets, row, column) brings the thread's part of a row of such tiles, or of four
//                                                       rows, to shared memory

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

// Of a square of tiles: a warp has 8 x 4 of them, so that its accesses are whole sectors of memory and meet in no bank.
template <int Side, int Threads> struct TurnedPieces {
  static constexpr int kDown = Side / 32, kAcross = Threads / 32 / kDown * 16; // warps, and columns at once
  static constexpr int kTimes = Side / kAcross;
  static_assert(kTimes * kAcross == Side);
  DEVICE static int row() { return 4 * (thread_index() % 8 + thread_index() / 32 % kDown * 8); }
  DEVICE static int column(int time) {
    return time * kAcross + 4 * (thread_index() / 8 % 4 + thread_index() / 32 / kDown * 4);
  }
};

template <class T> DEVICE bool has_pieces(const RowOperand& operand) {
  constexpr int kBytes = 4 * sizeof(T) < 16 ? 4 * sizeof(T) : 16;
  const i64 strides = operand.stride[0] | operand.stride[1] | operand.stride[2] | operand.step;
  const bool aligned = strides % 4 == 0 && reinterpret_cast<u64>(operand.base) % kBytes == 0;
  return !is_turned(operand) || (operand.stride[3] == 1 && aligned);
}

// Four rows of the tile, four columns at a time; all are asked for before one is there.
template <class T, int Columns, int Side, int Threads>
DEVICE void turn_pieces(char* tile, const RowOperand& operand, i64 offset, int row, int column) {
  typedef TurnedPieces<Side, Threads> Pieces;
  if (!is_turned(operand))
    return;
  Vector<T, 4> down[Pieces::kTimes][4];
#pragma unroll
  for (int time = 0; time < Pieces::kTimes; ++time)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = column + Pieces::column(time) + i;
      if (Columns % Side == 0 || at < Columns)
        down[time][i] = load_vector<T, 4>(operand.base, offset + at * operand.step);
    }
  constexpr int kPiece = TurnedTile<T, Side>::kPiece;
#pragma unroll
  for (int time = 0; time < Pieces::kTimes; ++time) {
    const Vector<T, 4>(&four)[4] = down[time];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Vector<T, 4> along = {four[0].at[i], four[1].at[i], four[2].at[i], four[3].at[i]};
      char* target = tile + (row + i) * TurnedTile<T, Side>::kPitch + Pieces::column(time) * int(sizeof(T));
#pragma unroll
      for (int at = 0; at < 4; at += kPiece)
        move_vector<T, kPiece>(target + at * int(sizeof(T)), reinterpret_cast<const char*>(&along.at[at]));
    }
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
  const bool pieces = arguments.extent[3] % 4 == 0 && P::comes_in_pieces(arguments);
  const int mine = pieces ? TurnedPieces<kSide, P::kThreads>::row() : thread_index() % kSide;
  if (top + mine < arguments.rows) {
    const typename P::Offsets offsets = row_offsets<P>(arguments, top + mine);
    if (pieces)
      P::template turn_tiles<true>(arguments, offsets, mine, left);
    else
      P::template turn_tiles<false>(arguments, offsets, mine, left);
  }
  barrier();
  for (int at = thread_index(); at < kSide * kSteps; at += P::kThreads) {
    const int row = at / kSteps, column = left + at % kSteps * V;
    if (top + row < arguments.rows && column < P::kColumns)
      flat_vector<P, V>(arguments, top + row, column, row);
  }
}
