// Operations of a random graph, with what is known of their results.
#include "ir/dialect/ElementTypes.h"
#include "ir/meaning/Interpreter.h"
#include "tests/fuzz/Steps.h"

using namespace mlir;

namespace cermet::fuzz {

Steps::Steps(OpBuilder& builder, std::mt19937_64& random, bool differentiable,
             std::map<std::string, int64_t> symbolSizes)
    : builder(builder), formula(builder, builder.getUnknownLoc()), location(builder.getUnknownLoc()), random(random),
      differentiable(differentiable), symbolSizes(std::move(symbolSizes)) {}

Value Steps::add(mlir::Value value, double low, double high, bool isExact, bool isWhole) {
  Value result{value, low, high, isExact, isWhole};
  Type element = result.element();
  if (result.isFloat()) {
    if (!isExact) { // what rounding adds
      result.low -= std::fabs(low) * 0.02;
      result.high += std::fabs(high) * 0.02;
    }
    if (!(result.largest() <= (differentiable ? 500 : largestTame(element))))
      throw Untame();
    result.isExact = isExact && (!isWhole || result.largest() <= largestWhole(element));
  } else if (!result.isBool()) {
    unsigned width = element.getIntOrFloatBitWidth();
    bool isUnsigned = element.isUnsignedInteger();
    double least = isUnsigned ? 0 : -std::ldexp(1, width - 1), most = std::ldexp(1, isUnsigned ? width : width - 1) - 1;
    if (low < least || high > most) { // it wraps
      result.low = least;
      result.high = most;
    }
    if (result.largest() > 0x1p50) // the oracle's numbers are doubles
      throw Untame();
    result.isExact = result.isWhole = true;
  } else {
    result = {value, 0, 1, true, true};
  }
  values.push_back(result);
  return result;
}

int64_t Steps::largestSize(const ir::Dimension& dimension) const {
  return dimension.isSymbol() ? symbolSizes.at(dimension.symbol.str()) : dimension.size;
}

Type Steps::floatType() {
  Type types[] = {builder.getF32Type(), builder.getBF16Type(), builder.getF16Type()};
  return types[pick(3)];
}

Type Steps::integerType() {
  Type types[] = {builder.getI64Type(), builder.getI32Type(), builder.getIntegerType(16), builder.getIntegerType(8),
                  builder.getIntegerType(8, false)};
  return types[pick(5)];
}

Value Steps::any(const Fits& fits) {
  std::vector<const Value*> fitting;
  for (const Value& value : values)
    if (fits(value))
      fitting.push_back(&value);
  if (fitting.empty())
    throw Untame();
  // Later values more often: chains grow deep.
  size_t a = random() % fitting.size(), b = random() % fitting.size();
  return *fitting[std::max(a, b)];
}

Value Steps::anyFloat() {
  return any([](const Value& value) { return value.isFloat(); });
}

//===--- Shapes ------------------------------------------------------------------------------------------------------//

bool Steps::extends(const ir::Dimensions& a, const ir::Dimensions& b, ir::Dimensions& joined) const {
  const ir::Dimensions &longer = a.size() >= b.size() ? a : b, &shorter = a.size() >= b.size() ? b : a;
  joined = longer;
  for (size_t i = 1; i <= shorter.size(); ++i) {
    ir::Dimension& to = joined[joined.size() - i];
    const ir::Dimension& from = shorter[shorter.size() - i];
    if (to.isOne())
      to = from;
    else if (!from.isOne() && !(from == to))
      return false;
  }
  return true;
}

Value Steps::broadcast(const Value& a, const ir::Dimensions& shape) {
  ir::Dimensions from = a.shape();
  if (from == shape)
    return a;
  // A gradient sums over outermost or innermost dimensions.
  size_t missing = shape.size() - from.size(), first = shape.size(), last = 0;
  for (size_t i = 0; i < from.size(); ++i)
    if (!from[i].isOne()) {
      first = std::min(first, missing + i);
      last = missing + i;
    }
  for (size_t i = first; i < last; ++i)
    if (differentiable && from[i - missing].isOne() && !shape[i].isOne())
      throw Untame();
  return view(a, formula.broadcast(a.value, ir::tensorType(shape, a.element())));
}

std::pair<Value, Value> Steps::together(Value a, Value b) {
  ir::Dimensions joined;
  if (!extends(a.shape(), b.shape(), joined))
    throw Untame();
  b = cast(b, a.element());
  return {broadcast(a, joined), broadcast(b, joined)};
}

Value Steps::constant(const ir::Dimensions& shape, Type element, double number) {
  return add(formula.number(ir::tensorType(shape, element), number), number, number,
             ir::roundTo(element, number) == number, number == std::floor(number));
}

Value Steps::slice(const Value& a, int64_t dim, int64_t start, int64_t size) {
  ir::Dimensions shape = a.shape();
  SmallVector<int64_t> starts(shape.size(), 0);
  starts[dim] = start;
  shape[dim].size = size;
  return view(a, formula.slice(a.value, starts, shape));
}

Value Steps::concat(const std::vector<Value>& parts, int64_t dim) {
  SmallVector<mlir::Value> operands;
  Value joined = parts[0];
  int64_t size = 0;
  for (const Value& part : parts) {
    operands.push_back(part.value);
    joined.low = std::min(joined.low, part.low);
    joined.high = std::max(joined.high, part.high);
    joined.isExact &= part.isExact;
    joined.isWhole &= part.isWhole;
    size += part.shape()[dim].size;
  }
  if (size > 512)
    throw Untame();
  return view(joined, formula.concat(operands, dim));
}

//===--- Numbers -----------------------------------------------------------------------------------------------------//

bool Steps::staysWhole(const Value& a, const Value& b, double low, double high) const {
  return a.isExact && b.isExact && a.isWhole && b.isWhole &&
         std::max(std::fabs(low), std::fabs(high)) <= largestWhole(a.element());
}

Value Steps::cast(const Value& a, Type element) {
  if (a.element() == element)
    return a;
  Value to = a;
  bool intoFloat = llvm::isa<FloatType>(element);
  if (!intoFloat && !a.isExact)
    throw Untame(); // rounding would decide
  if (intoFloat && a.isFloat()) {
    bool widens = element.isF32();
    to.isExact = a.isExact && (widens || (a.isWhole && a.largest() <= largestWhole(element)));
  } else if (intoFloat) {
    to.isExact = a.largest() <= largestWhole(element);
    to.isWhole = true;
  } else if (!element.isInteger(1)) {
    to.low = std::trunc(a.low);
    to.high = std::trunc(a.high);
  }
  return view(to, formula.cast(a.value, element));
}

Value Steps::plus(const Value& a, const Value& b) {
  double low = a.low + b.low, high = a.high + b.high;
  bool isWhole = staysWhole(a, b, low, high);
  return add(formula.add(a.value, b.value), low, high, isWhole, isWhole);
}

Value Steps::minus(const Value& a, const Value& b) {
  double low = a.low - b.high, high = a.high - b.low;
  bool isWhole = staysWhole(a, b, low, high);
  return add(formula.sub(a.value, b.value), low, high, isWhole, isWhole);
}

Value Steps::times(const Value& a, const Value& b) {
  auto [low, high] = std::minmax({a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high});
  if (a.value == b.value)
    low = std::max(low, 0.0);
  bool isWhole = staysWhole(a, b, low, high);
  return add(formula.mul(a.value, b.value), low, high, isWhole, isWhole);
}

// b is positive.
Value Steps::over(const Value& a, const Value& b) {
  auto [low, high] = std::minmax({a.low / b.low, a.low / b.high, a.high / b.low, a.high / b.high});
  return add(formula.div(a.value, b.value), low, high, false, false);
}

Value Steps::larger(const Value& a, const Value& b) {
  return add(formula.max(a.value, b.value), std::max(a.low, b.low), std::max(a.high, b.high), a.isExact && b.isExact,
             a.isWhole && b.isWhole);
}

Value Steps::smaller(const Value& a, const Value& b) {
  return add(formula.min(a.value, b.value), std::min(a.low, b.low), std::min(a.high, b.high), a.isExact && b.isExact,
             a.isWhole && b.isWhole);
}

Value Steps::away(const Value& a) {
  if (a.low >= 0.25)
    return a;
  if (mayJump(a) && pick(2)) {
    double low = a.low <= 0 && a.high >= 0 ? 0 : std::min(std::fabs(a.low), std::fabs(a.high));
    Value size =
        add(ir::AbsOp::create(builder, location, a.value.getType(), a.value), low, a.largest(), a.isExact, a.isWhole);
    return plus(size, constantLike(a, 0.5));
  }
  Value small = tamed(a, 16);
  return plus(times(small, small), constantLike(a, 0.5));
}

Value Steps::tamed(const Value& a, double limit) {
  if (a.largest() <= limit)
    return a;
  return times(a, constantLike(a, std::exp2(std::floor(std::log2(limit / a.largest())))));
}

// Of a positive base that is not large.
Value Steps::power(const Value& a) {
  Value base = away(tamed(a, 8));
  double exponent = (pick(13) - 6) / 4.0;
  auto [low, high] = std::minmax({std::pow(base.low, exponent), std::pow(base.high, exponent)});
  return add(formula.pow(base.value, constantLike(base, exponent).value), low, high, false, false);
}

Value Steps::unary(const Value& a, int which) {
  Type type = a.value.getType();
  switch (which) {
  case 0:
    return add(formula.neg(a.value), -a.high, -a.low, a.isExact, a.isWhole);
  case 1:
    if (!mayJump(a))
      throw Untame();
    return add(ir::AbsOp::create(builder, location, type, a.value), 0, a.largest(), a.isExact, a.isWhole);
  case 2:
    if (!mayJump(a))
      throw Untame();
    return add(ir::ReluOp::create(builder, location, type, a.value), std::max(a.low, 0.0), std::max(a.high, 0.0),
               a.isExact, a.isWhole);
  case 3: {
    Value x = tamed(a, 4);
    return add(formula.exp(x.value), std::exp(x.low), std::exp(x.high), false, false);
  }
  case 4: {
    Value x = away(a);
    return add(formula.log(x.value), std::log(x.low), std::log(x.high), false, false);
  }
  case 5: {
    Value x = away(a);
    return add(ir::SqrtOp::create(builder, location, x.value.getType(), x.value), std::sqrt(x.low), std::sqrt(x.high),
               false, false);
  }
  case 6: {
    Value x = away(a);
    return add(formula.rsqrt(x.value), 1 / std::sqrt(x.high), 1 / std::sqrt(x.low), false, false);
  }
  case 7:
    return add(formula.tanh(a.value), -1, 1, false, false);
  case 8:
    return add(formula.erf(a.value), -1, 1, false, false);
  case 9:
    return add(formula.sigmoid(a.value), 0, 1, false, false);
  case 10:
    return add(formula.silu(a.value), -0.3, std::max(a.high, 0.0), false, false);
  case 11:
    return add(formula.gelu(a.value), -0.2, std::max(a.high, 0.0), false, false);
  case 12:
    return add(formula.geluTanh(a.value), -0.2, std::max(a.high, 0.0), false, false);
  default:
    return add(formula.softplus(a.value), 0, std::max(a.high, 0.0) + 0.7, false, false);
  }
}

Value Steps::select(const Value& condition, const Value& a, const Value& b) {
  return add(formula.select(condition.value, a.value, b.value), std::min(a.low, b.low), std::max(a.high, b.high),
             a.isExact && b.isExact, a.isWhole && b.isWhole);
}

Value Steps::reduceSum(const Value& a) {
  double terms = largestSize(a.shape().back());
  bool isWhole = a.isExact && a.isWhole && a.largest() * terms <= largestWhole(a.element());
  return add(formula.reduceSum(a.value), a.low * terms, a.high * terms, isWhole, isWhole);
}

Value Steps::reduceExtreme(const Value& a, bool isMax) {
  if (!mayJump(a))
    throw Untame();
  auto type = ir::rowType(a.type());
  return view(a, isMax ? ir::ReduceMaxOp::create(builder, location, type, a.value).getResult()
                       : ir::ReduceMinOp::create(builder, location, type, a.value).getResult());
}

} // namespace cermet::fuzz
