#ifndef CERMET_IR_INTERFACES
#define CERMET_IR_INTERFACES

include "mlir/IR/OpBase.td"

def DifferentiableOpInterface : OpInterface<"DifferentiableOpInterface"> {
  let cppNamespace = "::cermet::ir";
  let description = [{
    The vector-Jacobian product of a small operation, written in the dialect. Cotangents are f32 (f64 where the forward
    value is f64) whatever the forward type: a backward computes wide from forward values and rounds once per output.
  }];
  let methods = [InterfaceMethod<
    [{One cotangent per operand, null where there is none, from one cotangent per result (null: nobody has one; not all
      are null).
      Forward values may be read; they are cast up where they enter the arithmetic. No cotangents at all: the gradient
      cannot be written in the dialect, and an error on the operation says why.}],
    "::llvm::SmallVector<::mlir::Value>", "buildGradient",
    (ins "::mlir::OpBuilder&":$builder, "::mlir::ValueRange":$cotangents)>];
}

def DecomposableOpInterface : OpInterface<"DecomposableOpInterface"> {
  let cppNamespace = "::cermet::ir";
  let description = [{A fused operation's meaning: the small operations that it stands for, rounding points included.}];
  let methods = [InterfaceMethod<"The values of the results, built before the operation.",
    "::llvm::SmallVector<::mlir::Value>", "decompose", (ins "::mlir::OpBuilder&":$builder)>];
}

def InterpretableOpInterface : OpInterface<"InterpretableOpInterface"> {
  let cppNamespace = "::cermet::ir";
  let description = [{
    One operation of the reference interpreter: float64 inside; the caller rounds to the result type. The result arrives
    with its shape and that many zeros.
  }];
  let methods = [InterfaceMethod<"Computes the single result.",
    "::llvm::LogicalResult", "interpret",
    (ins "::llvm::ArrayRef<const ::cermet::ir::Array*>":$operands, "::cermet::ir::Array&":$result)>];
}

#endif
