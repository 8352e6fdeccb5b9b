// Operations that only rearrange each row: where an element of their result comes from.
#pragma once
#include "mlir/IR/Value.h"
#include <optional>

namespace cermet::ir {

struct RowElement {
  mlir::Value value;
  int64_t at; // in the value's row, in memory order
};

// A row is what the first `rows` dimensions leave: its elements are counted in memory order. For a slice, reshape,
// transpose, concat or broadcast that keeps the first `rows` dimensions as they are (a broadcast may add or repeat
// them): which element of which operand the result's element `at` is. None for anything else.
std::optional<RowElement> sourceElement(mlir::Operation* op, size_t rows, int64_t at);

// The elements of a row; none where one of its dimensions is symbolic or there are fewer than `rows` dimensions.
std::optional<int64_t> rowSize(mlir::Value value, size_t rows);

} // namespace cermet::ir
