// The whole of this room as one call: graph text in, the JSON of docs/plan-format.md, "A match", out.
#pragma once
#include "patterns/Cluster.h"
#include "patterns/Raise.h"
#include "llvm/ADT/StringRef.h"
#include <string>

namespace cermet {

// Finds more regions in a function, beside those that are there; adds near misses to the last argument.
using FindMore = llvm::function_ref<std::vector<Cluster>(mlir::func::FuncOp, const std::vector<Cluster>&,
                                                         const NodeValues&, std::vector<NearMiss>&)>;

// False with `error` filled ("graph:LINE:COLUMN: ...") where the text is not a graph. Safe from several threads at
// once.
bool match(llvm::StringRef graphText, std::string& json, std::string& error, FindMore findMore = {});

} // namespace cermet
