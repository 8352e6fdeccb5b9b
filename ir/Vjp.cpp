// The vector-Jacobian product of every small operation. Cotangents and all arithmetic are wide (f32, or f64 for f64);
// forward values are read as the traced program rounded them.
#include "ir/Formula.h"

using namespace mlir;
using namespace cermet::ir;

using Cotangents = SmallVector<Value>;

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

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

Cotangents NegOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  return {Formula(builder, getLoc()).neg(cotangents[0])};
}

Cotangents ExpOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  Formula f(builder, getLoc());
  return {f.mul(cotangents[0], f.widen(getResult()))};
}

// d x^(-1/2) = -1/2 y^3 dx
Cotangents RsqrtOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  Formula f(builder, getLoc());
  Value y = f.widen(getResult());
  Value slope = f.mul(f.number(y.getType(), -0.5), f.mul(y, f.mul(y, y)));
  return {f.mul(cotangents[0], slope)};
}

// ds = s (1 - s) dx
Cotangents SigmoidOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  Formula f(builder, getLoc());
  Value s = f.widen(getResult());
  return {f.mul(cotangents[0], f.mul(s, f.sub(f.number(s.getType(), 1), s)))};
}

// d(x s) = s (1 + x (1 - s)) dx, s = sigmoid(x)
Cotangents SiluOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  Formula f(builder, getLoc());
  Value x = f.widen(getOperand());
  Value s = f.sigmoid(x), one = f.number(x.getType(), 1);
  return {f.mul(cotangents[0], f.mul(s, f.add(one, f.mul(x, f.sub(one, s)))))};
}

// A rounding has no slope of its own; integers have none at all.
Cotangents CastOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  RankedTensorType from = typeOf(getOperand());
  if (!isa<FloatType>(from.getElementType()))
    return {Value()};
  return {Formula(builder, getLoc()).cast(cotangents[0], wideType(from).getElementType())};
}

Cotangents ConstantOp::buildGradient(OpBuilder&, ValueRange) {
  return {};
}

// Sums over the dimensions that were repeated: from the right, one reduction along the last dimension at a time; what
// repeats on the left is summed as rows.
Cotangents BroadcastOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  Formula f(builder, getLoc());
  Value sum = cotangents[0];
  Dimensions from = dimensions(typeOf(getOperand())), to = dimensions(typeOf(getResult()));
  Dimensions aligned(to.size() - from.size());
  aligned.append(from);

  // What repeats along every row is summed over rows, of whatever width, 1 included.
  bool alongRows = to.size() > 1 && !from.empty() && from.back() == to.back() &&
                   llvm::all_of(ArrayRef(aligned).drop_back(), [](const Dimension& d) { return d.isOne(); });
  if (alongRows)
    return {f.reshape(f.sumRows(sum), from)};

  // `right` dimensions from the end are reduced to 1 and dropped.
  Dimensions rest = to;
  size_t right = 0;
  while (right < to.size() && aligned[to.size() - 1 - right].isOne()) {
    if (!rest.back().isOne()) {
      sum = f.reduceSum(sum);
      rest.back() = Dimension();
    }
    if (rest.size() > 1) {
      rest.pop_back();
      sum = f.reshape(sum, rest);
    }
    ++right;
  }
  if (right < to.size()) {
    size_t left = 0, repeated = 0;
    for (size_t i = 0; i < rest.size(); ++i)
      if (!(aligned[i] == rest[i])) {
        ++repeated;
        left = i + 1;
      }
    Dimensions rows(rest.begin(), rest.begin() + left), columns(rest.begin() + left, rest.end());
    bool between = llvm::any_of(llvm::zip(rows, aligned), [](auto pair) { return !std::get<1>(pair).isOne(); });
    bool named = columns.size() > 1 && llvm::any_of(columns, [](const Dimension& d) { return d.isSymbol(); });
    if (repeated != 0 && (between || named)) {
      emitOpError() << "from " << shapeText(from) << " to " << shapeText(to)
                    << " has no gradient in the dialect: expected the repeated dimensions outermost or innermost"
                    << (named ? ", and static ones inside of them" : "");
      return {};
    }
    if (repeated != 0) {
      Dimension product;
      for (const Dimension& column : columns)
        product = columns.size() == 1 ? column : Dimension{product.size * column.size, nullptr};
      rows.push_back(product);
      sum = f.sumRows(f.reshape(sum, rows));
    }
  }
  return {f.reshape(sum, from)};
}

Cotangents ReshapeOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  return {Formula(builder, getLoc()).reshape(cotangents[0], dimensions(typeOf(getOperand())))};
}

Cotangents ReduceSumOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  return {Formula(builder, getLoc()).broadcast(cotangents[0], getOperand().getType())};
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
