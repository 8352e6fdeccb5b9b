// The vector-Jacobian product of every small operation that computes; the operations of shape are in
// ir/gradient/VjpShape.cpp. Cotangents and all arithmetic are wide (f32, or f64 for f64); forward values are read as
// the traced program rounded them.
#include "ir/dialect/Formula.h"
#include "ir/dialect/ElementTypes.h"
#include <cmath>
#include <optional>

using namespace mlir;
using namespace cermet::ir;

using Cotangents = SmallVector<Value>;

Cotangents AddOp::buildGradient(OpBuilder&, ValueRange cotangents) {
  return {cotangents[0], cotangents[0]};
}

Cotangents SubOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  return {cotangents[0], Formula(builder, getLoc()).neg(cotangents[0])};
}

// A square's factor 2 is exact beside the cotangent; as a sum of two equal products it would cost a rounding.
Cotangents MulOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  Formula f(builder, getLoc());
  if (getLhs() == getRhs())
    return {f.mul(f.mul(f.number(cotangents[0].getType(), 2), cotangents[0]), f.widen(getLhs())), Value()};
  return {f.mul(cotangents[0], f.widen(getRhs())), f.mul(cotangents[0], f.widen(getLhs()))};
}

// d(a / b) = da / b - (a / b) / b db
Cotangents DivOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  Formula f(builder, getLoc());
  Value lhs = f.div(cotangents[0], f.widen(getRhs()));
  return {lhs, f.neg(f.mul(lhs, f.widen(getResult())))};
}

// The number that a value is everywhere, as far as constants, casts and changes of shape show it.
static std::optional<double> numberOf(Value value) {
  Operation* op = value.getDefiningOp();
  if (auto constant = dyn_cast_or_null<ConstantOp>(op))
    return roundTo(typeOf(value).getElementType(), constant.getValue().convertToDouble());
  if (!isa_and_nonnull<CastOp, BroadcastOp, ReshapeOp>(op))
    return std::nullopt;
  std::optional<double> number = numberOf(op->getOperand(0));
  return number ? std::optional(roundTo(typeOf(value).getElementType(), *number)) : std::nullopt;
}

// d(a^b) = b a^(b-1) da + a^b log(a) db. Where b is 0 the first is 0 whatever a is, and where a is 0 the second is 0
// for every b that is not negative.
Cotangents PowOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  Formula f(builder, getLoc());
  Value g = cotangents[0], a = f.widen(getLhs());
  if (std::optional<double> exponent = numberOf(getRhs())) {
    if (*exponent == 0)
      return {f.number(a.getType(), 0), Value()};
    if (*exponent == 1)
      return {g, Value()};
    Value power = *exponent == 2 ? a : f.pow(a, f.number(a.getType(), *exponent - 1));
    return {f.mul(g, f.mul(f.number(a.getType(), *exponent), power)), Value()};
  }
  Value b = f.widen(getRhs()), y = f.widen(getResult()), zero = f.number(a.getType(), 0);
  Value slope = f.mul(b, f.pow(a, f.sub(b, f.number(b.getType(), 1))));
  Value flat = f.min(f.compare("eq", a, 0), f.compare("ge", b, 0));
  return {f.select(f.compare("eq", b, 0), zero, f.mul(g, slope)), f.select(flat, zero, f.mul(g, f.mul(y, f.log(a))))};
}

// To the operand that was chosen, half to each of two equal ones. One that is NaN is neither less nor greater: both get
// all of it, as in PyTorch.
static Cotangents toChosen(Formula f, Value lhs, Value rhs, Value g, StringRef lhsLoses, StringRef rhsLoses) {
  Value zero = f.number(g.getType(), 0);
  Value shared = f.select(f.compare("eq", lhs, rhs), f.mul(f.number(g.getType(), 0.5), g), g);
  return {f.select(f.compare(lhsLoses, lhs, rhs), zero, shared), f.select(f.compare(rhsLoses, lhs, rhs), zero, shared)};
}

