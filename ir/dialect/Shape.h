// Dimensions of a tensor type as the dialect sees them: a number, or a symbol's name that the type's #cermet.symbols
// encoding gives to a `?`. Two dimensions are equal exactly when their types say so.
#pragma once
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Value.h"

namespace cermet::ir {

struct Dimension {
  int64_t size = 1;        // ShapedType::kDynamic where symbolic
  mlir::StringAttr symbol; // null where static

  bool isSymbol() const { return mlir::ShapedType::isDynamic(size); }
  bool isOne() const { return size == 1; }
  bool operator==(const Dimension& other) const { return size == other.size && symbol == other.symbol; }
};

using Dimensions = llvm::SmallVector<Dimension>;

Dimensions dimensions(mlir::RankedTensorType type);
mlir::RankedTensorType tensorType(llvm::ArrayRef<Dimension> dimensions, mlir::Type elementType);

// For messages: "bf16"; "r0" or "4096"; "[r0, 4096]".
std::string typeText(mlir::Type type);
std::string shapeText(const Dimension& dimension);
std::string shapeText(llvm::ArrayRef<Dimension> dimensions);

// The type of a value that is a tensor.
inline mlir::RankedTensorType typeOf(mlir::Value value) {
  return llvm::cast<mlir::RankedTensorType>(value.getType());
}
inline Dimensions shapeOf(mlir::Value value) {
  return dimensions(typeOf(value));
}

// The same shape with another element type.
mlir::RankedTensorType withElement(mlir::RankedTensorType type, mlir::Type elementType);
// `type` with its last dimension 1: one number a row.
mlir::RankedTensorType rowType(mlir::RankedTensorType type);
// The same shape of i1: what a comparison gives.
mlir::RankedTensorType boolType(mlir::RankedTensorType type);
// Dimension i is dimension `permutation[i]` of the given ones.
Dimensions permuted(llvm::ArrayRef<Dimension> dimensions, llvm::ArrayRef<int64_t> permutation);
// What undoes a permutation.
llvm::SmallVector<int64_t> inverse(llvm::ArrayRef<int64_t> permutation);
// The type in which gradients and statistics of a value are kept: f64 for f64, else f32.
mlir::RankedTensorType wideType(mlir::RankedTensorType type);
// The element type that PyTorch computes a mixed operation of two float types in: the wider; f32 for bf16 with f16.
mlir::Type promoted(mlir::Type a, mlir::Type b);

} // namespace cermet::ir
