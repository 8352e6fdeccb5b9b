// Where a joint function (forward, then backward; ir/gradient/Gradient.cpp) is cut: which forward values the backward is given
// and which it recomputes. A backward is given inputs and outputs of the forward, and per-row values that lie behind a
// reduction; of these it keeps few: reading is what a backward of a memory-bound region costs. An input may be among
// them for the size of a symbol alone.
#pragma once
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseSet.h"

namespace cermet::ir {

struct GradientCut {
  std::vector<int> inputs;            // of the forward, in order
  std::vector<int> outputs;           // of the forward, in order
  std::vector<mlir::Value> saved;     // per-row values of the joint function, in its order
  llvm::DenseSet<mlir::Value> needed; // what the backward's part computes, and the cotangents that it reads
};

// The joint's arguments are `inputs` of the forward, then cotangents; its return holds `outputs` of the forward, then
// gradients. Fails, with an error, where the backward would repeat an effect.
llvm::FailureOr<GradientCut> cutGradient(mlir::func::FuncOp joint, int inputs, int outputs);

} // namespace cermet::ir
