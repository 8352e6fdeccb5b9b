// Fused operations back to the small ones that they stand for, rounding points included (DecomposableOpInterface).
#pragma once
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cermet::ir {

// Replaces the function's fused operations, those for which `isWanted` holds where it is given. The small operations
// take the fused one's location.
void decomposeFused(mlir::func::FuncOp function, llvm::function_ref<bool(mlir::Operation*)> isWanted = nullptr);

// Folds, canonicalizes and merges equal operations, without a pass manager.
void simplify(mlir::func::FuncOp function);

} // namespace cermet::ir
