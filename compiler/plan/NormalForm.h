// The form in which operations are grouped: small operations in place of fused ones, equal ones merged, transposes at
// the ends, columns read in place, reshapes behind what computes. Plans are made of it, and clusters are found in it.
#pragma once
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cermet {

// Brings a function into it. What is made of an operation has its location. Fused operations stay the name of what they
// become; one of a type that no kernel has stays whole: somebody else runs it.
//
// `mark` may give attributes to small operations before equal ones are merged: those with others then are not.
void normalize(mlir::func::FuncOp function, llvm::function_ref<void(mlir::Operation*)> mark = {});

} // namespace cermet
