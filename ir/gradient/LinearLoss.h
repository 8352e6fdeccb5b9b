// A loss of a linear layer, cut at its product: who multiplies is somebody else, and the loss of the logits is a
// function of its own, whose rows come in pieces (RowParts.h).
#pragma once
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include <string>

namespace cermet::ir {

struct LinearLoss {
  // The graph's function with one more argument, the last: the logits' product, of hidden's type. Hidden and weight are
  // arguments that nothing reads, so that inputs keep their numbers.
  mlir::OwningOpRef<mlir::ModuleOp> loss;
  unsigned hidden = 0, weight = 0; // inputs of the graph
  int bias = -1;                   // -1: none
  int64_t columns = 0;
};

// Of a graph that has one linear_cross_entropy, whose hidden state, weight and bias are inputs that nothing else reads.
// False with `error` filled where it is no such graph.
bool cutLinearLoss(mlir::ModuleOp graph, LinearLoss& cut, std::string& error);

// Graphs of what else there is to do between products.
// [rows, columns] to the same in another type.
mlir::OwningOpRef<mlir::ModuleOp> roundedRows(mlir::MLIRContext& context, llvm::StringRef name, int64_t columns,
                                              mlir::Type from, mlir::Type to);
// [rows, columns] to [columns]: summed in f32, rounded once.
mlir::OwningOpRef<mlir::ModuleOp> summedRows(mlir::MLIRContext& context, llvm::StringRef name, int64_t columns,
                                             mlir::Type from, mlir::Type to);

} // namespace cermet::ir
