// rms_norm, as PyTorch programs write it (a cast to the type that is already there is absent):
//
//   wide       = cast x -> f32
//   mean       = reduce_sum(wide * wide) / columns          or  * (1 / columns) where that is exact; the square a pow
//   normalised = wide * rsqrt(mean + eps)                   or  pow(mean + eps, -1/2)
//   result     = cast(normalised -> x's type) * weight      Llama, Qwen, Mistral, Phi, T5: round_before_weight
//              = cast(normalised * weight -> x's type)      OLMo, torch.nn.functional.rms_norm; the last cast may be
//                                                           absent
//              = cast(normalised * (weight + offset) -> x's type)   Gemma
//
// with operands in either order, `weight` [columns] cast up where its product with the normalised value is wider.
// Reshapes that keep rows may stand anywhere. Some inputs are normalised once and meet several weights, or share their
// mean of squares between norms: each product becomes an operation.
//
// What divides by a square root rounds otherwise than what multiplies by rsqrt, and stays as it is.
#include "ir/dialect/Ops.h"
#include "patterns/matching/Dataflow.h"
#include "patterns/fusions/MeanSquare.h"
#include "patterns/matching/Names.h"
#include "patterns/matching/Finder.h"
#include <fmt/format.h>

using namespace mlir;
using namespace cermet::ir;

namespace cermet {
namespace {

// Downwards from one reciprocal root: normalised values and their weights.
class Search {
public:
  explicit Search(MeanSquare statistics) : statistics(std::move(statistics)) {}

  Attempt run() {
    if (auto text = statistics.violation())
      return Miss{last(), *text};
    for (Operation* op : statistics.operations())
      match.inner.insert(op);
    enter(statistics.wide);
    enter(statistics.again);
    if (!scaled(statistics.root->getResult(0)))
      return Miss{last(), condition};
    if (match.rewrites.empty())
      return Miss{last(), product.empty() ? "the normalised value is not multiplied by a weight" : product};
    return std::move(match);
  }

  // The last operation of the sequence as far as it goes, for a message: the second product below the root.
  Operation* last() {
    Operation* at = statistics.root;
    for (int products = 0; products < 2;) {
      Operation* next = nullptr;
      for (Operation* user : at->getUsers())
        if (isa<BroadcastOp, CastOp, DivOp, MulOp, ReshapeOp>(user) && (!next || user->isBeforeInBlock(next)))
          next = user;
      if (!next)
        break;
      products += isa<MulOp>(next) || (isa<DivOp>(next) && !constantValue(next->getOperand(0)));
      at = next;
    }
    return at;
  }

private:
  bool fail(std::string text) {
    condition = std::move(text);
    return false;
  }

  // A cast of x, as often as the program makes it, and the reshapes around it.
  void enter(Value wide) {
    for (Value value : reshapedFrom(wide))
      if (keepsRows(value.getDefiningOp()) || widenedFrom(value))
        match.entry.insert(value.getDefiningOp());
  }

  // Readers that are no part of the sequence are left to the check of inner values.
  bool scaled(Value root) {
    for (Operation* user : root.getUsers()) {
      if (isa<CastOp>(user))
        return fail(fmt::format("the reciprocal root is rounded to {} by `{}`, expected f32",
                                elementText(user->getResult(0)), nameOf(user)));
      if (isa<ReshapeOp>(user)) {
        match.inner.insert(user);
        if (!scaled(user->getResult(0)))
          return false;
      } else if (isa<BroadcastOp>(user)) {
        auto type = cast<RankedTensorType>(user->getResult(0).getType());
        if (root.getType() != rowType(type))
          return fail(fmt::format("the reciprocal root of shape {} is broadcast to {}, expected one number a row",
                                  shapeText(root), shapeText(user->getResult(0))));
        match.inner.insert(user);
        if (!scaled(user->getResult(0)))
          return false;
      } else if (isa<MulOp>(user) && match.inner.insert(user)) {
        Value wide = user->getOperand(user->getOperand(0) == root ? 1 : 0);
        if (auto text = statistics.mismatch(wide))
          return fail(*text);
        enter(wide);
        normalised(user->getResult(0), {});
      }
    }
    return true;
  }

