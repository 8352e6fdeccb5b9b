// The reference interpreter: what a graph means, in float64. The oracle of every numeric test.
#pragma once
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/SmallVector.h"
#include <string>
#include <vector>

namespace cermet::ir {

// A dense row-major tensor of any element type, its numbers as float64 (integers up to 2^53 are exact).
struct Array {
  llvm::SmallVector<int64_t> shape;
  std::vector<double> data;
};

// Runs the graph's function. With `honourCasts`, inputs and every result are rounded to their element type, as in the
// traced program; without it, nothing is (but integers stay integers). Symbols are bound by the inputs' shapes and
// checked. Fused operations run through their decomposition. False with `error` filled on a wrong input, an unbound
// symbol, or an opaque operation.
bool interpret(mlir::ModuleOp graph, llvm::ArrayRef<Array> inputs, bool honourCasts, std::vector<Array>& outputs,
               std::string& error);

} // namespace cermet::ir
