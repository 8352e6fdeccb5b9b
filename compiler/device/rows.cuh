// Where a row's operands begin: both skeletons walk rows of up to four extents whose strides do not collapse.

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

// A row's index where one extent is left.
struct RowNumber {
  i64 row;
};
DEVICE i64 row_offset(const RowOperand& operand, const RowNumber& index) { return index.row * operand.stride[3]; }

// Where the row's operands begin. Rows of one extent, nearly all, are spared the multiplications with the other three.
template <class P> DEVICE typename P::Offsets row_offsets(const typename P::Arguments& arguments, i64 row) {
  if (arguments.rowRank == 1)
    return P::offsets(arguments, RowNumber{row});
  return P::offsets(arguments, split_row(row, arguments.extent[1], arguments.extent[2], arguments.extent[3]));
}
