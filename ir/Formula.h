// Formulas in the dialect: each function builds one operation at the builder's place, or nothing where it would change
// nothing. Operands of arithmetic have one type; `broadcast`, `cast` and `number` get them there.
#pragma once
#include "ir/Ops.h"

namespace cermet::ir {

class Formula {
public:
  Formula(mlir::OpBuilder& builder, mlir::Location location) : builder(builder), location(location) {}

  mlir::Value add(mlir::Value a, mlir::Value b) { return AddOp::create(builder, location, a.getType(), a, b); }
  mlir::Value sub(mlir::Value a, mlir::Value b) { return SubOp::create(builder, location, a.getType(), a, b); }
  mlir::Value mul(mlir::Value a, mlir::Value b) { return MulOp::create(builder, location, a.getType(), a, b); }
  mlir::Value div(mlir::Value a, mlir::Value b) { return DivOp::create(builder, location, a.getType(), a, b); }
  mlir::Value neg(mlir::Value a) { return NegOp::create(builder, location, a.getType(), a); }
  mlir::Value rsqrt(mlir::Value a) { return RsqrtOp::create(builder, location, a.getType(), a); }
  mlir::Value sigmoid(mlir::Value a) { return SigmoidOp::create(builder, location, a.getType(), a); }
  mlir::Value silu(mlir::Value a) { return SiluOp::create(builder, location, a.getType(), a); }

  // `value` as a tensor of the type.
  mlir::Value number(mlir::Type type, double value);
  // Rounds to an element type.
  mlir::Value cast(mlir::Value a, mlir::Type elementType);
  // Up to the type in which gradients and statistics are kept.
  mlir::Value widen(mlir::Value a);
  // Extends to the shape of `type`; the element type stays.
  mlir::Value broadcast(mlir::Value a, mlir::Type type);
  mlir::Value reshape(mlir::Value a, llvm::ArrayRef<Dimension> shape);
  mlir::Value reduceSum(mlir::Value a);
  mlir::Value sumRows(mlir::Value a);
  mlir::Value matmul(mlir::Value lhs, mlir::Value rhs, mlir::Type type, bool transposeLhs, bool transposeRhs);

private:
  mlir::OpBuilder& builder;
  mlir::Location location;
};

} // namespace cermet::ir
