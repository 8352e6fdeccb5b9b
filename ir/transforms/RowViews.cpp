#include "ir/transforms/RowViews.h"
#include "ir/dialect/Ops.h"

using namespace mlir;

namespace cermet::ir {
namespace {

using Index = SmallVector<int64_t>;

Dimensions shapeOf(Value value) {
  return dimensions(cast<RankedTensorType>(value.getType()));
}

bool sameRows(ArrayRef<Dimension> a, ArrayRef<Dimension> b, size_t rows) {
  return a.size() >= rows && b.size() >= rows && a.take_front(rows) == b.take_front(rows);
}

Index split(int64_t element, ArrayRef<Dimension> inner) {
  Index index(inner.size());
  for (size_t i = inner.size(); i-- > 0; element /= inner[i].size)
    index[i] = element % inner[i].size;
  return index;
}

int64_t join(ArrayRef<int64_t> index, ArrayRef<Dimension> inner) {
  int64_t element = 0;
  for (auto [at, dimension] : llvm::zip_equal(index, inner))
    element = element * dimension.size + at;
  return element;
}

} // namespace

std::optional<int64_t> rowSize(Value value, size_t rows) {
  Dimensions shape = shapeOf(value);
  if (shape.size() < rows)
    return std::nullopt;
  int64_t size = 1;
  for (const Dimension& dimension : ArrayRef(shape).drop_front(rows)) {
    if (dimension.isSymbol())
      return std::nullopt;
    size *= dimension.size;
  }
  return size;
}

std::optional<RowElement> sourceElement(Operation* op, size_t rows, int64_t at) {
  if (!isa<SliceOp, ReshapeOp, TransposeOp, ConcatOp, BroadcastOp>(op) || !rowSize(op->getResult(0), rows))
    return std::nullopt;
  const Dimensions to = shapeOf(op->getResult(0)), from = shapeOf(op->getOperand(0));
  const auto inner = ArrayRef(to).drop_front(rows);
  Index index = split(at, inner);
  if (isa<BroadcastOp>(op)) {
    // Dimensions align at the right; what the operand has not, and its ones, repeat.
    const size_t own = std::min(from.size(), inner.size());
    const auto source = ArrayRef(from).take_back(own);
    Index kept(index.end() - own, index.end());
    for (auto [place, dimension] : llvm::zip_equal(kept, source))
      place = dimension.isOne() ? 0 : place;
    return RowElement{op->getOperand(0), join(kept, source)};
  }
  if (!sameRows(from, to, rows) || !rowSize(op->getOperand(0), rows))
    return std::nullopt;
  const auto source = ArrayRef(from).drop_front(rows);
  if (isa<ReshapeOp>(op))
    return RowElement{op->getOperand(0), at};
  if (auto slice = dyn_cast<SliceOp>(op)) {
    for (auto [dim, start] : llvm::enumerate(slice.getStarts())) {
      if (dim >= rows)
        index[dim - rows] += start;
      else if (start != 0)
        return std::nullopt;
    }
    return RowElement{op->getOperand(0), join(index, source)};
  }
  if (auto transpose = dyn_cast<TransposeOp>(op)) {
    Index given(index.size());
    for (auto [dim, before] : llvm::enumerate(transpose.getPermutation())) {
      if (dim >= rows)
        given[before - rows] = index[dim - rows];
      else if (before != int64_t(dim))
        return std::nullopt;
    }
    return RowElement{op->getOperand(0), join(given, source)};
  }
  const size_t dim = cast<ConcatOp>(op).getDim();
  if (dim < rows)
    return std::nullopt;
  int64_t& place = index[dim - rows];
  for (Value part : op->getOperands()) {
    const Dimensions shape = shapeOf(part);
    if (place < shape[dim].size)
      return RowElement{part, join(index, ArrayRef(shape).drop_front(rows))};
    place -= shape[dim].size;
  }
  return std::nullopt;
}

} // namespace cermet::ir
