// Cotangents of slices of one value, which lie beside each other.
#pragma once
#include "ir/dialect/Formula.h"
#include <map>

namespace cermet::ir {

// Cotangents of one value that are zero wherever the others are not, as its slices leave them: joined at the end, not
// added.
struct Joined {
  int64_t dim = 0;
  mlir::RankedTensorType type;
  std::map<int64_t, mlir::Value> parts; // by where they begin; between them are zeros
};

// Takes the cotangent's parts; false if it has none, or they lie where others do.
bool join(Joined& joined, mlir::Value cotangent);
mlir::Value joinedValue(mlir::OpBuilder& builder, mlir::Location location, const Joined& joined);

// A joined cotangent is rounded part by part, so that each part is stored once, where it belongs.
mlir::Value castParts(Formula& f, mlir::Value value, mlir::Type elementType);

} // namespace cermet::ir
