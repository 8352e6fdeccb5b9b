// What a number becomes when it is kept in an element type.
#pragma once
#include "mlir/IR/Types.h"

namespace cermet::ir {

// `value` rounded to an element type: to nearest, ties to even, subnormals, overflow to infinity (f8E4M3FN: to 448) and
// NaN included; integers toward zero and wrapped to their width; i1 is 0 or 1.
double roundTo(mlir::Type elementType, double value);

} // namespace cermet::ir
