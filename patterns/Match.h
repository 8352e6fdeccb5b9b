// The whole of this room as one call: a graph in, the JSON of docs/plan-format.md, "A match", out.
#pragma once
#include "patterns/Cluster.h"
#include "patterns/Raise.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <string>

namespace cermet {

// Finds more regions in a function, beside those that are there; adds near misses to the last argument.
using FindMore = llvm::function_ref<std::vector<Cluster>(mlir::func::FuncOp, const std::vector<Cluster>&,
                                                         const NodeValues&, std::vector<NearMiss>&)>;

// Raises what it finds in the function. Safe from several threads at once, each with a context of its own.
std::string match(mlir::func::FuncOp function, FindMore findMore = {});

} // namespace cermet
