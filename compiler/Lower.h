// A graph function to the row program that computes all of it in one pass over rows, or the reason why there is none.
#pragma once
#include "compiler/RowProgram.h"

namespace mlir::func {
class FuncOp;
}

namespace cermet {

struct LoweredFunction {
  RowProgram program;
  std::vector<int> positions; // per operand: the function's argument (an input) or result (an output) that it is
};

// `function` holds small operations only (ir/Decompose.h) and is canonical. Every value must be a tile [rows...,
// columns], a row value [rows..., 1], a column value [columns] (leading 1s allowed) or a single number, of one
// iteration space with up to four row dimensions. Unused arguments and dead operations leave no trace; the order is the
// function's. Equal functions give equal programs. Returns "" and fills `lowered`, or says what does not fit.
std::string lowerToRowProgram(mlir::func::FuncOp function, LoweredFunction& lowered);

} // namespace cermet
