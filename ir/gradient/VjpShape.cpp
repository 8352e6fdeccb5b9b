// The vector-Jacobian product of every operation of shape: each puts the cotangent where the elements came from.
#include "frontends/c/cermet.h"
#include "ir/dialect/Formula.h"

using namespace mlir;
using namespace cermet::ir;

using Cotangents = SmallVector<Value>;

Cotangents ConstantOp::buildGradient(OpBuilder&, ValueRange) {
  return {};
}

// Sums `rank` dimensions from the end, one after the other, and drops them.
static Value sumInnermost(Formula f, Value sum, size_t rank) {
  for (Dimensions shape = dimensions(typeOf(sum)); rank != 0; --rank) {
    if (!shape.back().isOne())
      sum = f.reduceSum(sum);
    shape.pop_back();
    sum = f.reshape(sum, shape);
  }
  return sum;
}

// Sums over the dimensions that were repeated: innermost ones as a row's elements, outermost ones as rows; what repeats
// between kept dimensions is brought innermost first.
Cotangents BroadcastOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  Formula f(builder, getLoc());
  Value sum = cotangents[0];
  Dimensions from = dimensions(typeOf(getOperand())), to = dimensions(typeOf(getResult()));
  Dimensions aligned(to.size() - from.size());
  aligned.append(from);

  // What repeats along every row is summed over rows, of whatever width, 1 included.
  bool alongRows = to.size() > 1 && !from.empty() && from.back() == to.back() &&
                   llvm::all_of(ArrayRef(aligned).drop_back(), [](const Dimension& d) { return d.isOne(); });
  if (alongRows)
    return {f.reshape(f.sumRows(sum), from)};

  // Of one number: each row's elements, then the rows. A last dimension without a size counts as rows.
  if (llvm::all_of(from, [](const Dimension& d) { return d.isOne(); }) && !to.empty()) {
    if (to.back().isSymbol() && to.size() < CERMET_MAX_RANK) {
      to.push_back(Dimension());
      sum = f.reshape(sum, to);
    } else if (!to.back().isOne()) {
      sum = f.reduceSum(sum);
    }
    return {f.reshape(to.size() > 1 ? f.sumRows(sum) : sum, from)};
  }

  // The same of a number for each of some dimensions, which have a size: they are the columns.
  SmallVector<int64_t> order, columns;
  for (size_t i = 0; i < to.size(); ++i)
    (aligned[i] == to[i] ? columns : order).push_back(i);
  const bool isSized = llvm::none_of(columns, [&](int64_t i) { return to[i].isSymbol(); });
  if (to.back().isSymbol() && aligned.back().isOne() && isSized && order.size() < CERMET_MAX_RANK) {
    Dimensions rows;
    Dimension product;
    for (int64_t i : order)
      rows.push_back(to[i]);
    for (int64_t i : columns)
      product.size *= to[i].size;
    rows.push_back(product);
    order.append(columns);
    return {f.reshape(f.sumRows(f.reshape(f.transpose(sum, order), rows)), from)};
  }

  size_t rank = to.size();
  while (rank > 0 && aligned[rank - 1].isOne())
    --rank;
  sum = sumInnermost(f, sum, to.size() - rank);

  SmallVector<int64_t> kept, repeated;
  for (size_t i = 0; i < rank; ++i)
    (aligned[i] == to[i] ? kept : repeated).push_back(i);
  if (!repeated.empty()) {
    // Outermost ones: rows of one product of what is kept, which has to have a size.
    size_t left = repeated.back() + 1;
    ArrayRef<Dimension> columns = ArrayRef(to).slice(left, rank - left);
    bool outermost = llvm::all_of(ArrayRef(aligned).take_front(left), [](const Dimension& d) { return d.isOne(); });
    bool sized = columns.size() == 1 || llvm::none_of(columns, [](const Dimension& d) { return d.isSymbol(); });
    if (outermost && sized) {
      Dimensions rows(to.begin(), to.begin() + left);
      Dimension product;
      for (const Dimension& column : columns)
        product = columns.size() == 1 ? column : Dimension{product.size * column.size, nullptr};
      rows.push_back(product);
      sum = f.sumRows(f.reshape(sum, rows));
    } else {
      SmallVector<int64_t> permutation = kept;
      permutation.append(repeated);
      sum = sumInnermost(f, f.transpose(sum, permutation), repeated.size());
    }
  }
  return {f.reshape(sum, from)};
}

