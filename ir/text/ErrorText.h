// Collects what MLIR's diagnostics say into text, one line each: "graph:3:7: message" where the location has a place in
// the graph's text, "node \"mul_3\": message" where it only has a name. Lives as long as the work that may fail; nested
// collectors hide outer ones. Warnings and remarks are dropped.
#pragma once
#include "mlir/IR/Diagnostics.h"
#include <string>

namespace cermet::ir {

class ErrorText {
public:
  // Appends to `error`, which must outlive the collector.
  ErrorText(mlir::MLIRContext& context, std::string& error);

private:
  mlir::ScopedDiagnosticHandler handler;
};

} // namespace cermet::ir
