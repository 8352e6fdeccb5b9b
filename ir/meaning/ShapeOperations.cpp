// Each operation of shape in float64: which element goes where.
#include "ir/meaning/Interpreter.h"
#include "ir/dialect/Ops.h"
#include "runtime/abi/Limits.h"
#include "runtime/abi/Random.h"

using namespace mlir;
using namespace cermet::ir;

using Operands = ArrayRef<const cermet::ir::Array*>;
using Sizes = SmallVector<int64_t>;

static Sizes rowMajor(ArrayRef<int64_t> shape) {
  Sizes strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;)
    strides[i - 1] = strides[i] * shape[i];
  return strides;
}

// Visits the elements of a box in row-major order: `visit` gets each one's offset in an array that has the strides.
template <typename Visit>
static void visitBox(ArrayRef<int64_t> shape, ArrayRef<int64_t> strides, int64_t offset, Visit visit) {
  if (llvm::is_contained(shape, 0))
    return;
  Sizes index(shape.size(), 0);
  for (bool more = true; more;) {
    visit(offset);
    more = false;
    for (size_t i = shape.size(); i-- > 0 && !more;) {
      offset += strides[i];
      more = ++index[i] < shape[i];
      if (!more) {
        offset -= strides[i] * shape[i];
        index[i] = 0;
      }
    }
  }
}

// Fills the result from the operand's elements at these strides.
static void read(const cermet::ir::Array& operand, ArrayRef<int64_t> strides, int64_t offset,
                 cermet::ir::Array& result) {
  double* next = result.data.data();
  visitBox(result.shape, strides, offset, [&](int64_t from) { *next++ = operand.data[from]; });
}

LogicalResult ConstantOp::interpret(Operands, cermet::ir::Array& result) {
  result.data.assign(result.data.size(), getValue().convertToDouble());
  return success();
}

LogicalResult BroadcastOp::interpret(Operands operands, cermet::ir::Array& result) {
  ArrayRef<int64_t> shape = operands[0]->shape;
  Sizes strides(result.shape.size() - shape.size(), 0);
  for (auto [size, stride] : llvm::zip(shape, rowMajor(shape)))
    strides.push_back(size == 1 ? 0 : stride);
  read(*operands[0], strides, 0, result);
  return success();
}

LogicalResult ReshapeOp::interpret(Operands operands, cermet::ir::Array& result) {
  if (operands[0]->data.size() != result.data.size())
    return emitOpError() << "operand has " << operands[0]->data.size() << " elements in this run, expected "
                         << result.data.size() << " (the result's)";
  result.data = operands[0]->data;
  return success();
}

LogicalResult TransposeOp::interpret(Operands operands, cermet::ir::Array& result) {
  Sizes strides, given = rowMajor(operands[0]->shape);
  for (int64_t from : getPermutation())
    strides.push_back(given[from]);
  read(*operands[0], strides, 0, result);
  return success();
}

LogicalResult SliceOp::interpret(Operands operands, cermet::ir::Array& result) {
  ArrayRef<int64_t> shape = operands[0]->shape, starts = getStarts();
  Sizes strides = rowMajor(shape);
  int64_t offset = 0;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (result.shape[i] > shape[i] - starts[i])
      return emitOpError() << "operand has size " << shape[i] << " in dimension " << i << " in this run, expected one "
                           << "that holds " << result.shape[i] << " from " << starts[i] << " on";
    offset += starts[i] * strides[i];
  }
  read(*operands[0], strides, offset, result);
  return success();
}

LogicalResult ConcatOp::interpret(Operands operands, cermet::ir::Array& result) {
  Sizes strides = rowMajor(result.shape);
  int64_t offset = 0;
  for (const cermet::ir::Array* operand : operands) {
    const double* next = operand->data.data();
    visitBox(operand->shape, strides, offset, [&](int64_t to) { result.data[to] = *next++; });
    offset += operand->shape[getDim()] * strides[getDim()];
  }
  return success();
}

LogicalResult GatherOp::interpret(Operands operands, cermet::ir::Array& result) {
  const cermet::ir::Array &source = *operands[0], &index = *operands[1];
  int64_t rows = source.shape[0], columns = source.shape[1];
  bool isFloat = isa<FloatType>(cast<RankedTensorType>(getType()).getElementType());
  double outside = isFloat ? std::numeric_limits<double>::quiet_NaN() : 0;
  double* next = result.data.data();
  for (double row : index.data)
    for (int64_t column = 0; column < columns; ++column)
      *next++ = row >= 0 && row < rows ? source.data[int64_t(row) * columns + column] : outside;
  return success();
}

LogicalResult EmbeddingBagOp::interpret(Operands operands, cermet::ir::Array& result) {
  const cermet::ir::Array &source = *operands[0], &index = *operands[1], &begins = *operands[2], &ends = *operands[3];
  const int64_t columns = source.shape[1], count = index.shape[0];
  std::fill(result.data.begin(), result.data.end(), 0.0);
  const auto add = [&](double* sum, const cermet::ir::Array& table, double number) {
    const bool isThere = number >= 0 && number < table.shape[0];
    for (int64_t column = 0; column < columns; ++column)
      sum[column] += isThere ? table.data[int64_t(number) * columns + column] : std::numeric_limits<double>::quiet_NaN();
  };
  const int64_t parts = operands.size() > 4 ? operands[4]->shape[0] : 0;
  for (size_t row = 0; row < begins.data.size(); ++row) {
    double* sum = result.data.data() + row * columns;
    const int64_t end = std::min(int64_t(ends.data[row]), count);
    for (int64_t i = std::max<int64_t>(int64_t(begins.data[row]), 0); i < end;)
      if (i % cermet::kBagPart == 0 && i + cermet::kBagPart <= end && i / cermet::kBagPart < parts) {
        add(sum, *operands[4], double(i / cermet::kBagPart));
        i += cermet::kBagPart;
      } else {
        add(sum, source, index.data[i++]);
      }
  }
  return success();
}

LogicalResult PickOp::interpret(Operands operands, cermet::ir::Array& result) {
  const cermet::ir::Array &rows = *operands[0], &index = *operands[1];
  const int64_t columns = rows.shape.back();
  for (size_t row = 0; row < result.data.size(); ++row) {
    const double column = index.data[row];
    result.data[row] = column >= 0 && column < columns ? rows.data[row * columns + int64_t(column)]
                                                       : std::numeric_limits<double>::quiet_NaN();
  }
  return success();
}

LogicalResult IotaOp::interpret(Operands, cermet::ir::Array& result) {
  if (result.data.empty())
    return success();
  int64_t stride = rowMajor(result.shape)[getDim()], size = result.shape[getDim()];
  for (size_t i = 0; i < result.data.size(); ++i)
    result.data[i] = int64_t(i) / stride % size % int64_t(getPeriod().value_or(size));
  return success();
}

LogicalResult RandomOp::interpret(Operands operands, cermet::ir::Array& result) {
  const int64_t columns = result.shape.empty() ? 1 : result.shape.back();
  const auto seed = uint64_t(int64_t(operands[0]->data[0]));
  for (size_t i = 0; i < result.data.size(); ++i)
    result.data[i] = randomBits(randomKey(seed, i / columns), uint32_t(i % columns));
  return success();
}

LogicalResult ColumnsOp::interpret(Operands operands, cermet::ir::Array& result) {
  const int64_t width = operands[0]->shape.back(), columns = result.shape.back();
  for (size_t i = 0; i < result.data.size(); ++i)
    result.data[i] = operands[0]->data[int64_t(i) / columns * width + getMap()[i % columns]];
  return success();
}
