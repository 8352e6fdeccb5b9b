// rms_norm, as PyTorch programs write it (a cast to the type that is already there is absent):
//
//   wide       = cast x -> f32
//   mean       = reduce_sum(wide * wide) / columns          or  * (1 / columns)
//   normalised = wide * rsqrt(mean + eps)
//   result     = cast(normalised -> x's type) * weight      Llama: round_before_weight
//              = cast(normalised * (weight + offset) -> x's type)   Gemma; the offset or the last cast may be absent
//
// with operands in either order, `weight` [columns] cast up where its product with the normalised value is wider. Some
// inputs are normalised once and meet several weights: each product becomes an operation.
#include "ir/Ops.h"
#include "patterns/Dataflow.h"
#include "patterns/Names.h"
#include "patterns/Pattern.h"
#include <cmath>
#include <fmt/format.h>

using namespace mlir;
using namespace cermet::ir;

namespace cermet {
namespace {

// The statistics above a rsqrt, found by shape alone; conditions are checked afterwards.
struct Statistics {
  Value wide, again; // the two factors of the square: one value, or one is the other written in place
  Operation* square = nullptr;
  Operation* sum = nullptr;                // null where the mean is one opaque operation
  Operation* mean = nullptr;               // division, multiplication or opaque; null where the sum is not divided
  Operation* add = nullptr;                // of eps
  Value scale, eps;                        // what the sum is divided or multiplied by; what the mean is added to
  llvm::SmallVector<Operation*> roundings; // casts between them
};

class Search {
public:
  explicit Search(RsqrtOp rsqrt) : rsqrt(rsqrt) {}

  Attempt run() {
    if (!findStatistics())
      return {};
    if (check() && findProducts())
      return std::move(match);
    return Miss{root(), condition};
  }

private:
  bool fail(std::string text) {
    if (condition.empty())
      condition = std::move(text);
    return false;
  }

  //===--- Upwards: the statistics
  //---------------------------------------------------------------------------------===//

  Value throughCasts(Value value) {
    while (auto cast = value.getDefiningOp<CastOp>()) {
      statistics.roundings.push_back(cast);
      value = cast.getOperand();
    }
    return value;
  }

  bool findSquare(Value value) {
    auto square = throughCasts(value).getDefiningOp<MulOp>();
    if (!square)
      return false;
    Value a = square.getLhs(), b = square.getRhs();
    if (!sameValue(a, b) && versionedFrom(a) != b && versionedFrom(b) != a)
      return false;
    statistics.square = square;
    statistics.wide = a;
    statistics.again = b;
    return true;
  }

  bool findSum(Value value) {
    Operation* sum = throughCasts(value).getDefiningOp();
    if (!sum || !isa<ReduceSumOp, SumRowsOp>(sum) || !findSquare(sum->getOperand(0)))
      return false;
    statistics.sum = sum;
    return true;
  }

  bool findMean(Value value) {
    Operation* mean = throughCasts(value).getDefiningOp();
    if (!mean)
      return false;
    if (auto opaque = dyn_cast<OpaqueOp>(mean)) {
      if (!opaque.getTarget().starts_with("mean") || opaque.getOperands().empty() ||
          !findSquare(opaque.getOperands().front()))
        return false;
    } else if (isa<DivOp>(mean) && findSum(mean->getOperand(0))) {
      statistics.scale = mean->getOperand(1);
    } else if (isa<MulOp>(mean) && (findSum(mean->getOperand(0)) || findSum(mean->getOperand(1)))) {
      statistics.scale = mean->getOperand(mean->getOperand(0).getDefiningOp() == statistics.sum ? 1 : 0);
    } else {
      return findSum(value);
    }
    statistics.mean = mean;
    return true;
  }

  bool findStatistics() {
    Value under = throughCasts(rsqrt.getOperand());
    auto add = under.getDefiningOp<AddOp>();
    if (!add)
      return findMean(under);
    for (auto [mean, eps] : {std::pair(add.getLhs(), add.getRhs()), std::pair(add.getRhs(), add.getLhs())}) {
      auto before = statistics;
      if (findMean(mean)) {
        statistics.add = add;
        statistics.eps = eps;
        return true;
      }
      statistics = std::move(before);
    }
    return false;
  }

