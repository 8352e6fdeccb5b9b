// Formulas in the dialect: each function builds one operation at the builder's place, or nothing where it would change
// nothing. Operands of arithmetic have one type; `broadcast`, `cast` and `number` get them there.
#pragma once
#include "ir/dialect/Ops.h"

namespace cermet::ir {

class Formula {
public:
  Formula(mlir::OpBuilder& builder, mlir::Location location) : builder(builder), location(location) {}

  mlir::Value add(mlir::Value a, mlir::Value b) { return AddOp::create(builder, location, a.getType(), a, b); }
  mlir::Value sub(mlir::Value a, mlir::Value b) { return SubOp::create(builder, location, a.getType(), a, b); }
  mlir::Value mul(mlir::Value a, mlir::Value b) { return MulOp::create(builder, location, a.getType(), a, b); }
  mlir::Value div(mlir::Value a, mlir::Value b) { return DivOp::create(builder, location, a.getType(), a, b); }
  mlir::Value pow(mlir::Value a, mlir::Value b) { return PowOp::create(builder, location, a.getType(), a, b); }
  mlir::Value max(mlir::Value a, mlir::Value b) { return MaxOp::create(builder, location, a.getType(), a, b); }
  mlir::Value min(mlir::Value a, mlir::Value b) { return MinOp::create(builder, location, a.getType(), a, b); }
  mlir::Value neg(mlir::Value a) { return NegOp::create(builder, location, a.getType(), a); }
  mlir::Value exp(mlir::Value a) { return ExpOp::create(builder, location, a.getType(), a); }
  mlir::Value log(mlir::Value a) { return LogOp::create(builder, location, a.getType(), a); }
  mlir::Value tanh(mlir::Value a) { return TanhOp::create(builder, location, a.getType(), a); }
  mlir::Value erf(mlir::Value a) { return ErfOp::create(builder, location, a.getType(), a); }
  mlir::Value rsqrt(mlir::Value a) { return RsqrtOp::create(builder, location, a.getType(), a); }
  mlir::Value sigmoid(mlir::Value a) { return SigmoidOp::create(builder, location, a.getType(), a); }
  mlir::Value softplus(mlir::Value a) { return SoftplusOp::create(builder, location, a.getType(), a); }
  mlir::Value silu(mlir::Value a) { return SiluOp::create(builder, location, a.getType(), a); }

  mlir::Value gelu(mlir::Value a) { return GeluOp::create(builder, location, a.getType(), a); }
  mlir::Value geluTanh(mlir::Value a) { return GeluTanhOp::create(builder, location, a.getType(), a); }
  // One of the activations that glu names.
  mlir::Value activation(llvm::StringRef name, mlir::Value a);
  // Whether `a predicate b`, or `a predicate number`, as i1.
  mlir::Value compare(llvm::StringRef predicate, mlir::Value a, mlir::Value b);
  mlir::Value compare(llvm::StringRef predicate, mlir::Value a, double b);
  mlir::Value select(mlir::Value condition, mlir::Value a, mlir::Value b);

  // `value` as a tensor of the type.
  mlir::Value number(mlir::Type type, double value);
  // Rounds to an element type.
  mlir::Value cast(mlir::Value a, mlir::Type elementType);
  // Up to the type in which gradients and statistics are kept.
  mlir::Value widen(mlir::Value a);
  // Extends to the shape of `type`; the element type stays.
  mlir::Value broadcast(mlir::Value a, mlir::Type type);
  mlir::Value reshape(mlir::Value a, llvm::ArrayRef<Dimension> shape);
  mlir::Value transpose(mlir::Value a, llvm::ArrayRef<int64_t> permutation);
  mlir::Value slice(mlir::Value a, llvm::ArrayRef<int64_t> starts, llvm::ArrayRef<Dimension> shape);
  // Of static sizes along `dim`.
  mlir::Value concat(llvm::ArrayRef<mlir::Value> values, int64_t dim);
  mlir::Value iota(mlir::Type type, int64_t dim) { return IotaOp::create(builder, location, type, dim, nullptr); }
  mlir::Value pick(mlir::Value a, mlir::Value index);
  mlir::Value reduceSum(mlir::Value a);
  mlir::Value reduceMax(mlir::Value a);
  mlir::Value sumRows(mlir::Value a);
  mlir::Value cumsum(mlir::Value a, bool reverse);
  // The loss of each row [..., columns] whose label counts, 0 of the others: [..., 1]. `labels` are of i64, as long.
  mlir::Value crossEntropy(mlir::Value logits, mlir::Value labels, mlir::Value counts, double labelSmoothing,
                           double zLoss);
  // What rms_norm and add_rms_norm share, operation by operation as Hugging Face's code traces (ir/dialect/Fused.td).
  mlir::Value rmsNorm(mlir::Value x, mlir::Value weight, mlir::Type result, double eps, double weightOffset,
                      bool roundBeforeWeight);
  mlir::Value matmul(mlir::Value lhs, mlir::Value rhs, mlir::Type type, bool transposeLhs, bool transposeRhs);

private:
  mlir::OpBuilder& builder;
  mlir::Location location;
};

} // namespace cermet::ir
