#include "compiler/plan/StoredValues.h"
#include "compiler/plan/Values.h"
#include "ir/dialect/Ops.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace cermet {
namespace {

// Operations that one which is repeated may take, counted for each that reads them.
constexpr int kMaxRepeated = 512;

// Whether every value of the source is one of the result, which kernels compute in.
bool isWidening(ir::CastOp op) {
  Type from = ir::typeOf(op.getOperand()).getElementType(), to = ir::typeOf(op.getResult()).getElementType();
  return isa<BFloat16Type, Float16Type, Float8E4M3FNType, Float8E5M2Type>(from) && to.isF32();
}

bool hasStaticUnitStride(BlockArgument argument) {
  auto function = dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp());
  auto strides = function ? function.getArgAttrOfType<DenseI64ArrayAttr>(argument.getArgNumber(), "cermet.strides")
                          : DenseI64ArrayAttr();
  return !strides || strides.empty() || strides.asArrayRef().back() == 1;
}

// Of the stride itself: what is read under a view may have a last dimension of 1, and any stride there.
bool isUnitStride(Value value) {
  for (Operation* op = value.getDefiningOp(); op && isView(op); op = value.getDefiningOp()) {
    auto transpose = dyn_cast<ir::TransposeOp>(op);
    if (transpose && transpose.getPermutation().back() + 1 != int64_t(transpose.getPermutation().size()))
      return false;
    value = op->getOperand(0);
    // A last dimension of 1 that a reshape drops leaves the stride of the one before it.
    if (isa<ir::ReshapeOp>(op) && ir::typeOf(value).getShape().back() == 1 && !isDense(value))
      return false;
  }
  auto argument = dyn_cast<BlockArgument>(value);
  return !argument || hasStaticUnitStride(argument);
}

// What an operation computes, if a kernel can have it again.
struct Kinds {
  bool indices = false;   // numbers of columns, random ones, and what follows from them, such as a mask
  bool givenRows = false; // one number a row, or fewer, from what is given without a reduction, such as whether a label
                          // counts: what needs it alone must not wait for the rows
};

// `left`: how many operations may still be looked at.
Kinds kindsOf(Operation* op, int& left) {
  if (--left < 0)
    return {};
  if (isa<ir::ConstantOp, ir::IotaOp, ir::RandomOp>(op))
    return {.indices = true};
  const bool isElementwise = ir::isElementwise(op);
  auto type = op->getNumResults() == 1 ? dyn_cast<RankedTensorType>(op->getResult(0).getType()) : RankedTensorType();
  Kinds kinds;
  kinds.indices = isElementwise || isa<ir::BroadcastOp>(op);
  kinds.givenRows = type && (type.getRank() == 0 || type.getShape().back() == 1) && (isElementwise || isView(op));
  for (Value operand : op->getOperands()) {
    if (!kinds.indices && !kinds.givenRows)
      break;
    Operation* source = operand.getDefiningOp();
    const Kinds of = source ? kindsOf(source, left) : Kinds{.givenRows = true};
    kinds.indices &= of.indices;
    kinds.givenRows &= of.indices || of.givenRows;
  }
  return kinds;
}

} // namespace

bool isRepeated(Operation* op) {
  auto cast = dyn_cast<ir::CastOp>(op);
  if (isa<ir::BroadcastOp, ir::ColumnsOp>(op) || (cast && isWidening(cast)))
    return true;
  int left = kMaxRepeated;
  const Kinds kinds = kindsOf(op, left);
  return kinds.indices || (kinds.givenRows && !isView(op));
}

bool isView(Operation* op) {
  return isa<ir::ReshapeOp, ir::TransposeOp, ir::SliceOp>(op);
}

bool hasUnitStride(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return !type || type.getRank() == 0 || type.getShape().back() == 1 || isUnitStride(value);
}

} // namespace cermet
