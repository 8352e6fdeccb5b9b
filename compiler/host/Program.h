// A row program as functions of an MLIR module (llvm, arith and scf dialects), those that HostTarget.h describes. Column
// loops are vectorised here, not by LLVM: each step handles 16 columns, a last masked step what is left.
#pragma once
#include "compiler/host/HostTarget.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinOps.h"

namespace cermet {

// `program` is well-formed, as `parse` leaves it. `linkage` is main's. `hasF16C`: see HostMath.
void emitHostProgram(const RowProgram& program, const HostEntries& entries, mlir::ModuleOp module,
                     mlir::LLVM::Linkage linkage, bool hasF16C);

} // namespace cermet
