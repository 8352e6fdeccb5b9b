// The cermet dialect: traced transformer subgraphs as a value graph over ranked tensors (docs/ir.md lists the
// operations, ir/dialect/Ops.td declares them). Every value is a ranked tensor with static or named dimensions; casts are
// ordinary operations; an operation computes in the widest float type and rounds once, to its result type.
#pragma once
#include "ir/dialect/Shape.h"
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/TensorEncoding.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace cermet::ir {
struct Array; // ir/meaning/Interpreter.h
}

#include "ir/Dialect.h.inc"
#include "ir/Interfaces.h.inc"
#define GET_ATTRDEF_CLASSES
#include "ir/Attributes.h.inc"
#define GET_OP_CLASSES
#include "ir/Ops.h.inc"

namespace cermet::ir {

// Whether each element of the result comes from those of the operands at its place.
bool isElementwise(mlir::Operation* op);
// Whether it reduces the last dimension.
bool isReduction(mlir::Operation* op);

} // namespace cermet::ir
