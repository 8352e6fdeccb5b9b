// One step of a plan as a graph function of its own, ready for lowering: equal steps of one graph give equal text,
// whatever their values were called, and so share a kernel.
#pragma once
#include "compiler/Lower.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace cermet {

struct OutlinedStep {
  mlir::OwningOpRef<mlir::ModuleOp> module;
  llvm::SmallVector<mlir::Value> operands; // values of the graph, by the function's arguments
  llvm::SmallVector<mlir::Value> results;  // and by its results: those of the operation that something uses
};

// `op`, with the operations it reads for which `isRepeated` holds, as small operations.
OutlinedStep outlineStep(mlir::Operation* op, llvm::function_ref<bool(mlir::Operation*)> isRepeated);

// A function that returns its argument, of `value`'s type.
OutlinedStep outlineCopy(mlir::Value value);

} // namespace cermet
