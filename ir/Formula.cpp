#include "ir/Formula.h"

using namespace mlir;

namespace cermet::ir {

static RankedTensorType typeOf(Value value) {
  return llvm::cast<RankedTensorType>(value.getType());
}

Value Formula::number(Type type, double value) {
  return ConstantOp::create(builder, location, type, builder.getF64FloatAttr(value));
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

Value Formula::reduceSum(Value a) {
  return ReduceSumOp::create(builder, location, rowType(typeOf(a)), a);
}

Value Formula::sumRows(Value a) {
  RankedTensorType type = typeOf(a);
  return SumRowsOp::create(builder, location, tensorType(dimensions(type).back(), type.getElementType()), a);
}

Value Formula::matmul(Value lhs, Value rhs, Type type, bool transposeLhs, bool transposeRhs) {
  return MatmulOp::create(builder, location, type, lhs, rhs, transposeLhs, transposeRhs);
}

} // namespace cermet::ir
