// Each small operation that computes, in float64; the operations of shape are in ir/meaning/ShapeOperations.cpp. The
// caller rounds results to their element type.
#include "ir/meaning/Interpreter.h"
#include "ir/dialect/Ops.h"
#include "mlir/IR/TypeUtilities.h"
#include <cmath>
#include <functional>
#include <numeric>

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
// A product of two 32-bit integers has more bits than a double: integers are multiplied as such, and wrapped before
// they become one again.
LogicalResult MulOp::interpret(Operands operands, cermet::ir::Array& result) {
  auto integer = dyn_cast<IntegerType>(getElementTypeOrSelf(getType()));
  if (!integer)
    return binary(operands, result, [](double a, double b) { return a * b; });
  unsigned unused = 64 - integer.getWidth();
  return binary(operands, result, [&](double a, double b) -> double {
    uint64_t product = (uint64_t(int64_t(a)) * uint64_t(int64_t(b))) << unused;
    return integer.isUnsigned() ? double(product >> unused) : double(int64_t(product) >> unused);
  });
}
LogicalResult DivOp::interpret(Operands operands, cermet::ir::Array& result) {
  return binary(operands, result, [](double a, double b) { return a / b; });
}
LogicalResult PowOp::interpret(Operands operands, cermet::ir::Array& result) {
  return binary(operands, result, [](double a, double b) { return std::pow(a, b); });
}

static double larger(double a, double b) {
  return a > b || std::isnan(a) ? a : b;
}
static double smaller(double a, double b) {
  return a < b || std::isnan(a) ? a : b;
}

LogicalResult MaxOp::interpret(Operands operands, cermet::ir::Array& result) {
  return binary(operands, result, larger);
}
LogicalResult MinOp::interpret(Operands operands, cermet::ir::Array& result) {
  return binary(operands, result, smaller);
}
LogicalResult NegOp::interpret(Operands operands, cermet::ir::Array& result) {
  return unary(operands, result, [](double x) { return -x; });
}
LogicalResult AbsOp::interpret(Operands operands, cermet::ir::Array& result) {
  return unary(operands, result, [](double x) { return std::fabs(x); });
}
LogicalResult ExpOp::interpret(Operands operands, cermet::ir::Array& result) {
  return unary(operands, result, [](double x) { return std::exp(x); });
}
LogicalResult LogOp::interpret(Operands operands, cermet::ir::Array& result) {
  return unary(operands, result, [](double x) { return std::log(x); });
}
LogicalResult SqrtOp::interpret(Operands operands, cermet::ir::Array& result) {
  return unary(operands, result, [](double x) { return std::sqrt(x); });
}
LogicalResult RsqrtOp::interpret(Operands operands, cermet::ir::Array& result) {
  return unary(operands, result, [](double x) { return 1 / std::sqrt(x); });
}
LogicalResult TanhOp::interpret(Operands operands, cermet::ir::Array& result) {
  return unary(operands, result, [](double x) { return std::tanh(x); });
}
LogicalResult ErfOp::interpret(Operands operands, cermet::ir::Array& result) {
  return unary(operands, result, [](double x) { return std::erf(x); });
}
LogicalResult ReluOp::interpret(Operands operands, cermet::ir::Array& result) {
  return unary(operands, result, [](double x) { return larger(x, 0); });
}
LogicalResult SigmoidOp::interpret(Operands operands, cermet::ir::Array& result) {
  return unary(operands, result, [](double x) { return 1 / (1 + std::exp(-x)); });
}
// As written, e^x overflows far above 0, and far below 0 the sum with 1 loses it.
LogicalResult SoftplusOp::interpret(Operands operands, cermet::ir::Array& result) {
  return unary(operands, result, [](double x) { return larger(x, 0) + std::log1p(std::exp(-std::fabs(x))); });
}
LogicalResult SiluOp::interpret(Operands operands, cermet::ir::Array& result) {
  return unary(operands, result, [](double x) { return x / (1 + std::exp(-x)); });
}
// 1 + erf(x / sqrt(2)) loses its digits where x is far below 0; erfc(-x / sqrt(2)) is the same number and does not.
LogicalResult GeluOp::interpret(Operands operands, cermet::ir::Array& result) {
  return unary(operands, result, [](double x) { return 0.5 * x * std::erfc(-x * M_SQRT1_2); });
}
// (1 + tanh(u)) / 2 is 1 / (1 + e^-2u), which keeps its digits there.
LogicalResult GeluTanhOp::interpret(Operands operands, cermet::ir::Array& result) {
  return unary(operands, result,
               [](double x) { return x / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); });
}

LogicalResult CompareOp::interpret(Operands operands, cermet::ir::Array& result) {
  StringRef predicate = getPredicate();
  if (predicate == "eq")
    return binary(operands, result, std::equal_to<double>());
  if (predicate == "ne")
    return binary(operands, result, std::not_equal_to<double>());
  if (predicate == "lt")
    return binary(operands, result, std::less<double>());
  if (predicate == "le")
    return binary(operands, result, std::less_equal<double>());
  if (predicate == "gt")
    return binary(operands, result, std::greater<double>());
  return binary(operands, result, std::greater_equal<double>());
}

LogicalResult SelectOp::interpret(Operands operands, cermet::ir::Array& result) {
  for (size_t i = 0; i < result.data.size(); ++i)
    result.data[i] = operands[operands[0]->data[i] != 0 ? 1 : 2]->data[i];
  return success();
}

LogicalResult CastOp::interpret(Operands operands, cermet::ir::Array& result) {
  return unary(operands, result, [](double x) { return x; });
}

LogicalResult ReduceSumOp::interpret(Operands operands, cermet::ir::Array& result) {
  size_t columns = operands[0]->shape.back();
  for (size_t row = 0; row < result.data.size(); ++row)
    for (size_t column = 0; column < columns; ++column)
      result.data[row] += operands[0]->data[row * columns + column];
  return success();
}

template <typename Function>
static LogicalResult extreme(Operands operands, cermet::ir::Array& result, double ofNothing, Function function) {
  size_t columns = operands[0]->shape.back();
  for (size_t row = 0; row < result.data.size(); ++row) {
    const double* begin = operands[0]->data.data() + row * columns;
    result.data[row] = std::accumulate(begin, begin + columns, ofNothing, function);
  }
  return success();
}

LogicalResult ReduceMaxOp::interpret(Operands operands, cermet::ir::Array& result) {
  return extreme(operands, result, -HUGE_VAL, larger);
}
LogicalResult ReduceMinOp::interpret(Operands operands, cermet::ir::Array& result) {
  return extreme(operands, result, HUGE_VAL, smaller);
}

// Integers are added as such: they wrap where a double would round.
LogicalResult CumsumOp::interpret(Operands operands, cermet::ir::Array& result) {
  const size_t columns = operands[0]->shape.back();
  auto integer = dyn_cast<IntegerType>(getElementTypeOrSelf(getType()));
  const unsigned unused = integer ? 64 - integer.getWidth() : 0;
  for (size_t begin = 0; begin < result.data.size(); begin += columns) {
    double sum = 0;
    uint64_t whole = 0;
    for (size_t i = 0; i < columns; ++i) {
      const size_t at = begin + (getReverse() ? columns - 1 - i : i);
      const double term = operands[0]->data[at];
      if (integer) {
        whole += uint64_t(int64_t(term)) << unused;
        sum = integer.isUnsigned() ? double(whole >> unused) : double(int64_t(whole) >> unused);
      } else {
        sum += term;
      }
      result.data[at] = sum;
    }
  }
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
