#include "ir/dialect/ElementTypes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/TypeUtilities.h"
#include "runtime/abi/Rounding.h"

using namespace mlir;

namespace cermet::ir {

std::optional<cermet_dtype> elementTypeOf(Type type) {
  type = getElementTypeOrSelf(type);
  if (type.isF32())
    return CERMET_F32;
  if (type.isBF16())
    return CERMET_BF16;
  if (type.isF16())
    return CERMET_F16;
  if (type.isF64())
    return CERMET_F64;
  if (isa<Float8E4M3FNType>(type))
    return CERMET_F8E4M3;
  if (isa<Float8E5M2Type>(type))
    return CERMET_F8E5M2;
  auto integer = dyn_cast<IntegerType>(type);
  switch (integer ? integer.getWidth() : 0) {
  case 64:
    return CERMET_I64;
  case 32:
    return CERMET_I32;
  case 16:
    return CERMET_I16;
  case 8:
    return integer.isUnsigned() ? CERMET_U8 : CERMET_I8;
  case 1:
    return CERMET_I1;
  }
  return std::nullopt;
}

double roundTo(Type elementType, double value) {
  const std::optional<cermet_dtype> dtype = elementTypeOf(elementType);
  return dtype ? cermet::roundTo(*dtype, value) : value;
}

} // namespace cermet::ir
