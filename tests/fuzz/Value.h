// A value of a graph that is being made, and what is known of its numbers.
#pragma once
#include "ir/dialect/Formula.h"
#include "ir/dialect/Ops.h"
#include <algorithm>
#include <cmath>

namespace cermet::fuzz {

struct Value {
  mlir::Value value;
  double low, high;     // every number is between them
  bool isExact = false; // computed without rounding: the traced program, the mathematical value and a kernel agree
  bool isWhole = false; // whole numbers
  bool isSmooth = true; // of a differentiable graph: a gradient may pass through something that jumps here

  mlir::RankedTensorType type() const { return llvm::cast<mlir::RankedTensorType>(value.getType()); }
  mlir::Type element() const { return type().getElementType(); }
  ir::Dimensions shape() const { return ir::dimensions(type()); }
  bool isFloat() const { return llvm::isa<mlir::FloatType>(element()); }
  bool isBool() const { return element().isInteger(1); }
  bool isInteger() const { return !isFloat() && !isBool(); }
  double largest() const { return std::max(std::fabs(low), std::fabs(high)); }
};

// Whole numbers up to this are numbers of the type.
inline double largestWhole(mlir::Type element) {
  return element.isBF16() ? 0x1p8 : element.isF16() ? 0x1p11 : 0x1p24;
}

// Numbers beyond this are not made: sums and products of them must stay far from infinity.
inline double largestTame(mlir::Type element) {
  return element.isF16() ? 2000 : 1e5;
}

} // namespace cermet::fuzz
