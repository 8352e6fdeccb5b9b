// What the gradient suites share: a graph with its range of inputs, and the way from a gradient's parts to one
// gradient for each input.
#pragma once
#include "ir/gradient/Gradient.h"
#include "tests/unit/ir/GraphTest.h"

namespace cermet::ir {

struct Case {
  std::string name, function;
  double lowest = -2, highest = 2;
  // No two numbers of a run are near each other, and none is near the middle of the range: what chooses between
  // numbers chooses alike a step away.
  bool apart = false;
};

class GradientTest : public GraphTest, public testing::WithParamInterface<Case> {
protected:
  std::vector<Array> caseInputs(mlir::ModuleOp graph);
  // Of every float input.
  Gradient differentiateAll(mlir::ModuleOp graph);
  // One gradient for each float input, by the input's number, from the backward's results, which inputs may share.
  std::vector<Array> perInput(const Gradient& gradient, llvm::ArrayRef<Array> results, size_t inputs);
  // What the backward gets, from a run of the forward.
  std::vector<Array> backwardInputs(const Gradient& gradient, llvm::ArrayRef<Array> inputs,
                                    llvm::ArrayRef<Array> forward, llvm::ArrayRef<Array> cotangents);
  // The sum of the outputs times the cotangents, without rounding.
  double loss(mlir::ModuleOp graph, llvm::ArrayRef<Array> inputs, llvm::ArrayRef<Array> cotangents);
  // The gradients of all float inputs at `inputs`, unrounded.
  std::vector<Array> gradientsAt(mlir::ModuleOp graph, llvm::ArrayRef<Array> inputs, llvm::ArrayRef<Array> cotangents);
};

// A function of x [r0, 5] and w [5], of x and residual [2, r0, 5]; element types, and attributes after eps.
std::string norm(const std::string& x, const std::string& weight, const std::string& result, const std::string& extra);
std::string addNorm(const std::string& x, const std::string& residual, const std::string& sum,
                    const std::string& weight, const std::string& result, const std::string& extra);

} // namespace cermet::ir