  bool check() {
    const Statistics& s = statistics;
    for (Operation* op : {s.square, s.sum, s.mean, s.add, rsqrt.getOperation()})
      if (op && elementType(op->getResult(0)).isF64())
        return fail("dtype f64 is not supported");
    if (!s.sum || isa<SumRowsOp>(s.sum))
      return fail("the mean is not over the last dimension");
    for (Operation* op : {s.square, s.sum, s.mean})
      if (op && !elementType(op->getResult(0)).isF32())
        return fail(fmt::format("the mean of squares is computed in {}, expected f32", elementText(op->getResult(0))));
    for (Operation* op : {s.add, rsqrt.getOperation()})
      if (op && !elementType(op->getResult(0)).isF32())
        return fail(fmt::format("the reciprocal root is computed in {}, expected f32", elementText(op->getResult(0))));
    for (Operation* rounding : s.roundings)
      if (!elementType(rounding->getResult(0)).isF32())
        return fail(fmt::format("the mean of squares is rounded to {} by `{}`, expected f32",
                                elementText(rounding->getResult(0)), nameOf(rounding)));
    if (!isWide(s.again))
      return false;

    Dimension last = dimensions(cast<RankedTensorType>(s.wide.getType())).back();
    if (last.isSymbol())
      return fail(fmt::format("the last dimension of x is the symbol {}, expected a number", ir::shapeText(last)));
    columns = last.size;
    if (!s.mean)
      return fail(fmt::format("the sum of squares is not divided by {} (columns of x)", columns));
    auto scale = constantValue(s.scale);
    bool divides = isa<DivOp>(s.mean);
    if (!scale)
      return fail(fmt::format("the sum of squares is {} by a value that is not a constant, expected {} (columns of x)",
                              divides ? "divided" : "multiplied", columns));
    if (divides && *scale != double(columns))
      return fail(
          fmt::format("the sum of squares is divided by {}, expected {} (columns of x)", numberText(*scale), columns));
    // A factor is 1 / columns as f32 has it.
    if (!divides && std::abs(*scale * double(columns) - 1) > 0x1p-23)
      return fail(fmt::format("the sum of squares is multiplied by {}, expected 1 / {} (columns of x)",
                              numberText(*scale), columns));
    if (!s.add)
      return fail("no eps is added to the mean of squares");
    auto constant = constantValue(s.eps);
    if (!constant)
      return fail("eps is not a constant");
    if (!(*constant > 0) || !std::isfinite(*constant))
      return fail(fmt::format("eps is {}, expected a positive finite number", numberText(*constant)));
    eps = *constant;

    for (Operation* op : {s.square, s.sum, s.mean, s.add, rsqrt.getOperation()})
      match.inner.insert(op);
    enter(s.wide);
    enter(s.again);
    Value narrow = widenedFrom(s.wide);
    x = narrow ? narrow : s.wide;
    return true;
  }

  // Whether `value` is the value that is squared, and not a version of it that a write has changed.
  bool isWide(Value value) {
    if (sameValue(value, statistics.wide))
      return true;
    for (auto [version, original] : {std::pair(value, statistics.wide), std::pair(statistics.wide, value)})
      for (Value older = versionedFrom(version); older; older = versionedFrom(older))
        if (sameValue(older, original))
          return fail(writtenText(original, version.getDefiningOp()));
    return fail(fmt::format("the reciprocal root scales `{}`, expected the value that is squared, `{}`", nameOf(value),
                            nameOf(statistics.wide)));
  }

  void enter(Value value) {
    if (widenedFrom(value))
      match.entry.insert(value.getDefiningOp());
  }

  //===--- Downwards: normalised values and their weights
  //----------------------------------------------------------===//

  bool findProducts() {
    if (!scaled(rsqrt.getResult()))
      return false;
    if (!match.rewrites.empty())
      return true;
    return fail(product.empty() ? "the normalised value is not multiplied by a weight" : product);
  }

  // Readers that are no part of the sequence are left to the check of inner values.
  bool scaled(Value root) {
    for (Operation* user : root.getUsers()) {
      if (isa<CastOp>(user))
        return fail(fmt::format("the reciprocal root is rounded to {} by `{}`, expected f32",
                                elementText(user->getResult(0)), nameOf(user)));
      if (isa<BroadcastOp>(user)) {
        match.inner.insert(user);
        if (!scaled(user->getResult(0)))
          return false;
      } else if (isa<MulOp>(user) && match.inner.insert(user)) {
        Value wide = user->getOperand(user->getOperand(0) == root ? 1 : 0);
        if (!isWide(wide))
          return false;
        enter(wide);
        for (Operation* reader : user->getUsers())
          if (isa<CastOp>(reader))
            rounded(reader);
          else if (isa<MulOp>(reader))
            weighted(reader, user->getResult(0), {});
      }
    }
    return true;
  }

