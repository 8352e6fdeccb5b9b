#include "ir/gradient/KeptRows.h"
#include "ir/dialect/Formula.h"
#include "ir/text/Text.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;

namespace cermet::ir {

namespace {

// What of a row is zero where some of its values are. In the part of a piece no operation mixes rows.
class Zeros {
public:
  explicit Zeros(const llvm::DenseSet<Value>& assumed) : assumed(assumed) {}

  bool isZero(Value value) {
    if (auto found = known.find(value); found != known.end())
      return found->second;
    const bool zero = assumed.contains(value) || (value.getDefiningOp() && givesZero(value.getDefiningOp()));
    known[value] = zero;
    return zero;
  }

private:
  bool givesZero(Operation* op) {
    auto operand = [&](unsigned index) { return isZero(op->getOperand(index)); };
    if (auto constant = dyn_cast<ConstantOp>(op))
      return constant.getValue().isZero();
    if (isa<SelectOp>(op))
      return operand(2) && (operand(0) || operand(1));
    if (isa<MulOp>(op))
      return operand(0) || operand(1);
    if (isa<AddOp, SubOp, MaxOp, MinOp>(op))
      return operand(0) && operand(1);
    return isa<DivOp, NegOp, AbsOp, SqrtOp, ReluOp, TanhOp, CastOp, BroadcastOp, ReshapeOp, PickOp, ReduceSumOp,
               ReduceMaxOp, ReduceMinOp, CumsumOp>(op) &&
           operand(0);
  }

  const llvm::DenseSet<Value>& assumed;
  llvm::DenseMap<Value, bool> known;
};

// One number a row.
bool isOfRow(Value value) {
  Dimensions all = dimensions(typeOf(value));
  return all.size() > 1 && all[0].isSymbol() &&
         llvm::all_of(ArrayRef(all).drop_front(), [](const Dimension& dimension) { return dimension.isOne(); });
}

// The values of a row that may decide: its truths, and what it is given as a factor.
SmallVector<Value> candidates(func::FuncOp function, BlockArgument walked) {
  llvm::DenseSet<Value> walking;
  SmallVector<Value> found;
  if (walked)
    walking.insert(walked);
  auto consider = [&](Value value, bool isFactor) {
    Type element = typeOf(value).getElementType();
    if (isOfRow(value) && (element.isInteger(1) || (isFactor && isa<FloatType>(element))))
      found.push_back(value);
  };
  for (BlockArgument argument : function.getArguments())
    consider(argument, argument != walked);
  for (Operation& op : function.getBody().front().without_terminator()) {
    if (llvm::any_of(op.getOperands(), [&](Value operand) { return walking.contains(operand); }))
      walking.insert(op.result_begin(), op.result_end());
    else if (op.getNumResults() == 1 && !isa<ConstantOp>(op))
      consider(op.getResult(0), false);
  }
  return found;
}

// As few of the candidates as make all results zero where they are; none where all of them do not.
SmallVector<Value> deciding(func::FuncOp function, ArrayRef<Value> candidates) {
  auto decide = [&](const llvm::DenseSet<Value>& assumed) {
    Zeros zeros(assumed);
    return llvm::all_of(function.getBody().front().getTerminator()->getOperands(),
                        [&](Value result) { return zeros.isZero(result); });
  };
  llvm::DenseSet<Value> assumed(candidates.begin(), candidates.end());
  if (!decide(assumed))
    return {};
  SmallVector<Value> kept;
  for (Value candidate : candidates) {
    assumed.erase(candidate);
    if (!decide(assumed)) {
      assumed.insert(candidate);
      kept.push_back(candidate);
    }
  }
  return kept;
}

} // namespace

RowPart keptRows(const RowPart& rows, int walked) {
  RowPart part;
  OwningOpRef<ModuleOp> graph = rows.graph.get().clone();
  func::FuncOp function = graphFunction(*graph);
  BlockArgument walkedArgument;
  for (auto [argument, origin] : llvm::zip(function.getArguments(), rows.inputs))
    if (origin.from == RowPart::Origin::Input && origin.index == walked)
      walkedArgument = argument;
  SmallVector<Value> values = deciding(function, candidates(function, walkedArgument));
  if (values.empty())
    return part;
  Operation* terminator = function.getBody().front().getTerminator();
  OpBuilder builder(terminator);
  Formula f(builder, function.getLoc());
  Value any;
  for (Value value : values) {
    Value holds = typeOf(value).getElementType().isInteger(1) ? value : f.compare("ne", value, 0.0);
    any = any ? f.max(any, holds) : holds;
  }
  terminator->setOperands(any);
  function.setName(function.getName().str() + "_kept");
  if (std::optional<RowPart> finished = finishPart(std::move(graph), rows.inputs))
    part = std::move(*finished);
  return part;
}

} // namespace cermet::ir
