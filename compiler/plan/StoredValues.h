// What of a graph is stored and what is not: views are the same memory, and some operations are repeated in each kernel
// that reads them. The work for one operation is bounded, whatever the graph.
#pragma once
#include "mlir/IR/Operation.h"

namespace cermet {

// Cheap to repeat in each kernel that reads them: constants, broadcasts, indices, one number a row, and casts that lose
// nothing; all but broadcasts and casts only where it takes few operations to compute them from what is given.
bool isRepeated(mlir::Operation* op);

// The same memory seen with other sizes and strides: no kernel.
bool isView(mlir::Operation* op);

// Whether the last dimension of a stored value has stride 1 by what is known when compiling.
bool hasUnitStride(mlir::Value value);

} // namespace cermet
