// One step of a plan as a graph function of its own, ready for lowering: equal steps of one graph give equal text,
// whatever their values were called, and so share a kernel.
#pragma once
#include "compiler/plan/Lower.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace cermet {

struct StepFunction {
  mlir::OwningOpRef<mlir::ModuleOp> module;
  llvm::SmallVector<mlir::Value> operands; // values of the graph, by the function's arguments
  llvm::SmallVector<mlir::Value> results;  // and by its results
};

// What a step computes, where it stands in the graph.
struct StepBody {
  llvm::SmallVector<mlir::Operation*> ops; // in order, with those that it repeats
  llvm::SmallVector<mlir::Value> operands, results;

  Computation computation() const { return {ops, operands, results}; }
};

// The operations `ops`, in the block's order, with those that they read and for which `isRepeated` holds; `results` are
// values of either.
StepBody arrangeStep(llvm::ArrayRef<mlir::Operation*> ops, llvm::ArrayRef<mlir::Value> results,
                     llvm::function_ref<bool(mlir::Operation*)> isRepeated);

// The same as a function; `ops` name it.
StepFunction stepFunction(llvm::ArrayRef<mlir::Operation*> ops, const StepBody& body);

// What the operations of a fused one are called in a kernel's name: their location holds the fused operation's name.
mlir::Location partOf(llvm::StringRef name, mlir::Location location);

} // namespace cermet