Cotangents ReshapeOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  return {Formula(builder, getLoc()).reshape(cotangents[0], dimensions(typeOf(getOperand())))};
}

Cotangents TransposeOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  return {Formula(builder, getLoc()).transpose(cotangents[0], inverse(getPermutation()))};
}

// Zeros around the cotangent, along one dimension after the other.
Cotangents SliceOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  Formula f(builder, getLoc());
  Value padded = cotangents[0];
  Type element = typeOf(padded).getElementType();
  Dimensions from = dimensions(typeOf(getOperand())), shape = dimensions(typeOf(padded));
  for (size_t i = from.size(); i-- > 0;) {
    if (from[i] == shape[i])
      continue;
    if (from[i].isSymbol()) {
      emitOpError() << "from " << shapeText(from) << " to " << shapeText(shape)
                    << " has no gradient in the dialect: expected dimension " << i << ", of symbol "
                    << shapeText(from[i]) << ", to be taken whole";
      return {};
    }
    SmallVector<Value> parts;
    auto zeros = [&](int64_t size) {
      Dimensions around = shape;
      around[i].size = size;
      if (size != 0)
        parts.push_back(f.number(tensorType(around, element), 0));
    };
    int64_t start = getStarts()[i];
    zeros(start);
    parts.push_back(padded);
    zeros(from[i].size - start - shape[i].size);
    padded = f.concat(parts, i);
    shape[i] = from[i];
  }
  return {padded};
}

Cotangents ConcatOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  Formula f(builder, getLoc());
  Cotangents result;
  SmallVector<int64_t> starts(typeOf(getResult()).getRank(), 0);
  for (Value operand : getOperands()) {
    Dimensions shape = dimensions(typeOf(operand));
    result.push_back(f.slice(cotangents[0], starts, shape));
    starts[getDim()] += shape[getDim()].size;
  }
  return result;
}

// A narrow integer could not tell every row's or column's number.
static Value countable(Formula& f, OpBuilder& builder, Value index) {
  return typeOf(index).getElementTypeBitWidth() < 32 ? f.cast(index, builder.getI32Type()) : index;
}

// Rows that were read several times add up: the cotangent's rows times a matrix that is 1 where a row was read from, 0
// elsewhere. The products are exact.
Cotangents GatherOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  Formula f(builder, getLoc());
  Value g = cotangents[0], index = countable(f, builder, getIndex());
  Dimensions shape = dimensions(typeOf(index));
  shape.push_back(Dimension());
  index = f.reshape(index, shape);
  shape.back() = dimensions(typeOf(getSource()))[0];
  RankedTensorType chosen = tensorType(shape, typeOf(index).getElementType());
  Value isRow = f.compare("eq", f.broadcast(index, chosen), f.iota(chosen, shape.size() - 1));
  Value oneHot = f.cast(isRow, typeOf(g).getElementType());
  return {f.matmul(oneHot, g, wideType(typeOf(getSource())), true, false), Value()};
}

// To the column that was picked, 0 to the others. Of a row that has no such column nothing is known, of any column:
// what is picked there of zeros is NaN.
Cotangents PickOp::buildGradient(OpBuilder& builder, ValueRange cotangents) {
  Formula f(builder, getLoc());
  Value g = cotangents[0], index = countable(f, builder, getIndex());
  RankedTensorType numbers = withElement(typeOf(getOperand()), typeOf(index).getElementType());
  RankedTensorType wide = withElement(typeOf(getOperand()), typeOf(g).getElementType());
  Value here = f.compare("eq", f.iota(numbers, numbers.getRank() - 1), f.broadcast(index, numbers));
  Value elsewhere = f.pick(f.number(wide, 0), index);
  return {f.select(here, f.broadcast(g, wide), f.broadcast(elsewhere, wide)), Value()};
}

Cotangents IotaOp::buildGradient(OpBuilder&, ValueRange) {
  return {};
}

Cotangents RandomOp::buildGradient(OpBuilder&, ValueRange) {
  return {Value()};
}
