// The rotation of a rope: which operations turn a value's columns by pairs, and by which coefficients.
#pragma once
#include "ir/dialect/Ops.h"
#include "llvm/ADT/SetVector.h"
#include <optional>

namespace cermet {

struct Rotation {
  mlir::Value x, result;
  llvm::SetVector<mlir::Operation*> ops;          // from x to the result
  llvm::SmallVector<mlir::Value, 2> coefficients; // of x itself, of x rotated
};

// The rotation that a concat is part of.
std::optional<Rotation> rotationOf(ir::ConcatOp concat);

// Whether the operation is the last of a rope.
bool endsRope(mlir::Operation* op);

} // namespace cermet
