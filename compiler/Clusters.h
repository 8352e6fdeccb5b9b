// Which operations share a kernel. Every operation that a row program can compute is put with its producers where the
// whole is one row program still, and clusters that read the same tensor are put together: memory is read once.
#pragma once
#include "compiler/Outline.h"
#include <vector>

namespace cermet {

// In one kernel: compiling one takes longer than linear time, and recurses.
constexpr size_t kMostOperations = 512;

// Cheap to repeat in each kernel that reads them: constants, broadcasts, indices, and casts that lose nothing.
bool isRepeated(mlir::Operation* op);

// The same memory seen with other sizes and strides: no kernel.
bool isView(mlir::Operation* op);

// Whether the last dimension of a stored value has stride 1 by what is known when compiling.
bool hasUnitStride(mlir::Value value);

// One step: the operations of a kernel, or one operation that no kernel computes.
struct Group {
  llvm::SmallVector<mlir::Operation*> ops; // in the block's order
  bool isKernel = false;
  OutlinedStep outlined;   // of a kernel
  LoweredFunction lowered; // of a kernel
  std::string reason;      // why one operation is no kernel, where it might have been
};

// The groups of the function's operations, each behind those that it reads. `function` holds small operations and is
// canonical; repeated operations and views are in no group, unless something needs a repeated one stored.
std::vector<Group> groupOperations(mlir::func::FuncOp function);

} // namespace cermet
