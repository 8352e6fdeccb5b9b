#include "patterns/matching/Legality.h"
#include "ir/dialect/Ops.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "patterns/matching/Dataflow.h"
#include "patterns/matching/Names.h"
#include <fmt/format.h>

using namespace mlir;

namespace cermet {

using Violation = std::optional<std::string>;

// The operations that disappear: inner ones and those whose results are replaced.
static llvm::SmallPtrSet<Operation*, 16> replaced(const Match& match) {
  llvm::SmallPtrSet<Operation*, 16> ops(match.inner.begin(), match.inner.end());
  for (const Rewrite& rewrite : match.rewrites)
    for (Value result : rewrite.results)
      ops.insert(result.getDefiningOp());
  return ops;
}

static Violation written(const Match& match) {
  for (llvm::ArrayRef<Operation*> ops : {match.inner.getArrayRef(), match.entry.getArrayRef()})
    for (Operation* op : ops)
      for (Value value : op->getResults())
        for (Operation* user : value.getUsers())
          if (writes(user, value))
            return writtenText(value, user);
  for (const Rewrite& rewrite : match.rewrites)
    for (Value operand : rewrite.operands)
      if (Value older = versionedFrom(operand); older && older.getDefiningOp<ir::CastOp>())
        return writtenText(older, operand.getDefiningOp());
  return {};
}

static Violation readElsewhere(const Match& match, const llvm::SmallPtrSetImpl<Operation*>& replaced) {
  for (Operation* op : match.inner) {
    Operation* reader = nullptr; // the earliest
    for (Operation* user : op->getUsers())
      if (!replaced.contains(user) && (!reader || user->isBeforeInBlock(reader)))
        reader = user;
    if (reader && isa<func::ReturnOp>(reader))
      return fmt::format("inner value `{}` is returned by the function", nameOf(op->getResult(0)));
    if (reader)
      return fmt::format("inner value `{}` has another user: {}", nameOf(op->getResult(0)), nameOf(reader));
  }
  return {};
}

static Violation unsupported(const NamedAnswer& answer, const Rewrite& rewrite) {
  for (auto [role, value] : llvm::zip_equal(answer.roles(rewrite), rewrite.operands)) {
    auto type = cast<RankedTensorType>(value.getType());
    if (type.getElementType().isF64())
      return "dtype f64 is not supported";
    bool column = type.getRank() == 1 && value != rewrite.operands.front();
    if (!column && (type.getRank() < 2 || type.getRank() > 5))
      return fmt::format("{} has rank {}, expected 2 to 5", role, type.getRank());
    if (type.isDynamicDim(type.getRank() - 1))
      return fmt::format("the last dimension of {} is the symbol {}, expected a number", role,
                         ir::shapeText(ir::dimensions(type).back()));
    auto argument = dyn_cast<BlockArgument>(value);
    auto function = argument ? dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp()) : func::FuncOp();
    if (!function)
      continue;
    auto strides = function.getArgAttrOfType<DenseI64ArrayAttr>(argument.getArgNumber(), "cermet.strides");
    if (!strides || strides.empty() || strides.asArrayRef().back() == 1)
      continue;
    int64_t stride = strides.asArrayRef().back();
    return fmt::format("the last dimension of {} has {}, expected stride 1", role,
                       stride < 0 ? "an unknown stride" : "stride " + std::to_string(stride));
  }
  return {};
}

// A frontend's node may import as several operations of one name, such as a product that casts an operand up first. A
// value inside of a replaced node cannot be handed over.
static Violation unnamed(const NamedAnswer& answer, const Rewrite& rewrite,
                         const llvm::SmallPtrSetImpl<Operation*>& replaced) {
  llvm::SmallVector<std::string> names;
  for (Operation* op : replaced)
    if (hasName(op))
      names.push_back(nameOf(op));
  for (auto [role, value] : llvm::zip_equal(answer.roles(rewrite), rewrite.operands)) {
    Operation* op = value.getDefiningOp();
    if (op && hasName(op) && !replaced.contains(op) && llvm::is_contained(names, nameOf(op)))
      return fmt::format("{} is {} `{}` itself makes, expected a value of the graph", role,
                         isa<ir::CastOp>(op) ? fmt::format("a cast from {} to {} that", elementText(op->getOperand(0)),
                                                           elementText(value))
                                             : "a value that",
                         nameOf(op));
  }
  return {};
}

static Violation misplaced(const NamedAnswer& answer, const Rewrite& rewrite,
                           const llvm::SmallPtrSetImpl<Operation*>& replaced) {
  auto found = obstacle(rewrite.operands, rewrite.results, [&](Operation* op) { return replaced.contains(op); });
  if (!found)
    return {};
  Operation* last = lastMaker(rewrite.operands);
  llvm::StringRef lastRole, role;
  for (auto [each, value] : llvm::zip_equal(answer.roles(rewrite), rewrite.operands)) {
    lastRole = value.getDefiningOp() == last ? each : lastRole;
    role = found->isWrite && value == found->value && role.empty() ? each : role;
  }
  if (found->isWrite)
    return fmt::format("{} `{}` is written in place by `{}` before the {} `{}` exists", role, nameOf(found->value),
                       nameOf(found->user), lastRole, nameOf(last));
  role = answer.results[llvm::find(rewrite.results, found->value) - rewrite.results.begin()];
  return fmt::format("the {} `{}` is used before the {} `{}` exists", role, nameOf(found->value), lastRole,
                     nameOf(last));
}

Violation violation(const NamedAnswer& answer, const Match& match) {
  auto gone = replaced(match);
  if (auto text = written(match))
    return text;
  if (auto text = readElsewhere(match, gone))
    return text;
  for (const Rewrite& rewrite : match.rewrites) {
    if (auto text = unsupported(answer, rewrite))
      return text;
    if (auto text = unnamed(answer, rewrite, gone))
      return text;
    if (auto text = misplaced(answer, rewrite, gone))
      return text;
  }
  return {};
}

} // namespace cermet
