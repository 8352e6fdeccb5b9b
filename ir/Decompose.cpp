#include "ir/Decompose.h"
#include "ir/Ops.h"
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

void simplify(func::FuncOp function) {
  RewritePatternSet patterns(function.getContext());
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