  // `roundedTo` is null where the value is as the product with the root left it.
  void normalised(Value value, Type roundedTo) {
    for (Operation* reader : value.getUsers()) {
      if (isa<MulOp>(reader)) {
        weighted(reader, value, roundedTo);
      } else if (isa<CastOp>(reader) && (!roundedTo || widenedFrom(reader->getResult(0)))) {
        match.inner.insert(reader);
        normalised(reader->getResult(0), roundedTo ? roundedTo : elementType(reader->getResult(0)));
      } else if (keepsRows(reader)) {
        match.inner.insert(reader);
        normalised(reader->getResult(0), roundedTo);
      } else if (isa<ReshapeOp>(reader)) {
        product = fmt::format("the normalised value is reshaped from {} to {}, expected its last dimension kept",
                              shapeText(value), shapeText(reader->getResult(0)));
      }
    }
  }

  void weighted(Operation* mul, Value normalised, Type roundedTo) {
    if (products.insert(mul))
      if (auto text = refused(mul, normalised, roundedTo))
        product = std::move(*text);
  }

  std::optional<std::string> refused(Operation* mul, Value normalised, Type roundedTo) {
    Value side = mul->getOperand(mul->getOperand(0) == normalised ? 1 : 0);
    Type narrowest = elementType(narrowestX());
    if (roundedTo && roundedTo != narrowest)
      return fmt::format("the normalised value is rounded to {} before it meets the weight, expected {} (x's type)",
                         ir::typeText(roundedTo), ir::typeText(narrowest));
    if (constantValue(side))
      return "the normalised value is multiplied by a constant, expected a weight";
    llvm::SmallVector<Operation*> conversions;
    double offset = 0;
    Value weight =
        findWeight(side, roundedTo ? narrowest : Type(), elementType(mul->getResult(0)), offset, conversions);
    if (shapeText(weight) != fmt::format("[{}]", statistics.columns()))
      return fmt::format("weight has shape {}, expected [{}]", shapeText(weight), statistics.columns());
    Type expected = promoted(roundedTo ? narrowest : Float32Type::get(mul->getContext()), elementType(weight));
    if (elementType(mul->getResult(0)) != expected)
      return fmt::format("the product with the weight is computed in {}, expected {}", elementText(mul->getResult(0)),
                         ir::typeText(expected));
    Value result = mul->getResult(0);
    llvm::SmallVector<Operation*> replaced;
    // Gemma rounds at the very end; another reader of the product would see what was not rounded.
    if (!roundedTo && result.hasOneUse())
      if (auto last = dyn_cast<CastOp>(*result.user_begin()); last && elementType(last) == narrowest) {
        replaced.push_back(mul);
        result = last;
      }
    llvm::SmallVector<Operation*> entry;
    Value x = findX(result, entry);
    if (!x)
      if (Operation* reshape = onlyReshape(result)) {
        replaced.push_back(result.getDefiningOp());
        result = reshape->getResult(0);
        x = findX(result, entry);
      }
    if (!x || (roundedTo && elementType(x) != narrowest))
      return fmt::format("x has shape {}, the product with the weight {}, expected one shape", shapeText(narrowestX()),
                         shapeText(mul->getResult(0)));
    match.inner.insert(replaced.begin(), replaced.end());
    match.entry.insert(conversions.begin(), conversions.end());
    match.entry.insert(entry.begin(), entry.end());
    Builder builder(mul->getContext());
    Rewrite rewrite{
        {x, weight}, {result}, {builder.getNamedAttr("eps", builder.getF64FloatAttr(statistics.epsilon()))}};
    if (offset != 0)
      rewrite.attributes.push_back(builder.getNamedAttr("weight_offset", builder.getF64FloatAttr(offset)));
    if (roundedTo)
      rewrite.attributes.push_back(builder.getNamedAttr("round_before_weight", builder.getUnitAttr()));
    match.rewrites.push_back(std::move(rewrite));
    return std::nullopt;
  }

  // What the value that is squared comes from, through reshapes and at most one widening.
  llvm::SmallVector<Value> sourcesOfX() {
    llvm::SmallVector<Value> sources = reshapedFrom(statistics.wide);
    for (Value wide : reshapedFrom(statistics.wide))
      if (Value narrow = widenedFrom(wide)) {
        llvm::append_range(sources, reshapedFrom(narrow));
        break;
      }
    return sources;
  }

  Value narrowestX() {
    for (Value source : sourcesOfX())
      if (elementType(source) != elementType(statistics.wide))
        return source;
    return statistics.wide;
  }