Cotangents MaxOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  return toChosen(Formula(builder, getLoc()), getLhs(), getRhs(), cotangents[0], "lt", "gt");
}

Cotangents MinOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  return toChosen(Formula(builder, getLoc()), getLhs(), getRhs(), cotangents[0], "gt", "lt");
}

// d|x| = sign(x) dx, 0 at 0
Cotangents AbsOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  Formula f(builder, getLoc());
  Value g = cotangents[0], x = getOperand();
  Value below = f.select(f.compare("lt", x, 0), f.neg(g), f.number(g.getType(), 0));
  return {f.select(f.compare("gt", x, 0), g, below)};
}

Cotangents NegOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  return {Formula(builder, getLoc()).neg(cotangents[0])};
}

Cotangents ExpOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  Formula f(builder, getLoc());
  return {f.mul(cotangents[0], f.widen(getResult()))};
}

Cotangents LogOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  Formula f(builder, getLoc());
  return {f.div(cotangents[0], f.widen(getOperand()))};
}

// d x^(1/2) = dx / (2 y)
Cotangents SqrtOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  Formula f(builder, getLoc());
  Value y = f.widen(getResult());
  return {f.div(cotangents[0], f.add(y, y))};
}

// d x^(-1/2) = -1/2 y^3 dx
Cotangents RsqrtOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  Formula f(builder, getLoc());
  Value y = f.widen(getResult());
  Value slope = f.mul(f.number(y.getType(), -0.5), f.mul(y, f.mul(y, y)));
  return {f.mul(cotangents[0], slope)};
}

// dt = (1 - t^2) dx
Cotangents TanhOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  Formula f(builder, getLoc());
  Value t = f.widen(getResult());
  return {f.mul(cotangents[0], f.sub(f.number(t.getType(), 1), f.mul(t, t)))};
}

// scale e^(-x^2 / width)
static Value bell(Formula f, Value x, double scale, double width) {
  Value square = f.mul(x, x);
  Value exponent = width == 1 ? f.neg(square) : f.mul(f.number(x.getType(), -1 / width), square);
  return f.mul(f.number(x.getType(), scale), f.exp(exponent));
}

// d erf = 2 / sqrt(pi) e^(-x^2) dx
Cotangents ErfOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  Formula f(builder, getLoc());
  return {f.mul(cotangents[0], bell(f, f.widen(getOperand()), M_2_SQRTPI, 1))};
}

// Nothing at 0. Through a NaN, which is not at most 0, everything.
Cotangents ReluOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  Formula f(builder, getLoc());
  Value g = cotangents[0];
  return {f.select(f.compare("le", getResult(), 0), f.number(g.getType(), 0), g)};
}

// ds = s (1 - s) dx
Cotangents SigmoidOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  Formula f(builder, getLoc());
  Value s = f.widen(getResult());
  return {f.mul(cotangents[0], f.mul(s, f.sub(f.number(s.getType(), 1), s)))};
}

Cotangents SoftplusOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  Formula f(builder, getLoc());
  return {f.mul(cotangents[0], f.sigmoid(f.widen(getOperand())))};
}

// d(x s) = s (1 + x (1 - s)) dx, s = sigmoid(x)
Cotangents SiluOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  Formula f(builder, getLoc());
  Value x = f.widen(getOperand());
  Value s = f.sigmoid(x), one = f.number(x.getType(), 1);
  return {f.mul(cotangents[0], f.mul(s, f.add(one, f.mul(x, f.sub(one, s)))))};
}

// d(x P(x)) = (P(x) + x p(x)) dx: P the normal distribution, (1 + erf(x / sqrt(2))) / 2, and p its density.
Cotangents GeluOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  Formula f(builder, getLoc());
  Value x = f.widen(getOperand());
  auto number = [&](double value) { return f.number(x.getType(), value); };
  Value distribution = f.mul(number(0.5), f.add(number(1), f.erf(f.mul(number(M_SQRT1_2), x))));
  Value density = bell(f, x, 0.5 * M_SQRT1_2 * M_2_SQRTPI, 2);
  return {f.mul(cotangents[0], f.add(distribution, f.mul(x, density)))};
}

