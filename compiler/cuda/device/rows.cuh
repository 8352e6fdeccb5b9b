// Where a row's operands begin: both skeletons walk rows of up to four extents whose strides do not collapse.

// Whether two operands are the same rows of the same memory.
DEVICE bool is_same(const RowOperand& a, const RowOperand& b) {
  bool same = a.base == b.base;
#pragma unroll
  for (int extent = 0; extent < 4; ++extent)
    same = same && a.stride[extent] == b.stride[extent];
  return same;
}

// A row's index in each of the four extents.
struct RowIndex {
  i64 at[4];
};

// Kept out of line: three 64-bit divisions cost more to compile than most programs.
__device__ __noinline__ RowIndex split_row(i64 row, i64 extent1, i64 extent2, i64 extent3) {
  RowIndex index;
  index.at[3] = row % extent3;
  row /= extent3;
  index.at[2] = row % extent2;
  row /= extent2;
  index.at[1] = row % extent1;
  index.at[0] = row / extent1;
  return index;
}

DEVICE i64 row_offset(const RowOperand& operand, const RowIndex& index) {
  return index.at[0] * operand.stride[0] + index.at[1] * operand.stride[1] + index.at[2] * operand.stride[2] +
         index.at[3] * operand.stride[3];
}

// The same where the launcher gives divisors: up to three extents, fewer than 2^31 rows and strides of 32 bits. Nearly all
// that do not collapse are such, and cost three multiplications an operand.
struct ShortIndex {
  u32 at[3];
};
DEVICE u32 divided(u32 number, const RowDivisor& divisor) {
  return u32(u64(number) * divisor.multiplier >> divisor.shift);
}
DEVICE ShortIndex split_short_row(u32 row, u32 extent2, u32 extent3, const RowDivisor (&divisor)[2]) {
  const u32 rest = divided(row, divisor[1]);
  const u32 outermost = divided(rest, divisor[0]);
  return {{outermost, rest - outermost * extent2, row - rest * extent3}};
}
DEVICE i64 row_offset(const RowOperand& operand, const ShortIndex& index) {
  return i64(u64(index.at[0]) * u32(operand.stride[1]) + u64(index.at[1]) * u32(operand.stride[2]) +
             u64(index.at[2]) * u32(operand.stride[3]));
}

// A thread's expensive values that a later stage reads again, for each of its elements; unused where a stage computes
// them again.
template <int Values, int Slots> struct KeptValues {
  static constexpr bool kIsUsed = Values > 0 && Slots > 0;
  float at[Values > 0 ? Values : 1][Slots > 0 ? Slots : 1];
};

// A row's index where one extent is left.
struct RowNumber {
  i64 row;
};
DEVICE i64 row_offset(const RowOperand& operand, const RowNumber& index) { return index.row * operand.stride[3]; }

// Where the row of a gathered operand begins whose number `numbers` holds at `offset`: its rows, of which there are
// stride[2], are stride[3] apart. A number that no row has gives no_row().
DEVICE i64 no_row() { return i64(u64(1) << 63); }
template <class T> DEVICE i64 gathered_offset(const RowOperand& operand, const char* numbers, i64 offset) {
  const i64 number = to_integer(load_vector<T, 1>(numbers, offset).at[0]);
  return u64(number) < u64(operand.stride[2]) ? number * operand.stride[3] : no_row();
}

// The columns' neighbours in pairs; columns of half as many, each twice.
template <class T, int Count> DEVICE Vector<T, Count> load_pairs(const char* base, i64 offset, int column) {
  if constexpr (Count == 1) {
    return load_vector<T, 1>(base, offset + (column ^ 1));
  } else {
    const Vector<T, Count> given = load_vector<T, Count>(base, offset + column);
    Vector<T, Count> result;
#pragma unroll
    for (int i = 0; i < Count; ++i)
      result.at[i] = given.at[i ^ 1];
    return result;
  }
}
template <class T, int Count> DEVICE Vector<T, Count> load_half(const char* base, i64 offset, int column) {
  constexpr int kHalf = Count == 1 ? 1 : Count / 2;
  const Vector<T, kHalf> given = load_vector<T, kHalf>(base, offset + column / 2);
  Vector<T, Count> result;
#pragma unroll
  for (int i = 0; i < Count; ++i)
    result.at[i] = given.at[i / 2];
  return result;
}

template <class T, int Count> DEVICE Vector<T, Count> filled_vector(T value) {
  Vector<T, Count> result;
#pragma unroll
  for (int i = 0; i < Count; ++i)
    result.at[i] = value;
  return result;
}

// The elements of such a row, `step` apart where that is given; `missing` where there is no row.
template <class T, int Count>
DEVICE Vector<T, Count> load_gathered(const char* base, i64 offset, int column, T missing) {
  if (offset == no_row())
    return filled_vector<T, Count>(missing);
  return load_vector<T, Count>(base, offset + column);
}
template <class T, int Count>
DEVICE Vector<T, Count> load_gathered(const char* base, i64 offset, int column, i64 step, T missing) {
  if (offset == no_row())
    return filled_vector<T, Count>(missing);
  return load_strided<T, Count>(base, offset, column, step);
}
// Where in a list of numbers those begin and end whose rows of a gathered operand are added to one.
struct Bag {
  i64 begin, end;
};
template <class From, class To, class Index>
DEVICE Bag bag_of(const RowOperand& list, const RowOperand& from, const RowOperand& to, const Index& index) {
  const i64 begin = to_integer(load_vector<From, 1>(from.base, row_offset(from, index)).at[0]);
  const i64 end = to_integer(load_vector<To, 1>(to.base, row_offset(to, index)).at[0]);
  return {begin < 0 ? 0 : begin, end < list.stride[2] ? end : list.stride[2]};
}
DEVICE RowOperand no_sums() { return {}; }

