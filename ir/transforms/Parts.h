// Values that are read one index of a dimension at a time, as a sum over a dimension in the midst reads what it sums.
#pragma once
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cermet::ir {

// reshape(slice(f(a, b))), where the slice takes one index of a dimension other than the last and the reshape drops
// that dimension, becomes f of such parts of a and b, for what works element by element, broadcasts, and gathers, which
// take that part of the numbers. So what is computed for a part stays in the kernel that reads it, where a slice would
// read memory. Only where nothing else reads f(a, b), and no part twice: nothing is computed more often than before.
//
// No value changes a bit. For small operations.
void computePartsApart(mlir::func::FuncOp function);

} // namespace cermet::ir