// y = x / 2 (1 + t), t = tanh(u), u = c (x + k x^3): dy = (1 + t) / 2 dx + x / 2 (1 - t^2) c (1 + 3 k x^2) dx
Cotangents GeluTanhOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  constexpr double k = 0.044715;
  const double c = std::sqrt(2 / M_PI);
  Formula f(builder, getLoc());
  Value x = f.widen(getOperand());
  auto number = [&](double value) { return f.number(x.getType(), value); };
  Value square = f.mul(x, x), one = number(1);
  Value t = f.tanh(f.mul(number(c), f.mul(x, f.add(one, f.mul(number(k), square)))));
  Value rise = f.mul(number(c), f.add(one, f.mul(number(3 * k), square)));
  Value slope = f.add(f.add(one, t), f.mul(x, f.mul(f.sub(one, f.mul(t, t)), rise)));
  return {f.mul(cotangents[0], f.mul(number(0.5), slope))};
}

// What is counted has no slope.
Cotangents CompareOp::buildGradient(OpBuilder&, ValueRange) {
  return {Value(), Value()};
}

Cotangents SelectOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  Formula f(builder, getLoc());
  Value g = cotangents[0], zero = f.number(g.getType(), 0);
  return {Value(), f.select(getCondition(), g, zero), f.select(getCondition(), zero, g)};
}

// A rounding has no slope of its own; integers have none at all.
Cotangents CastOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  RankedTensorType from = typeOf(getOperand());
  if (!isa<FloatType>(from.getElementType()))
    return {Value()};
  return {Formula(builder, getLoc()).cast(cotangents[0], wideType(from).getElementType())};
}

Cotangents ReduceSumOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  return {Formula(builder, getLoc()).broadcast(cotangents[0], getOperand().getType())};
}

// Shared equally among the elements that are the extreme. None of a row with a NaN is: its gradient is NaN.
static Value toExtremes(Formula f, Value operand, Value result, Value g) {
  Value isExtreme = f.compare("eq", operand, f.broadcast(result, operand.getType()));
  Value mask = f.cast(isExtreme, typeOf(g).getElementType());
  return f.mul(f.broadcast(f.div(g, f.reduceSum(mask)), mask.getType()), mask);
}

Cotangents ReduceMaxOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  return {toExtremes(Formula(builder, getLoc()), getOperand(), getResult(), cotangents[0])};
}

Cotangents ReduceMinOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  return {toExtremes(Formula(builder, getLoc()), getOperand(), getResult(), cotangents[0])};
}

// What a column's cotangent goes to are the columns that its sum has.
Cotangents CumsumOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  if (!isa<FloatType>(typeOf(getOperand()).getElementType()))
    return {Value()};
  return {Formula(builder, getLoc()).cumsum(cotangents[0], !getReverse())};
}

Cotangents SumRowsOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  return {Formula(builder, getLoc()).broadcast(cotangents[0], getOperand().getType())};
}

Cotangents MatmulOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  Formula f(builder, getLoc());
  Value lhs = f.widen(getLhs()), rhs = f.widen(getRhs()), g = cotangents[0];
  if (getTransposeLhs()) // [R, M], [R, N] to [M, N]
    return {f.matmul(rhs, g, lhs.getType(), false, true), f.matmul(lhs, g, rhs.getType(), false, false)};
  Value left = f.matmul(g, rhs, lhs.getType(), false, !getTransposeRhs());
  if (getTransposeRhs()) // rhs is [N, K]
    return {left, f.matmul(g, lhs, rhs.getType(), true, false)};
  return {left, f.matmul(lhs, g, rhs.getType(), true, false)};
}
