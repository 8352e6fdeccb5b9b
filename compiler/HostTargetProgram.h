// A row program as an MLIR module (llvm, arith and scf dialects) with the functions that HostTarget.h describes. Column
// loops are vectorised here, not by LLVM: each step handles 16 columns, a last masked step what is left.
#pragma once
#include "compiler/HostTarget.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace cermet {

// `program` is well-formed, as `parse` leaves it. The context has the three dialects loaded. `hasF16C`: see HostMath.
mlir::OwningOpRef<mlir::ModuleOp> hostModule(const RowProgram& program, const HostEntries& entries,
                                             mlir::MLIRContext& context, bool hasF16C);

} // namespace cermet
