// Graph text to the plan of docs/plan-format.md: which kernels compute it, which external steps stand between them, and
// what buffers they share.
#pragma once
#include "frontends/c/cermet.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/StringRef.h"
#include <string>

namespace cermet {

struct Dump;

// A text as a graph: CERMET_INVALID_GRAPH where it is none, CERMET_UNSUPPORTED where it has more operations than
// runtime/abi/Limits.h allows. Every question about a graph begins so.
cermet_status readGraph(llvm::StringRef text, mlir::MLIRContext& context, mlir::OwningOpRef<mlir::ModuleOp>& graph,
                        std::string& error);

// A graph whose whole function is one row program becomes one kernel. Otherwise every fused operation is a step, and so
// is every small operation that is left; what no kernel computes is an external step with the reason. Fills `json`, or
// `error` with a status other than CERMET_OK.
cermet_status compileGraph(llvm::StringRef text, const std::string& target, const Dump& dump, std::string& json,
                           std::string& error);

} // namespace cermet
