// The whole of this room as one call: a graph in, the JSON of docs/plan-format.md, "A match", out.
#pragma once
#include "patterns/matching/Finder.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <string>

namespace cermet {

// What the finders, in their order, make regions of; the function is raised. Safe from several threads at once, each
// with a context of its own.
std::string match(mlir::func::FuncOp function, llvm::ArrayRef<Finder> finders);

} // namespace cermet
