// The draws: which operation comes next and what it reads.
#include "tests/fuzz/Steps.h"

using namespace mlir;

namespace cermet::fuzz {

void Steps::step() {
  static constexpr std::pair<int, void (Steps::*)()> kSteps[] = {
      {14, &Steps::unaryStep}, {22, &Steps::binaryStep},  {6, &Steps::compareStep},    {6, &Steps::selectStep},
      {10, &Steps::castStep},  {6, &Steps::constantStep}, {12, &Steps::reductionStep}, {4, &Steps::sumRowsStep},
      {10, &Steps::viewStep},  {4, &Steps::concatStep},   {1, &Steps::gatherStep},     {1, &Steps::pickStep},
      {3, &Steps::normStep},   {3, &Steps::softmaxStep},  {2, &Steps::rotateStep},     {3, &Steps::gateStep},
      {2, &Steps::dropStep},   {3, &Steps::cumsumStep}};
  int total = 0;
  for (const auto& entry : kSteps)
    total += entry.first;
  int drawn = pick(total);
  for (const auto& [weight, run] : kSteps)
    if ((drawn -= weight) < 0)
      return (this->*run)();
}

void Steps::unaryStep() {
  if (pick(8) == 0) {
    Value a = any([](const Value& value) { return value.isInteger(); });
    if (pick(2))
      unary(a, 0);
    else
      add(ir::AbsOp::create(builder, location, a.value.getType(), a.value), 0, a.largest(), true, true);
    return;
  }
  unary(anyFloat(), pick(14));
}

void Steps::binaryStep() {
  Value first = any([&](const Value& value) { return !value.isBool() || pick(4) == 0; });
  ir::Dimensions joined;
  Value second = any([&](const Value& value) {
    return (value.isExact || first.isFloat()) && extends(first.shape(), value.shape(), joined);
  });
  auto [a, b] = together(first, second);
  bool mayChoose = mayJump(a) && mayJump(b);
  if (a.isBool()) {
    pick(2) ? larger(a, b) : smaller(a, b);
    return;
  }
  switch (pick(a.isFloat() ? 10 : 7)) {
  case 0:
  case 1:
    plus(a, b);
    return;
  case 2:
    minus(a, b);
    return;
  case 3:
  case 4:
    times(a, b);
    return;
  case 5:
    if (mayChoose)
      larger(a, b);
    return;
  case 6:
    if (mayChoose)
      smaller(a, b);
    return;
  case 7:
    over(a, away(b));
    return;
  case 8:
    power(a);
    return;
  default:
    times(plus(a, b), a); // one operand read twice
  }
}

void Steps::compareStep() {
  Value first = any([](const Value& value) { return value.isExact; });
  ir::Dimensions joined;
  Value second = any([&](const Value& value) {
    return value.isExact && extends(first.shape(), value.shape(), joined) && value.element() == first.element();
  });
  static constexpr const char* kPredicates[] = {"eq", "ne", "lt", "le", "gt", "ge"};
  auto [a, b] =
      together(first, first.value == second.value || pick(4) == 0 ? constantLike(first, pick(5) - 2) : second);
  if (b.isExact)
    add(formula.compare(kPredicates[pick(6)], a.value, b.value), 0, 1, true, true);
}

void Steps::selectStep() {
  Value condition = any([](const Value& value) { return value.isBool(); });
  ir::Dimensions joined;
  Value first = any([&](const Value& value) { return extends(condition.shape(), value.shape(), joined); });
  Value second = pick(3) ? any([&](const Value& value) {
    return value.element() == first.element() && extends(first.shape(), value.shape(), joined);
  })
                         : constantLike(first, first.isBool() ? pick(2) : pick(7) - 3);
  auto [a, b] = together(first, second);
  if (!extends(condition.shape(), a.shape(), joined))
    return;
  select(broadcast(condition, joined), broadcast(a, joined), broadcast(b, joined));
}

void Steps::castStep() {
  Value a = any([&](const Value& value) { return value.isFloat() || pick(2); });
  int drawn = pick(8);
  if (drawn < 6 || !a.isExact)
    cast(a, floatType());
  else
    cast(a, drawn == 6 ? integerType() : builder.getI1Type());
}

void Steps::constantStep() {
  ir::Dimensions shape = any([](const Value&) { return true; }).shape();
  if (pick(2) && !shape.empty()) {
    int64_t dim = pick(static_cast<int>(shape.size()));
    if (pick(2))
      for (size_t i = 0; i < shape.size(); ++i) // the index alone
        if (int64_t(i) != dim)
          shape[i] = ir::Dimension();
    Type element = pick(2) ? integerType() : builder.getF32Type();
    double last = largestSize(shape[dim]) - 1;
    add(formula.iota(ir::tensorType(shape, element), dim), 0, last, true, true);
    return;
  }
  if (pick(2))
    shape.assign(pick(2), ir::Dimension());
  bool isInteger = pick(4) == 0;
  constant(shape, isInteger ? integerType() : floatType(), isInteger ? pick(9) : (pick(41) - 20) / 8.0);
}

// Some elements times 1.25, the others times 0.
void Steps::dropStep() {
  Value a = anyFloat();
  mlir::Value seed = formula.number(ir::tensorType({}, builder.getI64Type()), pick(1 << 20) - (1 << 19));
  RankedTensorType numbers = ir::tensorType(a.shape(), builder.getI64Type());
  mlir::Value kept = formula.compare("ge", ir::RandomOp::create(builder, location, numbers, seed), pick(9) * 0x1p29);
  Value scale = constantLike(a, 1.25), zero = constantLike(a, 0);
  times(a, add(formula.select(kept, scale.value, zero.value), 0, 1.25, true, false));
}

void Steps::reductionStep() {
  Value a = any(
      [](const Value& value) { return value.isFloat() && !value.shape().empty() && !value.shape().back().isOne(); });
  Value row = [&] {
    switch (pick(4)) {
    case 0:
      return reduceExtreme(a, true);
    case 1:
      return reduceExtreme(a, false);
    default:
      return reduceSum(tamed(a, largestTame(a.element()) / 8 / largestSize(a.shape().back())));
    }
  }();
  if (pick(3) == 0)
    return;
  Value back = broadcast(row, a.shape()); // and back to the tile
  pick(2) ? minus(a, back) : times(a, tamed(back, 2));
}

void Steps::cumsumStep() {
  Value a = any([](const Value& value) { return !value.isBool() && !value.shape().empty(); });
  const double terms = largestSize(a.shape().back());
  a = a.isFloat() ? tamed(cast(a, builder.getF32Type()), largestTame(builder.getF32Type()) / 8 / terms)
                  : cast(a, builder.getI64Type());
  const bool isWhole = a.isExact && a.isWhole && a.largest() * terms <= largestWhole(a.element());
  if (!a.isFloat() && !isWhole)
    throw Untame();
  add(formula.cumsum(a.value, pick(2)), std::min(a.low, a.low * terms), std::max(a.high, a.high * terms), isWhole,
      isWhole);
}

void Steps::sumRowsStep() {
  Value a = anyFloat();
  if (a.shape().empty() || (a.shape().size() == 1 && pick(8)))
    throw Untame();
  if (pick(3))
    a = cast(a, builder.getF32Type());
  double rows = 1;
  for (const ir::Dimension& dimension : llvm::ArrayRef(a.shape()).drop_back())
    rows *= largestSize(dimension);
  a = tamed(a, largestTame(a.element()) / 8 / rows);
  bool isWhole = a.isExact && a.isWhole && a.largest() * rows <= largestWhole(a.element());
  Value sum =
      add(formula.sumRows(a.value), std::min(a.low * rows, 0.0), std::max(a.high * rows, 0.0), isWhole, isWhole);
  if (pick(2))
    cast(sum, floatType());
}

void Steps::viewStep() {
  Value a = any([](const Value& value) { return !value.shape().empty(); });
  ir::Dimensions shape = a.shape();
  int rank = static_cast<int>(shape.size()), dim = pick(rank);
  switch (pick(4)) {
  case 0: {
    SmallVector<int64_t> permutation(rank);
    for (int i = 0; i < rank; ++i)
      permutation[i] = i;
    std::shuffle(permutation.begin(), permutation.end(), random);
    if (!shape[permutation.back()].isSymbol()) // columns are static
      view(a, formula.transpose(a.value, permutation));
    return;
  }
  case 1: { // splits a dimension, merges two, or moves a 1
    if (pick(2) && dim + 1 < rank && !shape[dim].isSymbol() && !shape[dim + 1].isSymbol()) {
      shape[dim].size *= shape[dim + 1].size;
      shape.erase(shape.begin() + dim + 1);
    } else if (!shape[dim].isSymbol() && !shape[dim].isOne() && rank < 5) {
      int64_t factor = 2;
      while (shape[dim].size % factor)
        ++factor;
      ir::Dimension inner;
      inner.size = factor;
      shape[dim].size /= factor;
      if (pick(2))
        std::swap(inner.size, shape[dim].size);
      shape.insert(shape.begin() + dim + 1, inner);
    } else if (shape[dim].isOne() && rank > 1) {
      shape.erase(shape.begin() + dim);
    } else if (rank < 5) {
      shape.insert(shape.begin() + dim, ir::Dimension());
    }
    if (shape.back().isSymbol() || (!shape.back().isSymbol() && shape.back().size > 512))
      return;
    view(a, formula.reshape(a.value, shape));
    return;
  }
  case 2:
    if (!shape[dim].isSymbol() && shape[dim].size > 1) {
      int64_t size = 1 + pick(static_cast<int>(shape[dim].size) - 1);
      slice(a, dim, pick(static_cast<int>(shape[dim].size - size) + 1), size);
    }
    return;
  default:
    if (!shape[dim].isSymbol() && shape[dim].size % 2 == 0) {
      int64_t half = shape[dim].size / 2;
      Value low = slice(a, dim, 0, half), high = slice(a, dim, half, half);
      if (a.isFloat())
        times(low, high);
      else if (a.isInteger())
        plus(low, high);
    }
  }
}

void Steps::concatStep() {
  Value a = any([](const Value& value) { return !value.shape().empty() && value.shape().size() <= 5; });
  ir::Dimensions shape = a.shape();
  int64_t dim = pick(static_cast<int>(shape.size()));
  if (shape[dim].isSymbol())
    return;
  Value b = any([&](const Value& value) {
    ir::Dimensions other = value.shape();
    if (value.element() != a.element() || other.size() != shape.size() || other[dim].isSymbol())
      return false;
    other[dim] = shape[dim];
    return other == shape;
  });
  pick(4) ? concat({a, b}, dim) : concat({b, a, b}, dim);
}

// Rows of a small table by whole numbers that are in it, or just not.
void Steps::gatherStep() {
  Value index = any([](const Value& value) {
    return value.isInteger() && value.shape().size() < 4 && value.low >= -1 && value.high <= 64;
  });
  Value table = any([&](const Value& value) {
    return value.isFloat() && value.shape().size() == 2 && !value.shape()[0].isSymbol() && index.low >= 0 &&
           index.high < double(value.shape()[0].size);
  });
  ir::Dimensions shape = index.shape();
  shape.push_back(table.shape()[1]);
  view(table,
       ir::GatherOp::create(builder, location, ir::tensorType(shape, table.element()), table.value, index.value));
}

// One column of each row, by numbers that it has.
void Steps::pickStep() {
  Value rows = any([](const Value& value) {
    return value.isFloat() && value.shape().size() > 1 && !value.shape().back().isSymbol();
  });
  ir::Dimensions shape = rows.shape();
  const double last = double(shape.back().size - 1);
  shape.back() = ir::Dimension();
  const RankedTensorType type = ir::tensorType(shape, builder.getI64Type());
  mlir::Value index = formula.min(formula.iota(type, pick(int(shape.size()) - 1)), formula.number(type, last));
  view(rows, formula.pick(rows.value, index));
}

//===--- Sequences that patterns look for ----------------------------------------------------------------------------//

void Steps::normStep() {
  Value x = any(
      [](const Value& value) { return value.isFloat() && value.shape().size() > 1 && !value.shape().back().isOne(); });
  Type narrow = x.element();
  x = cast(x, builder.getF32Type());
  double columns = largestSize(x.shape().back());
  if (pick(2)) { // layer norm's first half
    Value sum = reduceSum(x);
    x = minus(x, broadcast(over(sum, constantLike(sum, columns)), x.shape()));
  }
  Value small = tamed(x, 16), sum = reduceSum(times(small, small));
  Value mean = over(sum, constantLike(sum, columns)), shifted = plus(mean, constantLike(mean, 0.25));
  Value scale =
      add(formula.rsqrt(shifted.value), 1 / std::sqrt(shifted.high), 1 / std::sqrt(shifted.low), false, false);
  cast(times(x, broadcast(scale, x.shape())), narrow);
}

void Steps::softmaxStep() {
  Value x = any(
      [](const Value& value) { return value.isFloat() && !value.shape().empty() && !value.shape().back().isOne(); });
  Type narrow = x.element();
  x = tamed(cast(x, builder.getF32Type()), 8);
  if (mayJump(x)) {
    x = minus(x, broadcast(reduceExtreme(x, true), x.shape()));
    x.high = 0.1;
  }
  Value e = add(formula.exp(x.value), std::exp(x.low), std::exp(x.high), false, false);
  Value sum = reduceSum(e);
  if (sum.low <= 0)
    throw Untame();
  Value y = add(formula.div(e.value, broadcast(sum, e.shape()).value), 0, 1.1, false, false);
  cast(y, narrow);
}

// A rotary embedding: halves exchanged, one of them negated.
void Steps::rotateStep() {
  auto fits = [](const Value& value) {
    return value.isFloat() && !value.shape().empty() && !value.shape().back().isSymbol() &&
           value.shape().back().size % 2 == 0;
  };
  Value x = any(fits);
  int64_t dim = x.shape().size() - 1, half = x.shape().back().size / 2;
  Value low = slice(x, dim, 0, half), high = slice(x, dim, half, half);
  Value turned = concat({unary(high, 0), low}, dim);
  ir::Dimensions joined;
  auto angle = [&] {
    Value factor = any([&](const Value& value) {
      return value.isFloat() && extends(x.shape(), value.shape(), joined) && joined == x.shape();
    });
    return broadcast(cast(tamed(factor, 4), x.element()), x.shape());
  };
  plus(times(x, angle()), times(turned, angle()));
}

void Steps::gateStep() {
  auto fits = [](const Value& value) {
    return value.isFloat() && !value.shape().empty() && !value.shape().back().isSymbol() &&
           value.shape().back().size % 2 == 0;
  };
  Value packed = any(fits);
  int64_t dim = packed.shape().size() - 1, half = packed.shape().back().size / 2;
  Value gate = slice(packed, dim, 0, half), up = slice(packed, dim, half, half);
  times(unary(gate, 10 + pick(3)), up);
}

} // namespace cermet::fuzz
