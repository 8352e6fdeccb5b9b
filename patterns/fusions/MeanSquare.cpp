#include "patterns/fusions/MeanSquare.h"
#include "ir/dialect/Ops.h"
#include "patterns/matching/Dataflow.h"
#include "patterns/matching/Names.h"
#include <cmath>
#include <fmt/format.h>

using namespace mlir;
using namespace cermet::ir;

namespace cermet {
namespace {

bool isPower(Operation* op, double exponent) {
  auto pow = dyn_cast<PowOp>(op);
  return pow && constantValue(pow.getRhs()) == exponent;
}

class Search {
public:
  std::optional<MeanSquare> above(Operation* root) {
    found.root = root;
    Value under = through(root->getOperand(0));
    auto add = under.getDefiningOp<AddOp>();
    if (!add)
      return findMean(under) ? std::optional(found) : std::nullopt;
    for (auto [mean, eps] : {std::pair(add.getLhs(), add.getRhs()), std::pair(add.getRhs(), add.getLhs())}) {
      MeanSquare before = found;
      if (findMean(mean)) {
        found.add = add;
        found.eps = eps;
        return found;
      }
      found = std::move(before);
    }
    return std::nullopt;
  }

private:
  Value through(Value value) {
    while (Operation* op = value.getDefiningOp()) {
      if (isa<CastOp>(op))
        found.roundings.push_back(op);
      else if (isa<ReshapeOp>(op))
        found.reshapes.push_back(op);
      else
        break;
      value = op->getOperand(0);
    }
    return value;
  }

  bool findSquare(Value value) {
    while (Operation* op = value.getDefiningOp()) {
      if (isa<CastOp>(op))
        found.roundings.push_back(op);
      else if (keepsRows(op))
        found.reshapes.push_back(op);
      else
        break;
      value = op->getOperand(0);
    }
    Operation* square = value.getDefiningOp();
    if (!square || !(isa<MulOp>(square) || isPower(square, 2)))
      return false;
    Value a = square->getOperand(0), b = isa<MulOp>(square) ? square->getOperand(1) : a;
    if (!sameRows(a, b) && versionedFrom(a) != b && versionedFrom(b) != a)
      return false;
    found.square = square;
    found.wide = a;
    found.again = b;
    return true;
  }

  bool findSum(Value value) {
    MeanSquare before = found;
    Operation* sum = through(value).getDefiningOp();
    if (!sum || !isa<ReduceSumOp, SumRowsOp>(sum) || !findSquare(sum->getOperand(0))) {
      found = std::move(before);
      return false;
    }
    found.sum = sum;
    return true;
  }

  bool findMean(Value value) {
    Operation* mean = through(value).getDefiningOp();
    if (!mean)
      return false;
    if (auto opaque = dyn_cast<OpaqueOp>(mean)) {
      if (!opaque.getTarget().starts_with("mean") || opaque.getOperands().empty() ||
          !findSquare(opaque.getOperands().front()))
        return false;
    } else if (isa<DivOp>(mean) && findSum(mean->getOperand(0))) {
      found.scale = mean->getOperand(1);
    } else if (isa<MulOp>(mean) && findSum(mean->getOperand(0))) {
      found.scale = mean->getOperand(1);
    } else if (isa<MulOp>(mean) && findSum(mean->getOperand(1))) {
      found.scale = mean->getOperand(0);
    } else {
      return findSum(value);
    }
    found.mean = mean;
    return true;
  }

