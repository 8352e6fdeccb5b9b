// cross_entropy, a loss over classes: everything from the logits of each row to one number.
//
//   m = max(x);  d = x - m;  l = log(sum(exp(d)));  log-probability of the label: (d - l)[label]
//
// or x[label] - (l + m), where m may be 0 in rows whose largest is infinite, as logsumexp has it.
// What stands around that core belongs to it where nothing else reads it: casts, softcaps and scales of the logits,
// ignored labels, label smoothing, a squared log-sum, the sum or mean over rows, and arithmetic on the loss itself.
#include "ir/dialect/Ops.h"
#include "patterns/matching/Dataflow.h"
#include "patterns/matching/Finder.h"
#include "patterns/matching/Names.h"
#include <fmt/format.h>

using namespace mlir;
using namespace cermet::ir;

namespace cermet {
namespace {

constexpr size_t kMaxOperations = 256;

// The core: the logarithm of the sum over a row of exponentials, and what they are of.
struct LogSum {
  LogOp log;
  Value logits; // [..., columns], before the largest is subtracted
  int64_t columns;
  llvm::SmallVector<Operation*> ops;
};

Value behindReshapes(Value value, llvm::SmallVectorImpl<Operation*>& ops) {
  while (auto reshape = value.getDefiningOp<ReshapeOp>()) {
    ops.push_back(reshape);
    value = reshape.getOperand();
  }
  return value;
}

// What is chosen in place of 0, or the value itself.
Value unlessZero(Value value, llvm::SmallVectorImpl<Operation*>& ops) {
  auto select = value.getDefiningOp<SelectOp>();
  if (!select || constantValue(select.getLhs()) != 0.0)
    return value;
  ops.push_back(select);
  return select.getRhs();
}

std::optional<LogSum> logSumAt(LogOp log) {
  LogSum found{log, {}, 0, {log}};
  auto sum = behindReshapes(log.getOperand(), found.ops).getDefiningOp<ReduceSumOp>();
  auto exponential = sum ? sum.getOperand().getDefiningOp<ExpOp>() : ExpOp();
  auto difference = exponential ? exponential.getOperand().getDefiningOp<SubOp>() : SubOp();
  auto broadcast = difference ? difference.getRhs().getDefiningOp<BroadcastOp>() : BroadcastOp();
  auto largest = broadcast ? unlessZero(broadcast.getOperand(), found.ops).getDefiningOp<ReduceMaxOp>() : ReduceMaxOp();
  if (!largest || !sameValue(largest.getOperand(), difference.getLhs()))
    return std::nullopt;
  RankedTensorType type = typeOf(difference);
  if (type.isDynamicDim(type.getRank() - 1))
    return std::nullopt;
  found.logits = difference.getLhs();
  found.columns = type.getShape().back();
  found.ops.append({sum, exponential, difference, broadcast, largest});
  return found;
}

bool isSmall(Operation* op) {
  return isElementwise(op) ||
         isa<ConstantOp, BroadcastOp, ReshapeOp, IotaOp, ReduceSumOp, ReduceMaxOp, ReduceMinOp, SumRowsOp, PickOp>(
             op) ||
         isa<SoftcapOp>(op);
}

class Growth {
public:
  Growth(const LogSum& core, const NodeValues& nodes) : columns(core.columns), nodes(nodes) {
    selection.pattern = "cross_entropy";
    selection.counts["cross_entropy"] = 1;
    selection.ops.insert(core.ops.begin(), core.ops.end());
  }

  // Everything up to one number; "" or why it is none that can be replaced.
  std::string run() {
    grow();
    std::string reason = judge();
    if (reason.empty())
      return reason;
    // Without what follows the loss: that may need what comes too late.
    llvm::SetVector<Operation*> all = std::move(selection.ops);
    selection.ops.clear();
    for (Operation* op : all)
      if (!afterLoss.contains(op))
        selection.ops.insert(op);
    return afterLoss.empty() ? reason : judge();
  }

  bool picksLabels() const {
    return llvm::any_of(selection.ops, [&](Operation* op) {
      auto compare = dyn_cast<CompareOp>(op);
      if (auto pick = dyn_cast<PickOp>(op))
        return isWide(pick.getOperand());
      return compare && isWide(compare.getLhs()) &&
             llvm::any_of(compare->getOperands(), [](Value value) { return countsColumns(value); });
    });
  }

