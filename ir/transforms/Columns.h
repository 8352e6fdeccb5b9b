// Slices, concats and reshapes that only rearrange a row's columns keep it from being one kernel: this turns them into
// reads of other columns, which a kernel can do as it goes.
#pragma once
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cermet::ir {

// A concat of what is computed from slices of a row, alone or under a reshape (a stack), becomes work over the whole
// row: for rotary embeddings
//
//   concat(neg(slice x [h..]), slice x [..h])   becomes   select(iota < h, neg(columns x swapped), columns x swapped)
//
// and so does every other spelling: halves, pairs, some columns only, sine and cosine of half a row. Every part is
// computed for every column, so this is for short rows such as an attention head's; others stay as they are, and so does
// what cannot be read like that: `canRead` says whether a kernel can read a stored value's columns in that order (by
// default any). Changes no bit. For small operations; folding afterwards removes what is equal.
using CanReadColumns = llvm::function_ref<bool(mlir::Value, llvm::ArrayRef<int64_t>)>;
void readColumnsInPlace(mlir::func::FuncOp function, CanReadColumns canRead = {});

} // namespace cermet::ir
