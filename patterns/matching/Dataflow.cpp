#include "patterns/matching/Dataflow.h"
#include "ir/dialect/ElementTypes.h"
#include "ir/dialect/Ops.h"
#include "ir/text/Text.h"
#include "mlir/IR/TypeUtilities.h"
#include "patterns/matching/Names.h"
#include "llvm/Support/raw_ostream.h"
#include <fmt/format.h>
#include <functional>

using namespace mlir;
using namespace cermet::ir;

namespace cermet {

Type elementType(Value value) {
  return getElementTypeOrSelf(value);
}
std::string elementText(Value value) {
  return ir::typeText(elementType(value));
}
std::string shapeText(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type ? ir::shapeText(dimensions(type)) : ir::typeText(value.getType());
}
std::string numberText(double number) {
  return fmt::format("{}", number);
}

static bool sameValue(Value a, Value b, int depth) {
  if (a == b)
    return true;
  auto left = dyn_cast<OpResult>(a), right = dyn_cast<OpResult>(b);
  // The depth bounds the work: what nobody shared is rarely deeper than a cast of a sum.
  if (depth == 0 || !left || !right || left.getResultNumber() != right.getResultNumber())
    return false;
  if (!isMemoryEffectFree(left.getOwner()))
    return false;
  return OperationEquivalence::isEquivalentTo(
      left.getOwner(), right.getOwner(), [&](Value x, Value y) { return success(sameValue(x, y, depth - 1)); }, nullptr,
      OperationEquivalence::IgnoreLocations);
}
bool sameValue(Value a, Value b) {
  return sameValue(a, b, 6);
}

std::optional<double> constantValue(Value value) {
  while (Operation* op = value.getDefiningOp()) {
    if (auto constant = dyn_cast<ConstantOp>(op)) {
      double number = constant.getValue().convertToDouble();
      Type type = elementType(constant);
      // f32 rounds it again wherever it is used; what is narrower has rounded it before it is widened.
      return type.isF32() || type.isF64() ? number : roundTo(type, number);
    }
    Value source = isa<BroadcastOp, ReshapeOp>(op) ? op->getOperand(0) : widenedFrom(value);
    // A scalar that a frontend keeps as f64 or as an integer is rounded where it meets f32, as a constant of f32 is.
    if (!source && isa<CastOp>(op) && elementType(value).isF32()) {
      Type from = elementType(op->getOperand(0));
      if (from.isF64() || from.isSignlessInteger(64))
        source = op->getOperand(0);
    }
    if (!source)
      return std::nullopt;
    value = source;
  }
  return std::nullopt;
}

Value widenedFrom(Value value) {
  auto cast = value.getDefiningOp<CastOp>();
  if (!cast)
    return {};
  Type from = elementType(cast.getOperand()), to = elementType(value);
  bool half = from.isBF16() || from.isF16();
  return half && (to.isF32() || to.isF64()) ? cast.getOperand() : Value();
}

bool keepsRows(Operation* op) {
  auto reshape = dyn_cast_or_null<ReshapeOp>(op);
  if (!reshape)
    return false;
  auto from = cast<RankedTensorType>(reshape.getOperand().getType()), to = cast<RankedTensorType>(reshape.getType());
  return from.getRank() > 0 && to.getRank() > 0 && !from.isDynamicDim(from.getRank() - 1) &&
         from.getShape().back() == to.getShape().back();
}

llvm::SmallVector<Value> reshapedFrom(Value value) {
  llvm::SmallVector<Value> values{value};
  while (keepsRows(values.back().getDefiningOp()))
    values.push_back(values.back().getDefiningOp()->getOperand(0));
  return values;
}

bool sameShape(Value a, Value b) {
  return ArrayRef(dimensions(cast<RankedTensorType>(a.getType()))) ==
         ArrayRef(dimensions(cast<RankedTensorType>(b.getType())));
}

Value inShapeOf(Value like, Value value) {
  for (Value candidate : reshapedFrom(value))
    if (sameShape(candidate, like))
      return candidate;
  return {};
}

bool sameRows(Value a, Value b) {
  if (sameValue(a, b))
    return true;
  a = reshapedFrom(a).back();
  b = reshapedFrom(b).back();
  if (sameValue(a, b))
    return true;
  auto left = a.getDefiningOp<CastOp>(), right = b.getDefiningOp<CastOp>();
  return left && right && elementType(a) == elementType(b) && sameRows(left.getOperand(), right.getOperand());
}

Operation* onlyReshape(Value value) {
  Operation* user = value.hasOneUse() ? *value.user_begin() : nullptr;
  return keepsRows(user) ? user : nullptr;
}

Value versionedFrom(Value value) {
  auto result = dyn_cast<OpResult>(value);
  auto write = result ? dyn_cast<OpaqueOp>(result.getOwner()) : OpaqueOp();
  if (!write || write.getEffect() != "write")
    return {};
  unsigned index = result.getResultNumber();
  Value older = write.getOperand(index < write.getVersions() ? index : 0);
  return older.getType() == value.getType() ? older : Value();
}

bool writes(Operation* op, Value value) {
  auto write = dyn_cast<OpaqueOp>(op);
  if (!write || write.getEffect() != "write")
    return false;
  return llvm::is_contained(write.getOperands().take_front(write.getVersions()), value);
}

std::string writtenText(Value value, Operation* write) {
  return fmt::format("inner value `{}` is written in place by `{}`", nameOf(value), nameOf(write));
}

Operation* lastMaker(ValueRange values) {
  Operation* last = nullptr;
  for (Value value : values)
    if (Operation* op = value.getDefiningOp(); op && (!last || last->isBeforeInBlock(op)))
      last = op;
  return last;
}

std::optional<Obstacle> obstacle(ValueRange operands, ValueRange results,
                                 llvm::function_ref<bool(Operation*)> isReplaced) {
  Operation* last = lastMaker(operands);
  if (!last)
    return {};
  auto isTooEarly = [&](Operation* user) { return user == last || user->isBeforeInBlock(last); };
  // Behind autograd calls have no order but that of their values: a frontend moves views.
  const bool viewsWait = last->getParentOfType<ModuleOp>()->hasAttr(kNoGradient);
  std::function<bool(Operation*)> readsTooEarly = [&](Operation* user) {
    return isTooEarly(user) &&
           (!viewsWait || !isa<ReshapeOp, TransposeOp, SliceOp>(user) || llvm::any_of(user->getUsers(), readsTooEarly));
  };
  for (Value result : results)
    for (Operation* user : result.getUsers())
      if (!isReplaced(user) && readsTooEarly(user))
        return Obstacle{result, user, false};
  for (Value operand : operands)
    for (Operation* user : operand.getUsers())
      if (writes(user, operand) && isTooEarly(user))
        return Obstacle{operand, user, true};
  return {};
}

} // namespace cermet
