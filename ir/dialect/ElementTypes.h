// MLIR's types as the element types of runtime/abi/ElementType.h.
#pragma once
#include "mlir/IR/Types.h"
#include "runtime/abi/ElementType.h"

namespace cermet::ir {

// Of a number, or of a tensor's elements; nothing where the table has no such type.
std::optional<cermet_dtype> elementTypeOf(mlir::Type type);

// `value` rounded to an element type (runtime/abi/Rounding.h); what the table has not, it stays.
double roundTo(mlir::Type elementType, double value);

} // namespace cermet::ir