  MeanSquare found;
};

} // namespace

bool isReciprocalRoot(Operation* op) {
  return isa<RsqrtOp>(op) || isPower(op, -0.5);
}

bool isRoot(Operation* op) {
  return isa<SqrtOp>(op) || isPower(op, 0.5);
}

std::optional<MeanSquare> meanSquareAbove(Operation* root) {
  return Search().above(root);
}

llvm::SmallVector<Operation*> reciprocalRoots(const MeanSquare& statistics) {
  llvm::SmallVector<Operation*> roots{statistics.root};
  // Squares have columns, what is summed has one number a row.
  llvm::SmallVector<std::pair<Operation*, bool>> below{{statistics.square, false}};
  for (size_t i = 0; i < below.size(); ++i) {
    auto [op, summed] = below[i];
    for (Operation* user : op->getUsers()) {
      if (summed && isReciprocalRoot(user)) {
        if (!llvm::is_contained(roots, user))
          roots.push_back(user);
      } else if (summed ? isa<DivOp, MulOp, AddOp, ReshapeOp>(user) : isa<ReduceSumOp, ReshapeOp>(user)) {
        std::pair next(user, summed || isa<ReduceSumOp>(user));
        if (!llvm::is_contained(below, next))
          below.push_back(next);
      }
    }
  }
  llvm::sort(roots, [](Operation* a, Operation* b) { return a->isBeforeInBlock(b); });
  return roots;
}

int64_t MeanSquare::columns() const {
  return cast<RankedTensorType>(wide.getType()).getShape().back();
}

double MeanSquare::epsilon() const {
  return *constantValue(eps);
}

llvm::SmallVector<Operation*> MeanSquare::operations() const {
  llvm::SmallVector<Operation*> operations(reshapes);
  for (Operation* op : {square, sum, mean, add, root})
    if (op)
      operations.push_back(op);
  return operations;
}

std::optional<std::string> MeanSquare::violation() const {
  for (Operation* op : {square, sum, mean, add, root})
    if (op && elementType(op->getResult(0)).isF64())
      return "dtype f64 is not supported";
  if (!sum || isa<SumRowsOp>(sum))
    return "the mean is not over the last dimension";
  for (Operation* op : {square, sum, mean})
    if (op && !elementType(op->getResult(0)).isF32())
      return fmt::format("the mean of squares is computed in {}, expected f32", elementText(op->getResult(0)));
  for (Operation* op : {add, root})
    if (op && !elementType(op->getResult(0)).isF32())
      return fmt::format("the reciprocal root is computed in {}, expected f32", elementText(op->getResult(0)));
  for (Operation* rounding : roundings)
    if (!elementType(rounding->getResult(0)).isF32())
      return fmt::format("the mean of squares is rounded to {} by `{}`, expected f32",
                         elementText(rounding->getResult(0)), nameOf(rounding));
  if (auto text = mismatch(again))
    return text;

  Dimension last = dimensions(cast<RankedTensorType>(wide.getType())).back();
  if (last.isSymbol())
    return fmt::format("the last dimension of x is the symbol {}, expected a number", ir::shapeText(last));
  if (!mean)
    return fmt::format("the sum of squares is not divided by {} (columns of x)", columns());
  auto factor = constantValue(scale);
  bool divides = isa<DivOp>(mean);
  if (!factor)
    return fmt::format("the sum of squares is {} by a value that is not a constant, expected {} (columns of x)",
                       divides ? "divided" : "multiplied", columns());
  if (divides && *factor != double(columns()))
    return fmt::format("the sum of squares is divided by {}, expected {} (columns of x)", numberText(*factor),
                       columns());
  // A factor is 1 / columns as f32 has it, and a product with it the quotient where that is exact.
  if (!divides && std::abs(*factor * double(columns()) - 1) > 0x1p-23)
    return fmt::format("the sum of squares is multiplied by {}, expected 1 / {} (columns of x)", numberText(*factor),
                       columns());
  if (!divides && (columns() & (columns() - 1)) != 0)
    return fmt::format("the sum of squares is multiplied by 1 / {}, expected it divided by {} (columns of x): they "
                       "round differently",
                       columns(), columns());
  if (!add)
    return "no eps is added to the mean of squares";
  auto constant = constantValue(eps);
  if (!constant)
    return "eps is not a constant";
  if (!(*constant > 0) || !std::isfinite(*constant))
    return fmt::format("eps is {}, expected a positive finite number", numberText(*constant));
  return std::nullopt;
}

std::optional<std::string> MeanSquare::mismatch(Value value) const {
  if (sameRows(value, wide))
    return std::nullopt;
  for (auto [version, original] : {std::pair(value, wide), std::pair(wide, value)})
    for (Value older = versionedFrom(version); older; older = versionedFrom(older))
      if (sameValue(older, original))
        return writtenText(original, version.getDefiningOp());
  return fmt::format("the reciprocal root scales `{}`, expected the value that is squared, `{}`", nameOf(value),
                     nameOf(wide));
}

} // namespace cermet