  void rounded(Operation* rounding) {
    match.inner.insert(rounding);
    Value normalised = rounding->getResult(0);
    for (Operation* reader : normalised.getUsers()) {
      if (isa<MulOp>(reader))
        weighted(reader, normalised, elementType(normalised));
      if (isa<CastOp>(reader) && widenedFrom(reader->getResult(0))) {
        match.inner.insert(reader);
        for (Operation* product : reader->getUsers())
          if (isa<MulOp>(product))
            weighted(product, reader->getResult(0), elementType(normalised));
      }
    }
  }

  // `roundedTo` is null where the normalised value meets the weight as it is.
  void weighted(Operation* mul, Value normalised, Type roundedTo) {
    if (!products.insert(mul))
      return;
    if (roundedTo && roundedTo != elementType(x)) {
      product = fmt::format("the normalised value is rounded to {} before it meets the weight, expected {} (x's type)",
                            elementText(roundedTo), elementText(x));
      return;
    }
    Value side = mul->getOperand(mul->getOperand(0) == normalised ? 1 : 0);
    if (constantValue(side)) {
      product = "the normalised value is multiplied by a constant, expected a weight";
      return;
    }
    llvm::SmallVector<Operation*> conversions;
    double offset = 0;
    Value weight = findWeight(side, roundedTo != nullptr, elementType(mul->getResult(0)), offset, conversions);
    if (shapeText(weight) != fmt::format("[{}]", columns)) {
      product = fmt::format("weight has shape {}, expected [{}]", shapeText(weight), columns);
      return;
    }
    Type expected = promoted(roundedTo ? elementType(x) : Float32Type::get(mul->getContext()), elementType(weight));
    if (elementType(mul->getResult(0)) != expected) {
      product = fmt::format("the product with the weight is computed in {}, expected {}",
                            elementText(mul->getResult(0)), elementText(expected));
      return;
    }
    match.entry.insert(conversions.begin(), conversions.end());
    Value result = mul->getResult(0);
    // Gemma rounds at the very end; another reader of the product would see what was not rounded.
    if (!roundedTo && result.hasOneUse())
      if (auto last = dyn_cast<CastOp>(*result.user_begin()); last && elementType(last) == elementType(x)) {
        match.inner.insert(mul);
        result = last;
      }
    Builder builder(mul->getContext());
    Rewrite rewrite{{x, weight}, {result}, {builder.getNamedAttr("eps", builder.getF64FloatAttr(eps))}};
    if (offset != 0)
      rewrite.attributes.push_back(builder.getNamedAttr("weight_offset", builder.getF64FloatAttr(offset)));
    if (roundedTo)
      rewrite.attributes.push_back(builder.getNamedAttr("round_before_weight", builder.getUnitAttr()));
    match.rewrites.push_back(std::move(rewrite));
  }

  // The weight under what makes it fit: a broadcast, a cast up, and, where all of it is f32, an added constant.
  Value findWeight(Value value, bool rounded, Type productType, double& offset,
                   llvm::SmallVectorImpl<Operation*>& conversions) {
    while (Operation* op = value.getDefiningOp()) {
      Value narrow = widenedFrom(value);
      if (isa<BroadcastOp>(op)) {
        value = op->getOperand(0);
      } else if (narrow && (!rounded || promoted(elementType(x), elementType(narrow)) == productType)) {
        // (A weight that was cast up further than its product with x needs is taken as it is, wide.)
        value = narrow;
      } else if (isa<AddOp>(op) && !rounded && offset == 0) {
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

  // The last operation of the sequence as far as it goes, for a message: the second product below the rsqrt.
  Operation* root() {
    Operation* at = rsqrt;
    for (int products = 0; products < 2;) {
      Operation* next = nullptr;
      for (Operation* user : at->getUsers())
        if (isa<BroadcastOp, CastOp, MulOp>(user) && (!next || user->isBeforeInBlock(next)))
          next = user;
      if (!next)
        break;
      products += isa<MulOp>(next);
      at = next;
    }
    return at;
  }

  RsqrtOp rsqrt;
  Statistics statistics;
  int64_t columns = 0;
  double eps = 0;
  Value x;
  Match match;
  llvm::SmallSetVector<Operation*, 4> products; // looked at
  std::string condition;                        // the first that failed
  std::string product;                          // why the last product looked at is not one with a weight
};

} // namespace

Pattern rmsNorm() {
  static const llvm::StringRef operands[] = {"x", "weight"}, results[] = {"y"};
  return {"rms_norm", RsqrtOp::getOperationName(), operands, results,
          [](Operation* anchor) { return Search(cast<RsqrtOp>(anchor)).run(); }};
}

} // namespace cermet
