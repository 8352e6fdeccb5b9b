// Which operations share a kernel. Every operation that a row program can compute is put with its producers where the
// whole is one row program still, and clusters that read the same tensor are put together: memory is read once.
#pragma once
#include "compiler/plan/StepFunction.h"
#include <vector>

namespace cermet {

// In one kernel: compiling one takes longer than linear time, and recurses. What is left begins another.
constexpr size_t kMaxOperations = 512;

// Of an operation, a name: it shares a kernel with others of this name alone.
inline constexpr llvm::StringLiteral kApart = "cermet.apart";

// One step: the operations of a kernel, or one operation that no kernel computes.
struct Group {
  llvm::SmallVector<mlir::Operation*> ops; // in the block's order
  bool isKernel = false;
  StepBody body;           // of a kernel
  LoweredFunction lowered; // of a kernel
  // Of a kernel: operands that it has whatever it is joined with, as what no kernel computes, or needs stored.
  size_t lastingResults = 0, lastingOperands = 0;
  std::string reason; // why one operation is no kernel, where it might have been

  // Makes what a kernel reads its last result, too; whether one kernel does both.
  bool storeToo(mlir::Value operand);
};

// What it took: both stay within a constant for each operation of the function.
struct GroupingWork {
  size_t lowered = 0; // operations that the lowering was asked about, each time
  size_t visited = 0; // steps from an operation to a reader, in search of paths around a kernel
};

// The groups of the function's operations, each behind those that it reads. `function` holds small operations and is
// canonical; repeated operations and views are in no group, unless something needs a repeated one stored.
std::vector<Group> groupOperations(mlir::func::FuncOp function, GroupingWork* work = nullptr);

} // namespace cermet
