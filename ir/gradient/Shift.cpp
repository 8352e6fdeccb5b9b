#include "ir/gradient/Shift.h"

using namespace mlir;

namespace cermet::ir {

// Users of a value, through broadcasts, reshapes and casts that only widen it.
static SmallVector<OpOperand*> usesOf(Value value) {
  SmallVector<OpOperand*> uses;
  for (OpOperand& use : value.getUses()) {
    Operation* user = use.getOwner();
    if (isa<BroadcastOp, ReshapeOp>(user))
      llvm::append_range(uses, usesOf(user->getResult(0)));
    else
      uses.push_back(&use);
  }
  return uses;
}

// What stands for the largest of a row: itself, or what it is but where a comparison of it chooses a constant (as 0
// where it is infinite). Null where it is read otherwise.
static Value standsFor(ReduceMaxOp largest) {
  Value chosen;
  bool isCompared = false;
  for (OpOperand* use : usesOf(largest.getResult())) {
    Operation* user = use->getOwner();
    auto compares = [](OpOperand* read) { return isa<CompareOp>(read->getOwner()); };
    if (auto select = dyn_cast<SelectOp>(user); select && use->getOperandNumber() > 0 && !chosen)
      chosen = user->getOperand(3 - use->getOperandNumber()).getDefiningOp<ConstantOp>() ? select.getResult() : Value();
    else if (isa<CompareOp>(user) || (isa<AbsOp>(user) && llvm::all_of(usesOf(user->getResult(0)), compares)))
      isCompared = true;
    else
      return isCompared || chosen ? Value() : Value(largest.getResult());
  }
  return chosen;
}

using Values = llvm::SmallPtrSet<Value, 4>;

// Results of operations `Op` that read one of `values`.
template <typename Op> static Values readBy(const Values& values) {
  Values results;
  for (Value value : values)
    for (OpOperand* use : usesOf(value))
      if (isa<Op>(use->getOwner()))
        results.insert(use->getOwner()->getResult(0));
  return results;
}

bool isShift(ReduceMaxOp largest) {
  Value m = standsFor(largest);
  if (!m)
    return false;
  Values differences;
  for (OpOperand* use : usesOf(m)) {
    Operation* user = use->getOwner();
    if (isa<SubOp>(user) && use->getOperandNumber() == 1 && user->getOperand(0) == largest.getOperand())
      differences.insert(user->getResult(0));
    else if (!isa<AddOp>(user))
      return false;
  }
  const Values exponentials = readBy<ExpOp>(differences), sums = readBy<ReduceSumOp>(exponentials),
               logarithms = readBy<LogOp>(sums);
  auto derives = [](Value operand, const Values& from) {
    while (isa_and_nonnull<BroadcastOp, ReshapeOp>(operand.getDefiningOp()))
      operand = operand.getDefiningOp()->getOperand(0);
    return from.contains(operand);
  };
  const Values shift{m};
  auto isSum = [&](Operation* user) {
    return isa<AddOp>(user) && ((derives(user->getOperand(0), shift) && derives(user->getOperand(1), logarithms)) ||
                                (derives(user->getOperand(1), shift) && derives(user->getOperand(0), logarithms)));
  };
  // Whether it is operand `place` of a difference or quotient with one of `others`.
  auto isBeside = [&](OpOperand* use, unsigned place, const Values& others) {
    return use->getOperandNumber() == place && derives(use->getOwner()->getOperand(1 - place), others);
  };
  auto areRead = [](const Values& values, auto allows) {
    return llvm::all_of(values, [&](Value value) {
      return llvm::all_of(usesOf(value), [&](OpOperand* use) { return allows(use, use->getOwner()); });
    });
  };
  // Each is used together with the one that takes the shift back.
  return areRead(differences,
                 [&](OpOperand* use, Operation* user) {
                   return isa<ExpOp>(user) || (isa<SubOp>(user) && isBeside(use, 0, logarithms));
                 }) &&
         areRead(exponentials,
                 [&](OpOperand* use, Operation* user) {
                   return isa<ReduceSumOp>(user) || (isa<DivOp>(user) && isBeside(use, 0, sums));
                 }) &&
         areRead(sums,
                 [&](OpOperand* use, Operation* user) {
                   return isa<LogOp>(user) || (isa<DivOp>(user) && isBeside(use, 1, exponentials));
                 }) &&
         areRead(logarithms,
                 [&](OpOperand* use, Operation* user) {
                   return isSum(user) || (isa<SubOp>(user) && isBeside(use, 1, differences));
                 }) &&
         areRead(shift, [&](OpOperand*, Operation* user) { return isa<SubOp>(user) || isSum(user); });
}

} // namespace cermet::ir
