// A kernel spec as an MLIR module: its program, or several and the function that shares the rows out to them.
#pragma once
#include "compiler/host/HostTarget.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace cermet {

// `spec` is well-formed, as `parse` leaves it. The context has the llvm, arith and scf dialects loaded. `hasF16C`: see
// HostMath.
mlir::OwningOpRef<mlir::ModuleOp> hostModule(const KernelSpec& spec, const HostEntries& entries,
                                             mlir::MLIRContext& context, bool hasF16C);

} // namespace cermet