// Adds the rows of a table from `begin` to before `end`, those whose numbers `number` says, in their order; several are on
// their way at a time.
template <class T, int Count, bool IsStrided, class Number>
DEVICE void add_rows(float (&sum)[Count], const RowOperand& table, i64 begin, i64 end, int column, Number number) {
  constexpr int kAtOnce = 4;
  for (i64 first = begin; first < end; first += kAtOnce) {
    Vector<T, Count> rows[kAtOnce];
    float missing[kAtOnce]; // added to a row: NaN where there is none of its number
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) { // without a branch, so that all are asked for before one is there
      const i64 at = number(first + k < end ? first + k : end - 1);
      const bool isThere = u64(at) < u64(table.stride[2]);
      const i64 offset = isThere ? at * table.stride[3] : 0;
      missing[k] = isThere ? 0.0f : float_from_bits(0x7fc00000u);
      if constexpr (IsStrided)
        rows[k] = load_strided<T, Count>(table.base, offset, column, table.step);
      else
        rows[k] = load_vector<T, Count>(table.base, offset + column);
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k)
      if (first + k < end)
#pragma unroll
        for (int i = 0; i < Count; ++i)
          sum[i] += float_at(rows[k], i) + missing[k];
  }
}

// The sum of a bag's rows, wide and rounded once to T; of whole parts of so many numbers that `sums` has, theirs.
template <class T, class Source, class Number, int Count, bool IsStrided, int Part>
DEVICE Vector<T, Count> load_sum(const RowOperand& operand, const RowOperand& list, const RowOperand& sums,
                                 const Bag& bag, int column) {
  float sum[Count] = {};
  const auto number = [&](i64 i) { return to_integer(load_vector<Number, 1>(list.base, i * list.stride[3]).at[0]); };
  i64 begin = bag.begin, end = bag.end;
  if (end - begin >= Part) {
    const i64 first = (begin + Part - 1) / Part, last = end / Part < sums.stride[2] ? end / Part : sums.stride[2];
    if (first < last) {
      add_rows<Source, Count, IsStrided>(sum, operand, begin, first * Part, column, number);
      add_rows<float, Count, false>(sum, sums, first, last, column, [](i64 i) { return i; });
      begin = last * Part;
    }
  }
  if (begin < end)
    add_rows<Source, Count, IsStrided>(sum, operand, begin, end, column, number);
  return vector_from_floats<T, Count>(sum);
}

// The same to the thread's own shared memory.
template <class T, int Count>
DEVICE void copy_gathered(char* shared, const char* base, i64 offset, int column, T missing) {
  if (offset != no_row()) {
    copy_async<Count * int(sizeof(T))>(shared, base + (offset + column) * i64(sizeof(T)));
    return;
  }
  const Vector<T, Count> none = filled_vector<T, Count>(missing);
  move_vector<T, Count>(shared, reinterpret_cast<const char*>(&none));
}

// Kahan's addition: `lost` is how much too large `sum` is. It keeps long sums over rows as accurate as short ones. A sum
// that became infinite has lost nothing: it stays infinite, as eager's does.
DEVICE void add_compensated(float& sum, float& lost, float value) {
  const float wanted = value - lost, grown = sum + wanted;
  const float error = (grown - sum) - wanted;
  lost = error - error == 0 ? error : 0;
  sum = grown;
}

// The last stage for a vector of elements: one at a time, or two where the program has an `emit_pair`. `slot` is the first
// element's place among the accumulators, `keptSlot` among the kept values.
template <class P, int V, class Tiles, class Columns, class Stores, int Sums, int Slots, class Kept>
DEVICE void emit_vector(const Tiles& tiles, int tileSlot, const Columns& columns, int columnSlot, int column,
                        const typename P::Row& values, Stores& stores, float (&accumulators)[Sums][Slots], int slot,
                        const Kept& kept, int keptSlot) {
  if constexpr (P::kPairs && V % 2 == 0) {
#pragma unroll
    for (int i = 0; i < V; i += 2)
      P::emit_pair(P::pair(tiles, tileSlot, columns, columnSlot, column, i), values, stores, accumulators, i, slot + i,
                   kept, keptSlot + i);
  } else {
#pragma unroll
    for (int i = 0; i < V; ++i)
      P::emit(P::element(tiles, tileSlot, columns, columnSlot, column, i), values, stores, accumulators, i, slot + i,
              kept, keptSlot + i);
  }
}

// Where the row's operands begin. Rows of one extent, nearly all, are spared the multiplications with the other three.
template <class P> DEVICE typename P::Offsets row_offsets(const typename P::Arguments& arguments, i64 row) {
  if (arguments.rowRank == 1)
    return P::offsets(arguments, RowNumber{row});
  if (arguments.divisor[0].multiplier != 0)
    return P::offsets(arguments, split_short_row(u32(row), u32(arguments.extent[2]), u32(arguments.extent[3]),
                                                 arguments.divisor));
  return P::offsets(arguments, split_row(row, arguments.extent[1], arguments.extent[2], arguments.extent[3]));
}
