// What an opaque operation stands for, where its importer knows: `cermet.body` names a function of the same text, so
// that the engine may take the operation apart. In the body's types each symbol is the size that the operand has there.
#pragma once
#include "ir/dialect/Ops.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cermet::ir {

inline constexpr llvm::StringLiteral kBody = "cermet.body";
// The numbers of the operation's results that are contiguous in memory, as an array of i64.
inline constexpr llvm::StringLiteral kDense = "cermet.dense";

// The function that the operation names; null where it names none.
mlir::func::FuncOp bodyOf(mlir::Operation* op);

// The values of the operation's results, computed of `operands` at the builder's place: the body's operations, each
// with that location, fused ones as what they stand for.
llvm::SmallVector<mlir::Value> inlineBody(mlir::Operation* op, mlir::ValueRange operands, mlir::OpBuilder& builder,
                                          mlir::Location location);

// Whether a body that is named can stand for the operation. Emits an error where it cannot.
mlir::LogicalResult verifyBody(mlir::Operation* op);

} // namespace cermet::ir
