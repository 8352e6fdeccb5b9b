// MLIR's types as the element types of runtime/abi/ElementType.h.
#pragma once
#include "mlir/IR/Types.h"
#include "runtime/abi/ElementType.h"

namespace cermet::ir {

// Of a number, or of a tensor's elements; nothing where the table has no such type.
std::optional<cermet_dtype> elementTypeOf(mlir::Type type);

// Whether each number of `narrow` is one of `wide`, as far as a real's digits and exponents say.
bool holds(mlir::Type wide, mlir::Type narrow);

// `value` rounded to an element type (runtime/abi/Rounding.h); what the table has not, it stays.
double roundTo(mlir::Type elementType, double value);

} // namespace cermet::ir
