#include "ir/transforms/RowViews.h"
#include "ir/dialect/Ops.h"

using namespace mlir;

namespace cermet::ir {
namespace {

using Index = SmallVector<int64_t>;

bool sameRows(ArrayRef<Dimension> a, ArrayRef<Dimension> b, size_t rows) {
  return a.size() >= rows && b.size() >= rows && a.take_front(rows) == b.take_front(rows);
}

Index split(int64_t element, ArrayRef<int64_t> inner) {
  Index index(inner.size());
  for (size_t i = inner.size(); i-- > 0; element /= inner[i])
    index[i] = element % inner[i];
  return index;
}

int64_t join(ArrayRef<int64_t> index, ArrayRef<int64_t> inner) {
  int64_t element = 0;
  for (auto [at, size] : llvm::zip_equal(index, inner))
    element = element * size + at;
  return element;
}

Index sizes(ArrayRef<Dimension> dimensions) {
  return llvm::map_to_vector(dimensions, [](const Dimension& dimension) { return dimension.size; });
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

RowView::RowView(Operation* op, size_t rows) : op(op) {
  if (!isa<SliceOp, ReshapeOp, TransposeOp, ConcatOp, BroadcastOp>(op) || !rowSize(op->getResult(0), rows))
    return;
  const Dimensions to = shapeOf(op->getResult(0));
  inner = sizes(ArrayRef(to).drop_front(rows));
  if (isa<BroadcastOp>(op)) { // dimensions align at the right
    const Dimensions from = shapeOf(op->getOperand(0));
    parts.push_back(sizes(ArrayRef(from).take_back(std::min(from.size(), inner.size()))));
    isKnown = true;
    return;
  }
  for (Value operand : op->getOperands()) {
    const Dimensions from = shapeOf(operand);
    if (!sameRows(from, to, rows) || !rowSize(operand, rows))
      return;
    parts.push_back(sizes(ArrayRef(from).drop_front(rows)));
  }
  if (auto slice = dyn_cast<SliceOp>(op)) {
    if (llvm::any_of(slice.getStarts().take_front(rows), [](int64_t start) { return start != 0; }))
      return;
    starts = Index(slice.getStarts().drop_front(rows));
  } else if (auto transpose = dyn_cast<TransposeOp>(op)) {
    for (auto [to, from] : llvm::enumerate(transpose.getPermutation())) {
      if (to < rows && from != int64_t(to))
        return;
      if (to >= rows)
        order.push_back(from - rows);
    }
  } else if (auto concat = dyn_cast<ConcatOp>(op)) {
    if (concat.getDim() < rows)
      return;
    dim = concat.getDim() - rows;
    int64_t start = 0;
    for (const Index& part : parts) {
      starts.push_back(start);
      start += part[dim];
    }
  }
  isKnown = true;
}

std::optional<RowElement> RowView::source(int64_t at) const {
  if (!isKnown)
    return std::nullopt;
  if (isa<ReshapeOp>(op))
    return RowElement{op->getOperand(0), at};
  Index index = split(at, inner);
  size_t part = 0;
  if (isa<BroadcastOp>(op)) { // what the operand has not, and its ones, repeat
    index.erase(index.begin(), index.end() - parts[0].size());
    for (auto [place, size] : llvm::zip_equal(index, parts[0]))
      place = size == 1 ? 0 : place;
  } else if (isa<SliceOp>(op)) {
    for (auto [place, start] : llvm::zip_equal(index, starts))
      place += start;
  } else if (isa<TransposeOp>(op)) {
    Index given(index.size());
    for (auto [place, from] : llvm::zip_equal(index, order))
      given[from] = place;
    index = given;
  } else {
    part = llvm::upper_bound(starts, index[dim]) - starts.begin() - 1;
    index[dim] -= starts[part];
  }
  return RowElement{op->getOperand(part), join(index, parts[part])};
}

} // namespace cermet::ir
