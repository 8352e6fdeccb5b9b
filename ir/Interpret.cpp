// Each small operation in float64. The caller rounds results to their element type.
#include "ir/Interpreter.h"
#include "ir/Ops.h"
#include <cmath>

using namespace mlir;
using namespace cermet::ir;

using Operands = ArrayRef<const cermet::ir::Array*>;

template <typename Function>
static LogicalResult unary(Operands operands, cermet::ir::Array& result, Function function) {
  for (size_t i = 0; i < result.data.size(); ++i)
    result.data[i] = function(operands[0]->data[i]);
  return success();
}

template <typename Function>
static LogicalResult binary(Operands operands, cermet::ir::Array& result, Function function) {
  for (size_t i = 0; i < result.data.size(); ++i)
    result.data[i] = function(operands[0]->data[i], operands[1]->data[i]);
  return success();
}

LogicalResult AddOp::interpret(Operands operands, cermet::ir::Array& result) {
  return binary(operands, result, [](double a, double b) { return a + b; });
}
LogicalResult SubOp::interpret(Operands operands, cermet::ir::Array& result) {
  return binary(operands, result, [](double a, double b) { return a - b; });
}
LogicalResult MulOp::interpret(Operands operands, cermet::ir::Array& result) {
  return binary(operands, result, [](double a, double b) { return a * b; });
}
LogicalResult DivOp::interpret(Operands operands, cermet::ir::Array& result) {
  return binary(operands, result, [](double a, double b) { return a / b; });
}
LogicalResult NegOp::interpret(Operands operands, cermet::ir::Array& result) {
  return unary(operands, result, [](double x) { return -x; });
}
LogicalResult ExpOp::interpret(Operands operands, cermet::ir::Array& result) {
  return unary(operands, result, [](double x) { return std::exp(x); });
}
LogicalResult RsqrtOp::interpret(Operands operands, cermet::ir::Array& result) {
  return unary(operands, result, [](double x) { return 1 / std::sqrt(x); });
}
LogicalResult SigmoidOp::interpret(Operands operands, cermet::ir::Array& result) {
  return unary(operands, result, [](double x) { return 1 / (1 + std::exp(-x)); });
}
LogicalResult SiluOp::interpret(Operands operands, cermet::ir::Array& result) {
  return unary(operands, result, [](double x) { return x / (1 + std::exp(-x)); });
}
LogicalResult CastOp::interpret(Operands operands, cermet::ir::Array& result) {
  return unary(operands, result, [](double x) { return x; });
}

LogicalResult ConstantOp::interpret(Operands, cermet::ir::Array& result) {
  result.data.assign(result.data.size(), getValue().convertToDouble());
  return success();
}

LogicalResult BroadcastOp::interpret(Operands operands, cermet::ir::Array& result) {
  const cermet::ir::Array& operand = *operands[0];
  size_t rank = result.shape.size(), missing = rank - operand.shape.size();
  SmallVector<int64_t> stride(rank, 0), index(rank, 0);
  int64_t step = 1;
  for (size_t i = rank; i-- > missing;) {
    int64_t size = operand.shape[i - missing];
    stride[i] = size == 1 ? 0 : step;
    step *= size;
  }
  int64_t from = 0;
  for (double& value : result.data) {
    value = operand.data[from];
    for (size_t i = rank; i-- > 0;) {
      from += stride[i];
      if (++index[i] < result.shape[i])
        break;
      from -= stride[i] * result.shape[i];
      index[i] = 0;
    }
  }
  return success();
}

LogicalResult ReshapeOp::interpret(Operands operands, cermet::ir::Array& result) {
  if (operands[0]->data.size() != result.data.size())
    return emitOpError() << "operand has " << operands[0]->data.size() << " elements in this run, expected "
                         << result.data.size() << " (the result's)";
  result.data = operands[0]->data;
  return success();
}

LogicalResult ReduceSumOp::interpret(Operands operands, cermet::ir::Array& result) {
  size_t columns = operands[0]->shape.back();
  for (size_t row = 0; row < result.data.size(); ++row)
    for (size_t column = 0; column < columns; ++column)
      result.data[row] += operands[0]->data[row * columns + column];
  return success();
}

LogicalResult SumRowsOp::interpret(Operands operands, cermet::ir::Array& result) {
  size_t columns = result.data.size();
  for (size_t i = 0; i < operands[0]->data.size(); ++i)
    result.data[i % columns] += operands[0]->data[i];
  return success();
}

LogicalResult MatmulOp::interpret(Operands operands, cermet::ir::Array& result) {
  const cermet::ir::Array &lhs = *operands[0], &rhs = *operands[1];
  if (result.data.empty())
    return success();
  // Three loops, whose extents and strides say what is transposed: result[m, n] += lhs[m, k] * rhs[k, n].
  size_t columns = result.shape.back(), rows = result.data.size() / columns, depth = lhs.shape.back();
  size_t lhsRow = depth, lhsDepth = 1, rhsDepth = columns, rhsColumn = 1;
  if (getTransposeRhs())
    rhsDepth = 1, rhsColumn = depth;
  if (getTransposeLhs())
    depth = lhs.data.size() / rows, lhsRow = 1, lhsDepth = rows;
  for (size_t m = 0; m < rows; ++m)
    for (size_t k = 0; k < depth; ++k) {
      double scale = lhs.data[m * lhsRow + k * lhsDepth];
      for (size_t n = 0; n < columns; ++n)
        result.data[m * columns + n] += scale * rhs.data[k * rhsDepth + n * rhsColumn];
    }
  return success();
}
