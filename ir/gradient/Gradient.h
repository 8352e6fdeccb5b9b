// The gradient of a graph, written in the dialect: a forward that also returns what the backward needs, and a backward
// that computes in f32 (f64 for f64 values) from forward values as the traced program rounded them, and rounds once for
// each result. docs/plan-format.md, "A gradient".
#pragma once
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include <string>
#include <vector>

namespace cermet::ir {

struct Gradient {
  // Where an argument of the backward comes from: `index` counts the forward's inputs, its original outputs, its saved
  // values, or the cotangents (one for each original output).
  struct Origin {
    enum From { Input, Output, Saved, Cotangent } from;
    int index;
  };

  // "<name>_forward": the original inputs to the original outputs, then the saved values, one number a row each, in
  // f32. It keeps the original's fused operations when nothing is saved and is in small operations otherwise.
  mlir::OwningOpRef<mlir::ModuleOp> forward;
  // "<name>_backward": arguments are inputs by their own names, then output<i>, saved<i>, grad_<i>, each in the
  // forward's type (a cotangent in its output's). Results are the wanted gradients in the inputs' order and types.
  mlir::OwningOpRef<mlir::ModuleOp> backward;
  int outputs = 0;
  int saved = 0;
  // The saved values are the wanted gradients for a cotangent of 1, in the inputs' types, and the backward multiplies
  // them with the cotangent.
  bool isUnit = false;
  std::vector<Origin> backwardInputs; // one for each argument of the backward
  std::vector<std::vector<int>>
      backwardOutputs; // the inputs that each result is the gradient of; an addition's share one
};

// Of a function that returns one number, a loss: its gradients are made in the forward, while it has its inputs at hand.
inline constexpr llvm::StringLiteral kGradientInForward = "cermet.gradient_in_forward";

// `wanted` has one entry for each input. False with `error` filled if an operation on the way has no gradient, or a
// wanted input is not a float tensor.
//
// The backward keeps few tensors: it recomputes what it reads from inputs, outputs (of those the choice that reads the
// fewest bytes) and per-row values behind a reduction, which alone are saved.
//
// A function with the attribute cermet.gradient_in_forward returns one float number; its forward returns the gradients
// for a cotangent of 1 behind it.
bool differentiate(mlir::ModuleOp graph, llvm::ArrayRef<bool> wanted, Gradient& gradient, std::string& error);

} // namespace cermet::ir
