#include "ir/Ops.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace cermet::ir;

#include "ir/Dialect.cpp.inc"
#include "ir/Interfaces.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "ir/Attributes.cpp.inc"
#define GET_OP_CLASSES
#include "ir/Ops.cpp.inc"

void CermetDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "ir/Attributes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "ir/Ops.cpp.inc"
      >();
}

LogicalResult SymbolsAttr::verifyEncoding(ArrayRef<int64_t> shape, Type,
                                          llvm::function_ref<InFlightDiagnostic()> emitError) const {
  size_t dynamic = llvm::count_if(shape, ShapedType::isDynamic);
  if (dynamic != getNames().size())
    return emitError() << "#cermet.symbols names " << getNames().size() << " dimensions, the tensor type has "
                       << dynamic << " that are '?': expected one name for each, left to right";
  for (StringAttr name : getNames())
    if (name.empty())
      return emitError() << "#cermet.symbols has an empty name: expected one such as \"r0\"";
  return success();
}

//===--- Folds: what changes no bit ----------------------------------------------------------------------------------//

// Whether every value of `from` is a value of `to`.
static bool widens(Type from, Type to) {
  if (from == to)
    return true;
  if (auto floatTo = dyn_cast<FloatType>(to)) {
    if (from.isBF16() || from.isF16())
      return to.isF32() || to.isF64();
    if (from.isF32())
      return to.isF64();
    if (auto integer = dyn_cast<IntegerType>(from))
      return integer.getWidth() < floatTo.getFPMantissaWidth();
  }
  return false;
}

OpFoldResult CastOp::fold(FoldAdaptor) {
  if (getOperand().getType() == getType())
    return getOperand();
  auto inner = getOperand().getDefiningOp<CastOp>();
  if (!inner)
    return {};
  auto source = cast<RankedTensorType>(inner.getOperand().getType()).getElementType();
  auto middle = cast<RankedTensorType>(inner.getType()).getElementType();
  if (!widens(source, middle))
    return {};
  getOperandMutable().assign(inner.getOperand());
  return getResult();
}

OpFoldResult BroadcastOp::fold(FoldAdaptor) {
  if (getOperand().getType() == getType())
    return getOperand();
  if (auto inner = getOperand().getDefiningOp<BroadcastOp>()) {
    getOperandMutable().assign(inner.getOperand());
    return getResult();
  }
  return {};
}

OpFoldResult ReshapeOp::fold(FoldAdaptor) {
  if (getOperand().getType() == getType())
    return getOperand();
  if (auto inner = getOperand().getDefiningOp<ReshapeOp>()) {
    getOperandMutable().assign(inner.getOperand());
    return getResult();
  }
  return {};
}

//===--- Effects -----------------------------------------------------------------------------------------------------//

void OpaqueOp::getEffects(SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>& effects) {
  if (getEffect() == "pure")
    return;
  effects.emplace_back(MemoryEffects::Read::get());
  effects.emplace_back(MemoryEffects::Write::get());
}