  // x in the shape of the result, as narrow as it is there; `entry` gets what leads from it to the sequence.
  Value findX(Value result, llvm::SmallVectorImpl<Operation*>& entry) {
    Value x;
    llvm::SmallVector<Operation*> passed;
    for (Value source : sourcesOfX()) {
      bool first = !x || elementType(source) != elementType(x);
      if (first && sameShape(source, result)) {
        x = source;
        entry.append(passed);
        passed.clear();
      }
      if (Operation* op = source.getDefiningOp())
        passed.push_back(op);
    }
    return x;
  }

  // The weight under what makes it fit: a broadcast, leading dimensions of 1, a cast up, and, where all of it is f32,
  // an added constant.
  Value findWeight(Value value, Type rounded, Type productType, double& offset,
                   llvm::SmallVectorImpl<Operation*>& conversions) {
    while (Operation* op = value.getDefiningOp()) {
      Value narrow = widenedFrom(value);
      if (isa<BroadcastOp>(op) || addsLeadingOnes(op)) {
        value = op->getOperand(0);
      } else if (narrow && (!rounded || promoted(rounded, elementType(narrow)) == productType)) {
        // (A weight that was cast up further than its product with x needs is taken as it is, wide.)
        value = narrow;
      } else if (isa<AddOp>(op) && !rounded && offset == 0 && elementType(value).isF32()) {
        auto left = constantValue(op->getOperand(0)), right = constantValue(op->getOperand(1));
        if (left.has_value() == right.has_value())
          return value;
        offset = left ? *left : *right;
        value = op->getOperand(left ? 1 : 0);
      } else {
        return value;
      }
      conversions.push_back(op);
    }
    return value;
  }

  static bool addsLeadingOnes(Operation* op) {
    if (!isa<ReshapeOp>(op) || shapeText(op->getOperand(0)) == shapeText(op->getResult(0)))
      return false;
    auto from = dimensions(cast<RankedTensorType>(op->getOperand(0).getType()));
    auto to = dimensions(cast<RankedTensorType>(op->getResult(0).getType()));
    return from.size() == 1 && !to.empty() && from.back() == to.back() &&
           llvm::all_of(ArrayRef(to).drop_back(), [](const Dimension& dimension) { return dimension.isOne(); });
  }

  MeanSquare statistics;
  Match match;
  llvm::SmallSetVector<Operation*, 4> products; // looked at
  std::string condition;                        // that failed
  std::string product;                          // why the last product looked at is not one with a weight
};

// A quotient by a root, or the root's reciprocal.
Operation* quotientBelow(Operation* root) {
  for (Operation* user : root->getUsers())
    if (isa<BroadcastOp, ReshapeOp>(user)) {
      if (Operation* quotient = quotientBelow(user))
        return quotient;
    } else if (isa<DivOp>(user) && user->getOperand(1) == root->getResult(0)) {
      return user;
    }
  return nullptr;
}

Attempt match(Operation* anchor) {
  bool root = isRoot(anchor);
  if (!root && !isReciprocalRoot(anchor))
    return {};
  auto statistics = meanSquareAbove(anchor);
  if (!statistics)
    return {};
  if (root) {
    if (!statistics->mean || !quotientBelow(anchor))
      return {};
    return Miss{Search(*statistics).last(), "x is divided by a square root, expected it multiplied by the reciprocal "
                                            "root: they round differently"};
  }
  Attempt found = Search(*statistics).run();
  auto* match = std::get_if<Match>(&found);
  if (!match)
    return found;
  // Norms that share the mean of squares go together, or it would have another user.
  for (Operation* other : reciprocalRoots(*statistics)) {
    auto shared = other == anchor ? std::nullopt : meanSquareAbove(other);
    if (!shared)
      continue;
    Attempt sibling = Search(*shared).run();
    if (auto* more = std::get_if<Match>(&sibling)) {
      llvm::append_range(match->rewrites, more->rewrites);
      match->inner.insert(more->inner.begin(), more->inner.end());
      match->entry.insert(more->entry.begin(), more->entry.end());
    }
  }
  return found;
}

} // namespace

Finder rmsNorm() {
  static const llvm::StringRef anchors[] = {RsqrtOp::getOperationName(), PowOp::getOperationName(),
                                            SqrtOp::getOperationName()};
  static const llvm::StringRef operands[] = {"x", "weight"}, results[] = {"y"};
  return {"rms_norm", anchors, NamedAnswer{operands, results, match}};
}

} // namespace cermet
