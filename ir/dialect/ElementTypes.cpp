#include "ir/dialect/ElementTypes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/TypeUtilities.h"
#include "runtime/abi/Rounding.h"

using namespace mlir;

namespace cermet::ir {

// Floats are told apart by their semantics, integers by width and sign.
static bool isType(const ElementType& element, Type type) {
  const NumberFormat& format = element.format;
  if (auto real = dyn_cast<FloatType>(type)) {
    const llvm::fltSemantics& semantics = real.getFloatSemantics();
    return int(llvm::APFloat::semanticsPrecision(semantics)) == format.digits &&
           llvm::APFloat::semanticsMinExponent(semantics) == format.lowest &&
           llvm::APFloat::semanticsMaxExponent(semantics) == format.highest;
  }
  auto integer = dyn_cast<IntegerType>(type);
  if (!integer || format.valueClass == ValueClass::Real)
    return false;
  if (format.valueClass == ValueClass::Bool)
    return integer.getWidth() == 1;
  return int(integer.getWidth()) == 8 * element.bytes && integer.isUnsigned() != format.isSigned;
}

std::optional<cermet_dtype> elementTypeOf(Type type) {
  type = getElementTypeOrSelf(type);
  for (const ElementType& element : kElementTypes)
    if (isType(element, type))
      return element.code;
  return std::nullopt;
}

bool holds(Type wide, Type narrow) {
  const std::optional<cermet_dtype> to = elementTypeOf(wide), from = elementTypeOf(narrow);
  if (!to || !from)
    return false;
  const NumberFormat &all = kElementTypes[*to].format, &some = kElementTypes[*from].format;
  if (all.valueClass != ValueClass::Real)
    return *to == *from;
  if (some.valueClass != ValueClass::Real)
    return (some.valueClass == ValueClass::Bool ? 1 : 8 * elementBytes(*from)) < all.digits;
  return some.digits <= all.digits && some.lowest >= all.lowest && some.highest <= all.highest;
}

double roundTo(Type elementType, double value) {
  const std::optional<cermet_dtype> dtype = elementTypeOf(elementType);
  return dtype ? cermet::roundTo(*dtype, value) : value;
}

} // namespace cermet::ir
