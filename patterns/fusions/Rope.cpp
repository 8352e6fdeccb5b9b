#include "patterns/fusions/Rope.h"
#include "ir/dialect/Ops.h"
#include "patterns/fusions/Rotation.h"
#include "patterns/matching/Dataflow.h"
#include "patterns/matching/Finder.h"
#include "patterns/matching/Names.h"
#include <fmt/format.h>

using namespace mlir;
using namespace cermet::ir;

namespace cermet {
namespace {

constexpr size_t kMaxTogether = 2; // queries and keys
constexpr size_t kMaxBetween = 16; // rotations between two that become one

// What the values that turn by equal tables have in common.
bool sameTables(const Rotation& a, const Rotation& b) {
  return llvm::all_of(llvm::zip_equal(a.coefficients, b.coefficients), [](auto pair) {
    auto stripped = [](Value value) {
      while (isa_and_nonnull<BroadcastOp, CastOp>(value.getDefiningOp()))
        value = value.getDefiningOp()->getOperand(0);
      return value;
    };
    return sameValue(stripped(std::get<0>(pair)), stripped(std::get<1>(pair)));
  });
}

// The norm that `value` is the result of, by way of transposes and reshapes of rows; `path` is all of them.
Operation* normBefore(Value value, llvm::SetVector<Operation*>& path) {
  const auto columns = dimensions(typeOf(value)).back();
  while (Operation* op = value.getDefiningOp()) {
    auto transpose = dyn_cast<TransposeOp>(op);
    const bool keeps = transpose && transpose.getPermutation().back() + 1 == int64_t(transpose.getPermutation().size());
    path.insert(op);
    if (isa<RmsNormOp>(op))
      return dimensions(typeOf(value)).back() == columns ? op : nullptr;
    if (!keeps && !keepsRows(op))
      return nullptr;
    value = op->getOperand(0);
  }
  return nullptr;
}

Selection selectionOf(const Rotation& rotation) {
  Selection selection{"rope", {{"rope", 1}}, rotation.ops, {}, {}};
  // A cast that only this reads is part of it.
  if (auto cast = rotation.x.getDefiningOp<CastOp>())
    if (llvm::all_of(cast->getUsers(), [&](Operation* user) { return rotation.ops.contains(user); }))
      selection.ops.insert(cast);
  // Pairs are a view of what a frontend has.
  if (auto split = rotation.x.getDefiningOp<ReshapeOp>();
      split && typeOf(rotation.x).getRank() > typeOf(rotation.result).getRank())
    selection.ops.insert(split);
  return selection;
}

// With the norm before it, if the whole can be replaced.
bool addNorm(Selection& selection, Value x, const NodeValues& nodes) {
  if (auto cast = x.getDefiningOp<CastOp>(); cast && selection.ops.contains(cast))
    x = cast.getOperand();
  llvm::SetVector<Operation*> path;
  if (!normBefore(x, path))
    return false;
  Selection whole = selection;
  whole.ops.insert(path.begin(), path.end());
  for (Operation* op : path)
    if (!llvm::all_of(op->getUsers(), [&](Operation* user) { return whole.ops.contains(user); }))
      return false;
  whole.pattern = "qk_norm_rope";
  whole.counts["qk_norm_rope"] += 1;
  if (!complete(whole, nodes).empty())
    return false;
  selection = std::move(whole);
  return true;
}

} // namespace

static std::vector<Selection> find(const Search& search) {
  std::vector<Rotation> rotations;
  llvm::DenseSet<Operation*> taken;
  for (Operation* concat : search.anchors) {
    if (taken.contains(concat))
      continue;
    if (std::optional<Rotation> found = rotationOf(cast<ConcatOp>(concat))) {
      taken.insert(found->ops.begin(), found->ops.end());
      rotations.push_back(std::move(*found));
    }
  }

  std::vector<Selection> selections;
  std::vector<bool> done(rotations.size());
  for (size_t i = 0; i < rotations.size(); ++i) {
    if (done[i])
      continue;
    Selection selection = selectionOf(rotations[i]);
    std::string reason = complete(selection, search.nodes);
    if (reason.empty())
      for (Value result : selection.results)
        if (result != rotations[i].result)
          reason = fmt::format("inner value `{}` is read elsewhere", nameOf(result));
    if (!reason.empty()) {
      Operation* last = rotations[i].result.getDefiningOp();
      search.nearMisses.push_back({"rope", nameOf(last), reason, last->getLoc()});
      continue;
    }
    addNorm(selection, rotations[i].x, search.nodes);
    size_t together = 1;
    for (size_t k = i + 1; k < std::min(rotations.size(), i + 1 + kMaxBetween) && together < kMaxTogether; ++k) {
      if (done[k] || !sameTables(rotations[i], rotations[k]))
        continue;
      Selection other = selectionOf(rotations[k]);
      if (!complete(other, search.nodes).empty() || other.results.size() != 1)
        continue;
      addNorm(other, rotations[k].x, search.nodes);
      Selection both = selection;
      both.ops.insert(other.ops.begin(), other.ops.end());
      both.counts["qk_norm_rope"] += other.counts["qk_norm_rope"];
      both.pattern = both.counts["qk_norm_rope"] ? "qk_norm_rope" : "rope";
      if (!complete(both, search.nodes).empty())
        continue;
      selection = std::move(both);
      done[k] = true;
      ++together;
    }
    selections.push_back(std::move(selection));
  }
  return selections;
}

Finder rope() {
  static const llvm::StringRef anchors[] = {ConcatOp::getOperationName()};
  return {"rope", anchors, find};
}

bool isQueryOrKey(Value value, const std::vector<Selection>& ropes) {
  for (Operation* user : value.getUsers()) {
    if (llvm::any_of(ropes, [&](const Selection& rope) { return rope.ops.contains(user); }))
      return true;
    auto call = dyn_cast<OpaqueOp>(user);
    if (call && call.getTarget().contains("scaled_dot_product_attention"))
      return llvm::is_contained(call.getOperands().take_front(2), value);
    if (isa<ReshapeOp, TransposeOp, BroadcastOp, CastOp>(user) && isQueryOrKey(user->getResult(0), ropes))
      return true;
  }
  return false;
}

} // namespace cermet
