// Reshapes amid a computation keep it from being one kernel: this moves them to its end, where two often cancel and one
// is a view of what was stored.
#pragma once
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cermet::ir {

// op(reshape(a)) becomes reshape(op(a)), for operations that work element by element, along rows (reductions over the
// last dimension, broadcasts of one number a row) or over rows (sum_rows), where `a` is computed rather than loaded.
// What else the operation reads must fit without another computation: a constant, a column [columns] under a broadcast,
// a reshape from the same shape, or a contiguous argument, product or opaque result, which is viewed in the other shape
// instead, with the few elementwise operations behind it that nothing else reads and casts.
//
// A reshape of casts of a contiguous argument or product becomes casts of a view of it. So does one that cannot sink, of
// operations that work element by element on such values and on numbers: op(reshape(a)) instead of reshape(op(a)).
//
// Values change their shapes, and no bit. For small operations; folding afterwards removes what cancels.
void sinkReshapes(mlir::func::FuncOp function);

// Whether the last dimensions of one shape, none of them symbolic, or those and a part of the one before, are the last
// one of the other.
bool endAlike(llvm::ArrayRef<int64_t> a, llvm::ArrayRef<int64_t> b);

} // namespace cermet::ir
