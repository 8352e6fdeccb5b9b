// The statistics of a norm, found upwards from a root: root(mean(wide * wide) + eps).
#pragma once
#include "mlir/IR/Operation.h"
#include "llvm/ADT/SmallVector.h"
#include <optional>
#include <string>

namespace cermet {

struct MeanSquare {
  mlir::Operation* root = nullptr; // rsqrt, or what has its meaning
  mlir::Value wide, again;         // the two factors of the square: one value, or one is the other written in place
  mlir::Operation* square = nullptr;
  mlir::Operation* sum = nullptr;  // null where the mean is one opaque operation
  mlir::Operation* mean = nullptr; // division, multiplication or opaque; null where the sum is not divided
  mlir::Operation* add = nullptr;  // of eps
  mlir::Value scale, eps;          // what the sum is divided or multiplied by; what the mean is added to
  llvm::SmallVector<mlir::Operation*> roundings; // casts between them
  llvm::SmallVector<mlir::Operation*> reshapes;  // between them: one number a row, in the order of rows

  // The condition that keeps these from being a norm's statistics, or nothing.
  std::optional<std::string> violation() const;
  // The condition that keeps `value` from being the value that is squared, in these rows or others, or nothing: it is
  // no version of it that a write has changed.
  std::optional<std::string> mismatch(mlir::Value value) const;

  // The operations from the square to the root.
  llvm::SmallVector<mlir::Operation*> operations() const;
  // Where there is no violation:
  int64_t columns() const; // of `wide`
  double epsilon() const;
};

// 1 / sqrt(x) in one rounding: `rsqrt`, `pow` with the exponent -1/2.
bool isReciprocalRoot(mlir::Operation* op);
// sqrt(x): `sqrt`, `pow` with the exponent 1/2.
bool isRoot(mlir::Operation* op);

// By shape alone; nothing if no square is summed above `root`.
std::optional<MeanSquare> meanSquareAbove(mlir::Operation* root);

// The reciprocal roots below this square's sum, `root` among them, in block order.
llvm::SmallVector<mlir::Operation*> reciprocalRoots(const MeanSquare& statistics);

} // namespace cermet