  Selection selection;

private:
  bool isWide(Value value) const {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    return type && type.getRank() > 0 && type.getShape().back() == columns;
  }
  static bool isNumber(Value value) {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    return type && llvm::all_of(dimensions(type), [](const Dimension& dimension) { return dimension.isOne(); });
  }
  static bool countsColumns(Value value) {
    while (isa_and_nonnull<BroadcastOp, CastOp>(value.getDefiningOp()))
      value = value.getDefiningOp()->getOperand(0);
    auto iota = value.getDefiningOp<IotaOp>();
    return iota && iota.getDim() + 1 == uint64_t(typeOf(iota).getRank());
  }

  bool isInside(Operation* op) const { return op && selection.ops.contains(op); }

  void grow() {
    for (bool more = true; more && selection.ops.size() < kMaxOperations;) {
      more = false;
      for (size_t i = 0; i < selection.ops.size(); ++i) {
        Operation* op = selection.ops[i];
        for (Value operand : op->getOperands())
          more |= addBefore(operand.getDefiningOp());
        for (Value result : op->getResults())
          for (Operation* user : result.getUsers())
            more |= addBehind(user);
      }
    }
  }

  // What only the selection reads.
  bool addBefore(Operation* op) {
    if (!op || isInside(op) || !isSmall(op) ||
        !llvm::all_of(op->getUsers(), [&](Operation* user) { return isInside(user); }) || changesSizes(op))
      return false;
    return selection.ops.insert(op);
  }

  // A product of symbolic sizes is one that only a frontend knows.
  static bool changesSizes(Operation* op) {
    if (!isa<ReshapeOp>(op))
      return false;
    auto from = dimensions(typeOf(op->getOperand(0))), to = dimensions(typeOf(op->getResult(0)));
    return llvm::any_of(
        to, [&](const Dimension& dimension) { return dimension.isSymbol() && !llvm::is_contained(from, dimension); });
  }

  // What goes on from rows to a number, and from there with numbers.
  bool addBehind(Operation* user) {
    if (isInside(user) || !isSmall(user) || user->getNumResults() != 1)
      return false;
    const bool fromNumber = llvm::all_of(user->getOperands(), [](Value value) { return isNumber(value); });
    if (fromNumber && !isPartOfNode(user)) {
      if (!isNumber(user->getResult(0)))
        return false;
      afterLoss.insert(user);
    }
    return selection.ops.insert(user);
  }

  // Of a node that the selection has begun: all of it, or nothing.
  bool isPartOfNode(Operation* op) const {
    return hasName(op) && llvm::any_of(selection.ops, [&](Operation* other) {
             return hasName(other) && !afterLoss.contains(other) && nameOf(other) == nameOf(op);
           });
  }

  std::string judge() {
    if (std::string reason = complete(selection, nodes); !reason.empty())
      return reason;
    for (Value result : selection.results)
      if (isWide(result))
        return fmt::format("`{}`, of the logits' shape, is read outside", nameOf(result));
    // The loss stands first: the float number.
    auto loss = llvm::find_if(selection.results, [](Value value) {
      return isNumber(value) && isa<FloatType>(typeOf(value).getElementType());
    });
    if (loss != selection.results.end())
      std::rotate(selection.results.begin(), loss, loss + 1);
    return "";
  }

  int64_t columns;
  const NodeValues& nodes;
  llvm::DenseSet<Operation*> afterLoss;
};

} // namespace

// Each selection has the loss as its first result.
static std::vector<Selection> find(const Search& search) {
  std::vector<Selection> selections;
  llvm::DenseSet<Operation*> taken;
  for (Operation* log : search.anchors) {
    std::optional<LogSum> core = taken.contains(log) ? std::nullopt : logSumAt(cast<LogOp>(log));
    if (!core)
      continue;
    Growth growth(*core, search.nodes);
    const std::string reason = growth.run();
    if (!growth.picksLabels())
      continue;
    if (!reason.empty()) {
      search.nearMisses.push_back({"cross_entropy", nameOf(log), reason, log->getLoc()});
      continue;
    }
    taken.insert(growth.selection.ops.begin(), growth.selection.ops.end());
    selections.push_back(std::move(growth.selection));
  }
  return selections;
}

Finder crossEntropy() {
  static const llvm::StringRef anchors[] = {LogOp::getOperationName()};
  return {"cross_entropy", anchors, find};
}

} // namespace cermet
