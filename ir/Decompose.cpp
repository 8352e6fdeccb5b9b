// What each fused operation stands for, operation by operation as Hugging Face's code traces.
#include "ir/Decompose.h"
#include "ir/Formula.h"
#include "mlir/IR/Dominance.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Transforms/CSE.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;
using namespace cermet::ir;

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

// One arithmetic operation on two values of one shape, as PyTorch promotes them.
template <typename Combine> static Value inPromotedType(Formula& f, Value a, Value b, Combine combine) {
  Type type = promoted(typeOf(a).getElementType(), typeOf(b).getElementType());
  return combine(f.cast(a, type), f.cast(b, type));
}

static Value rmsNorm(OpBuilder& builder, Location location, Value x, Value weight, Type result, double eps,
                     double weightOffset, bool roundBeforeWeight) {
  Formula f(builder, location);
  Value wide = f.widen(x);
  Value sum = f.reduceSum(f.mul(wide, wide));
  Value mean = f.div(sum, f.number(sum.getType(), double(typeOf(x).getShape().back())));
  Value scale = f.rsqrt(f.add(mean, f.number(sum.getType(), eps)));
  Value normalised = f.mul(wide, f.broadcast(scale, wide.getType()));
  if (roundBeforeWeight)
    normalised = f.cast(normalised, typeOf(x).getElementType());
  if (weightOffset != 0) {
    weight = f.widen(weight);
    weight = f.add(weight, f.number(weight.getType(), weightOffset));
  }
  Value product = inPromotedType(f, f.broadcast(weight, normalised.getType()), normalised,
                                 [&](Value a, Value b) { return f.mul(a, b); });
  return f.cast(product, cast<RankedTensorType>(result).getElementType());
}

SmallVector<Value> RmsNormOp::decompose(OpBuilder& builder) {
  return {rmsNorm(builder, getLoc(), getX(), getWeight(), getResult().getType(), getEps().convertToDouble(),
                  getWeightOffset().convertToDouble(), getRoundBeforeWeight())};
}

SmallVector<Value> AddRmsNormOp::decompose(OpBuilder& builder) {
  Formula f(builder, getLoc());
  Value sum = inPromotedType(f, getX(), getResidual(), [&](Value a, Value b) { return f.add(a, b); });
  return {rmsNorm(builder, getLoc(), sum, getWeight(), getResult().getType(), getEps().convertToDouble(),
                  getWeightOffset().convertToDouble(), getRoundBeforeWeight()),
          sum};
}

SmallVector<Value> GluOp::decompose(OpBuilder& builder) {
  Formula f(builder, getLoc());
  return {f.mul(f.silu(getGate()), getUp())};
}

namespace cermet::ir {

void decomposeFused(func::FuncOp function) {
  SmallVector<DecomposableOpInterface> fused;
  function.walk([&](DecomposableOpInterface op) { fused.push_back(op); });
  for (DecomposableOpInterface op : fused) {
    OpBuilder builder(op);
    op->replaceAllUsesWith(op.decompose(builder));
    op->erase();
  }
}

void simplify(func::FuncOp function) {
  RewritePatternSet patterns(function.getContext());
  GreedyRewriteConfig config;
  config.setRegionSimplificationLevel(GreedySimplifyRegionLevel::Disabled);
  // Not converging is no failure: what is left is right, only longer.
  (void)applyPatternsGreedily(function, std::move(patterns), config);
  IRRewriter rewriter(function.getContext());
  DominanceInfo dominance(function);
  eliminateCommonSubExpressions(rewriter, dominance, function);
}

} // namespace cermet::ir
