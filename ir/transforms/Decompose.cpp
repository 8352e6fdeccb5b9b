#include "ir/transforms/Decompose.h"
#include "ir/dialect/Ops.h"
#include "mlir/IR/Dominance.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Transforms/CSE.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;
using namespace cermet::ir;

namespace cermet::ir {

void decomposeFused(func::FuncOp function, llvm::function_ref<bool(Operation*)> isWanted) {
  SmallVector<DecomposableOpInterface> fused;
  function.walk([&](DecomposableOpInterface op) {
    if (!isWanted || isWanted(op))
      fused.push_back(op);
  });
  for (DecomposableOpInterface op : fused) {
    OpBuilder builder(op);
    op->replaceAllUsesWith(op.decompose(builder));
    op->erase();
  }
}

namespace {
// One number is one number in any shape.
struct ShapeOfConstant : RewritePattern {
  explicit ShapeOfConstant(MLIRContext* context) : RewritePattern(MatchAnyOpTypeTag(), 1, context) {}

  LogicalResult matchAndRewrite(Operation* op, PatternRewriter& rewriter) const override {
    if (!isa<ReshapeOp, BroadcastOp, TransposeOp, SliceOp>(op))
      return failure();
    auto constant = op->getOperand(0).getDefiningOp<ConstantOp>();
    if (!constant)
      return failure();
    rewriter.replaceOpWithNewOp<ConstantOp>(op, op->getResult(0).getType(), constant.getValueAttr());
    return success();
  }
};
} // namespace

void simplify(func::FuncOp function) {
  RewritePatternSet patterns(function.getContext());
  patterns.add<ShapeOfConstant>(function.getContext());
  CastOp::getCanonicalizationPatterns(patterns, function.getContext());
  GreedyRewriteConfig config;
  config.setRegionSimplificationLevel(GreedySimplifyRegionLevel::Disabled);
  // Not converging is no failure: what is left is right, only longer.
  (void)applyPatternsGreedily(function, std::move(patterns), config);
  IRRewriter rewriter(function.getContext());
  DominanceInfo dominance(function);
  eliminateCommonSubExpressions(rewriter, dominance, function);
}

} // namespace cermet::ir
