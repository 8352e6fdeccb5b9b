// What the verifiers share: each says on the operation what was given and what was expected.
#pragma once
#include "ir/dialect/Ops.h"

namespace cermet::ir {

// The text of a tensor value's dimensions, and its element type.
std::string shapeTextOf(mlir::Value value);
mlir::Type elementOf(mlir::Value value);

// `name` is what the message calls the value; `of` says where the expectation comes from.
mlir::LogicalResult sameElement(mlir::Operation* op, llvm::StringRef name, mlir::Value value, mlir::Type expected,
                                llvm::StringRef of);
mlir::LogicalResult sameShape(mlir::Operation* op, llvm::StringRef name, mlir::Value value,
                              llvm::ArrayRef<Dimension> expected, llvm::StringRef of);
// A value that is worked on along its last dimension has one.
mlir::LogicalResult hasRows(mlir::Operation* op, llvm::StringRef name, mlir::Value value);

} // namespace cermet::ir
