#include "ir/dialect/Formula.h"

using namespace mlir;

namespace cermet::ir {

Value Formula::number(Type type, double value) {
  return ConstantOp::create(builder, location, type, builder.getF64FloatAttr(value));
}

Value Formula::activation(StringRef name, Value a) {
  if (name == "gelu")
    return gelu(a);
  return name == "gelu_tanh" ? geluTanh(a) : silu(a);
}

Value Formula::compare(StringRef predicate, Value a, Value b) {
  return CompareOp::create(builder, location, boolType(typeOf(a)), predicate, a, b);
}

Value Formula::compare(StringRef predicate, Value a, double b) {
  return compare(predicate, a, number(a.getType(), b));
}

Value Formula::select(Value condition, Value a, Value b) {
  return SelectOp::create(builder, location, a.getType(), condition, a, b);
}

Value Formula::cast(Value a, Type elementType) {
  RankedTensorType type = withElement(typeOf(a), elementType);
  return type == a.getType() ? a : CastOp::create(builder, location, type, a).getResult();
}

Value Formula::widen(Value a) {
  return cast(a, wideType(typeOf(a)).getElementType());
}

Value Formula::broadcast(Value a, Type type) {
  RankedTensorType result = withElement(llvm::cast<RankedTensorType>(type), typeOf(a).getElementType());
  return result == a.getType() ? a : BroadcastOp::create(builder, location, result, a).getResult();
}

Value Formula::reshape(Value a, ArrayRef<Dimension> shape) {
  RankedTensorType type = tensorType(shape, typeOf(a).getElementType());
  return type == a.getType() ? a : ReshapeOp::create(builder, location, type, a).getResult();
}

Value Formula::transpose(Value a, ArrayRef<int64_t> permutation) {
  if (llvm::is_sorted(permutation))
    return a;
  RankedTensorType type = typeOf(a);
  return TransposeOp::create(
      builder, location, tensorType(permuted(dimensions(type), permutation), type.getElementType()), a, permutation);
}

Value Formula::slice(Value a, ArrayRef<int64_t> starts, ArrayRef<Dimension> shape) {
  RankedTensorType type = tensorType(shape, typeOf(a).getElementType());
  return type == a.getType() ? a : SliceOp::create(builder, location, type, a, starts).getResult();
}

Value Formula::concat(ArrayRef<Value> values, int64_t dim) {
  if (values.size() == 1)
    return values[0];
  Dimensions shape = dimensions(typeOf(values[0]));
  shape[dim].size = 0;
  for (Value value : values)
    shape[dim].size += typeOf(value).getDimSize(dim);
  return ConcatOp::create(builder, location, tensorType(shape, typeOf(values[0]).getElementType()), values, dim);
}

Value Formula::pick(Value a, Value index) {
  return PickOp::create(builder, location, rowType(typeOf(a)), a, index);
}

Value Formula::reduceSum(Value a) {
  return ReduceSumOp::create(builder, location, rowType(typeOf(a)), a);
}

Value Formula::reduceMax(Value a) {
  return ReduceMaxOp::create(builder, location, rowType(typeOf(a)), a);
}

Value Formula::cumsum(Value a, bool reverse) {
  return CumsumOp::create(builder, location, a.getType(), a, reverse);
}

Value Formula::sumRows(Value a) {
  RankedTensorType type = typeOf(a);
  return SumRowsOp::create(builder, location, tensorType(dimensions(type).back(), type.getElementType()), a);
}

Value Formula::matmul(Value lhs, Value rhs, Type type, bool transposeLhs, bool transposeRhs) {
  return MatmulOp::create(builder, location, type, lhs, rhs, transposeLhs, transposeRhs);
}

Value Formula::crossEntropy(Value logits, Value labels, Value counts, double labelSmoothing, double zLoss) {
  Value largest = reduceMax(logits);
  Value shifted = sub(logits, broadcast(largest, logits.getType()));
  Value logSum = log(reduceSum(exp(shifted)));
  Value logProbabilities = sub(shifted, broadcast(logSum, logits.getType()));
  // Of a row that does not count no label is looked for: the first column is always there.
  Value loss = neg(pick(logProbabilities, select(counts, labels, number(labels.getType(), 0))));
  if (labelSmoothing != 0) {
    const double each = labelSmoothing / double(typeOf(logits).getShape().back());
    Value sum = reduceSum(logProbabilities);
    Value others = mul(sum, number(loss.getType(), each));
    loss = sub(mul(loss, number(loss.getType(), 1 - labelSmoothing)), others);
  }
  if (zLoss != 0) {
    Value whole = add(logSum, largest);
    loss = add(loss, mul(mul(whole, whole), number(loss.getType(), zLoss)));
  }
  return select(counts, loss, number(loss.getType(), 0));
}

Value Formula::rmsNorm(Value x, Value weight, Type result, double eps, double weightOffset, bool roundBeforeWeight) {
  Value wide = widen(x);
  Value sum = reduceSum(mul(wide, wide));
  Value mean = div(sum, number(sum.getType(), double(typeOf(x).getShape().back())));
  Value scale = rsqrt(add(mean, number(sum.getType(), eps)));
  Value normalised = mul(wide, broadcast(scale, wide.getType()));
  if (roundBeforeWeight)
    normalised = cast(normalised, typeOf(x).getElementType());
  if (weightOffset != 0) {
    weight = widen(weight);
    weight = add(weight, number(weight.getType(), weightOffset));
  }
  Type type = promoted(typeOf(weight).getElementType(), typeOf(normalised).getElementType());
  Value weights = broadcast(weight, normalised.getType());
  normalised = cast(normalised, type);
  Value product = mul(cast(weights, type), normalised);
  return cast(product, llvm::cast<RankedTensorType>(result).getElementType());
}

} // namespace cermet::ir
