// What each operation of shape demands of its operands, beyond their types' kinds.
#include "ir/dialect/Verify.h"

using namespace mlir;

namespace cermet::ir {

LogicalResult BroadcastOp::verify() {
  if (failed(sameElement(*this, "result", getResult(), elementOf(getOperand()), "operand's")))
    return failure();
  Dimensions from = shapeOf(getOperand()), to = shapeOf(getResult());
  bool fits = from.size() <= to.size();
  for (size_t i = 1; fits && i <= from.size(); ++i) {
    const Dimension& dimension = from[from.size() - i];
    fits = dimension.isOne() || dimension == to[to.size() - i];
  }
  if (!fits)
    return emitOpError() << "operand has shape " << shapeText(from)
                         << ", expected one that extends to the result's shape " << shapeText(to)
                         << ": dimensions aligned at the right, each 1 or equal";
  return success();
}

LogicalResult ReshapeOp::verify() {
  if (failed(sameElement(*this, "result", getResult(), elementOf(getOperand()), "operand's")))
    return failure();
  auto from = cast<RankedTensorType>(getOperand().getType()), to = cast<RankedTensorType>(getResult().getType());
  if (from.hasStaticShape() && to.hasStaticShape() && from.getNumElements() != to.getNumElements())
    return emitOpError() << "result has " << to.getNumElements() << " elements " << shapeTextOf(getResult())
                         << ", expected the operand's " << from.getNumElements() << " " << shapeTextOf(getOperand());
  return success();
}

static LogicalResult dimInRange(Operation* op, int64_t dim, int64_t rank) {
  if (dim >= 0 && dim < rank)
    return success();
  return op->emitOpError() << "dim is " << dim << " with a result of rank " << rank
                           << ", expected at least 0 and less than the rank";
}

// A list attribute as messages show it: [0, 1].
static std::string listText(ArrayRef<int64_t> numbers) {
  std::string text = "[";
  for (int64_t number : numbers)
    text += (text.size() > 1 ? ", " : "") + std::to_string(number);
  return text + "]";
}

LogicalResult TransposeOp::verify() {
  if (failed(sameElement(*this, "result", getResult(), elementOf(getOperand()), "operand's")))
    return failure();
  Dimensions from = shapeOf(getOperand());
  ArrayRef<int64_t> permutation = getPermutation();
  SmallVector<int64_t> sorted(permutation);
  llvm::sort(sorted);
  bool fits = sorted.size() == from.size();
  for (size_t i = 0; fits && i < sorted.size(); ++i)
    fits = sorted[i] == int64_t(i);
  if (!fits)
    return emitOpError() << "permutation is " << listText(permutation) << ", expected each of the operand's "
                         << from.size() << " dimensions once, counted from 0";
  return sameShape(*this, "result", getResult(), permuted(from, permutation), "operand's, permuted");
}

LogicalResult SliceOp::verify() {
  if (failed(sameElement(*this, "result", getResult(), elementOf(getOperand()), "operand's")))
    return failure();
  Dimensions from = shapeOf(getOperand()), to = shapeOf(getResult());
  ArrayRef<int64_t> starts = getStarts();
  if (to.size() != from.size())
    return emitOpError() << "result has rank " << to.size() << ", expected " << from.size() << " (operand's)";
  if (starts.size() != from.size())
    return emitOpError() << "starts is " << listText(starts) << ", expected " << from.size()
                         << " numbers (one for each dimension)";
  for (size_t i = 0; i < from.size(); ++i) {
    auto error = [&] { return emitOpError() << "starts[" << i << "] is " << starts[i] << ", expected "; };
    if (starts[i] < 0)
      return error() << "at least 0";
    if (from[i].isSymbol()) {
      if (from[i] == to[i] && starts[i] != 0)
        return error() << "0 (the dimension is " << shapeText(from[i]) << " in operand and result: it is whole)";
      continue;
    }
    if (to[i].isSymbol())
      return emitOpError() << "result has shape " << shapeText(to) << ", expected a static dimension " << i
                           << " (the operand's is " << shapeText(from[i]) << ")";
    if (to[i].size > from[i].size)
      return emitOpError() << "result has shape " << shapeText(to) << ", expected dimension " << i << " to be at most "
                           << from[i].size << " (the operand's)";
    if (starts[i] > from[i].size - to[i].size)
      return error() << "at most " << from[i].size - to[i].size << " (" << to[i].size << " of the operand's "
                     << from[i].size << " are taken)";
  }
  return success();
}

LogicalResult ConcatOp::verify() {
  if (getNumOperands() == 0)
    return emitOpError() << "has no operands, expected at least one";
  Dimensions to = shapeOf(getResult());
  int64_t dim = getDim();
  if (failed(dimInRange(*this, dim, to.size())))
    return failure();
  if (to[dim].isSymbol())
    return emitOpError() << "result has shape " << shapeText(to) << ", expected a static dimension " << dim
                         << " (it is joined along)";
  uint64_t size = 0;
  for (auto [index, operand] : llvm::enumerate(getOperands())) {
    std::string name = "operand " + std::to_string(index);
    if (failed(sameElement(*this, name, operand, elementOf(getResult()), "result's")))
      return failure();
    Dimensions from = shapeOf(operand), expected = to;
    if (from.size() == to.size()) {
      if (from[dim].isSymbol())
        return emitOpError() << name << " has shape " << shapeText(from) << ", expected a static dimension " << dim
                             << " (it is joined along)";
      expected[dim] = from[dim];
    }
    if (failed(sameShape(*this, name, operand, expected, "result's, but for dimension " + std::to_string(dim))))
      return failure();
    size += from[dim].size;
  }
  Dimensions expected = to;
  expected[dim].size = size;
  return sameShape(*this, "result", getResult(), expected,
                   "operands' sizes added up along dimension " + std::to_string(dim));
}

LogicalResult GatherOp::verify() {
  Dimensions source = shapeOf(getSource()), expected = shapeOf(getIndex());
  if (source.size() != 2)
    return emitOpError() << "source has shape " << shapeText(source) << ", expected rank 2 (rows to choose from)";
  if (failed(sameElement(*this, "result", getResult(), elementOf(getSource()), "source's")))
    return failure();
  expected.push_back(source[1]);
  return sameShape(*this, "result", getResult(), expected, "index's, then source's last dimension");
}

LogicalResult EmbeddingBagOp::verify() {
  Dimensions source = shapeOf(getSource()), index = shapeOf(getIndex()), expected = shapeOf(getBegins());
  if (source.size() != 2)
    return emitOpError() << "source has shape " << shapeText(source) << ", expected rank 2 (rows to add)";
  if (index.size() != 1)
    return emitOpError() << "index has shape " << shapeText(index) << ", expected rank 1 (numbers of rows)";
  if (!elementOf(getResult()).isF32() &&
      failed(sameElement(*this, "result", getResult(), elementOf(getSource()), "source's")))
    return failure();
  if (elementOf(getResult()).isF32() && elementOf(getSource()).isF64())
    return emitOpError() << "result is f32, expected the source's f64";
  if (Value sums = getSums()) {
    const Dimensions given = shapeOf(sums);
    if (given.size() != 2 || !(given[1] == source[1]) || !elementOf(sums).isF32())
      return emitOpError() << "sums are " << elementOf(sums) << " of shape " << shapeText(given)
                           << ", expected f32 of rank 2 with source's last dimension";
  }
  expected.push_back(source[1]);
  return sameShape(*this, "result", getResult(), expected, "begins', then source's last dimension");
}

LogicalResult PickOp::verify() {
  Dimensions rows = shapeOf(getOperand());
  if (rows.empty())
    return emitOpError() << "operand has shape " << shapeText(rows) << ", expected at least one dimension (columns)";
  if (failed(sameElement(*this, "result", getResult(), elementOf(getOperand()), "operand's")))
    return failure();
  rows.back() = Dimension();
  if (failed(sameShape(*this, "index", getIndex(), rows, "operand's with the last dimension 1")))
    return failure();
  return sameShape(*this, "result", getResult(), rows, "operand's with the last dimension 1");
}

LogicalResult IotaOp::verify() {
  if (getPeriod() && int64_t(*getPeriod()) < 1)
    return emitOpError() << "period is " << int64_t(*getPeriod()) << ", expected at least 1";
  return dimInRange(*this, getDim(), shapeOf(getResult()).size());
}

LogicalResult RandomOp::verify() {
  if (llvm::all_of(shapeOf(getSeed()), [](const Dimension& dimension) { return dimension.isOne(); }))
    return success();
  return emitOpError() << "seed has shape " << shapeTextOf(getSeed()) << ", expected one number";
}

LogicalResult ColumnsOp::verify() {
  if (failed(sameElement(*this, "result", getResult(), elementOf(getOperand()), "operand's")))
    return failure();
  Dimensions from = shapeOf(getOperand());
  if (from.empty() || from.back().isSymbol())
    return emitOpError() << "operand has shape " << shapeText(from) << ", expected a static last dimension";
  const int64_t width = from.back().size;
  for (auto [column, source] : llvm::enumerate(getMap()))
    if (source < 0 || source >= width)
      return emitOpError() << "map[" << column << "] is " << source << ", expected a column of the operand's " << width;
  from.back().size = getMap().size();
  return sameShape(*this, "result", getResult(), from, "operand's, with a last dimension as long as the map");
}

} // namespace cermet::ir
