// A transpose amid a computation keeps it from being one kernel: this moves it to what the computation reads, where it
// is a view.
#pragma once
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cermet::ir {

// transpose(op(a, b)) becomes op(transpose(a), transpose(b)), for transposes that keep the last dimension in its place
// and operations that work element by element or along rows. One that calls, products and the return alone read stays:
// it is a view of what is stored, in the order of rows that others of its inputs have. What of op's inputs the function
// returns is transposed back. Changes no bit. For small operations; folding afterwards removes what cancels.
void hoistTransposes(mlir::func::FuncOp function);

} // namespace cermet::ir
