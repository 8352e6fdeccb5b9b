// Operations that only rearrange each row: where an element of their result comes from.
#pragma once
#include "mlir/IR/Value.h"
#include "llvm/ADT/SmallVector.h"
#include <optional>

namespace cermet::ir {

struct RowElement {
  mlir::Value value;
  int64_t at; // in the value's row, in memory order
};

// A row is what the first `rows` dimensions leave: its elements are counted in memory order. For a slice, reshape,
// transpose, concat or broadcast that keeps the first `rows` dimensions as they are (a broadcast may add or repeat
// them): which element of which operand each of the result's elements is. None for anything else.
class RowView {
public:
  RowView(mlir::Operation* op, size_t rows);
  std::optional<RowElement> source(int64_t at) const;

private:
  mlir::Operation* op;
  llvm::SmallVector<int64_t> inner, starts; // sizes of the result's row; of a slice, or of a concat's parts along `dim`
  llvm::SmallVector<llvm::SmallVector<int64_t>, 2> parts; // sizes of each operand's row
  llvm::SmallVector<unsigned> order;                      // of a transpose
  size_t dim = 0;
  bool isKnown = false;
};

// The elements of a row; none where one of its dimensions is symbolic or there are fewer than `rows` dimensions.
std::optional<int64_t> rowSize(mlir::Value value, size_t rows);

} // namespace cermet::ir
