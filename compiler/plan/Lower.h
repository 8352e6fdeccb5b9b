// A graph function to the row program that computes all of it in one pass over rows, or the reason why there is none.
#pragma once
#include "compiler/program/RowProgram.h"
#include "mlir/IR/Types.h"
#include "mlir/IR/Value.h"
#include "llvm/ADT/SmallBitVector.h"

namespace mlir::func {
class FuncOp;
}

namespace cermet {

struct LoweredFunction {
  RowProgram program;
  // Per operand: the function's argument (an input) or result (an output) that it is; of an index operand, the row
  // extents that it counts along, a bit for each from the outermost.
  std::vector<int> positions;
  // The last dimension is symbolic: the program is over operands that have a further dimension of 1.
  bool appendsColumn = false;
};

// `function` holds small operations only (ir/transforms/Decompose.h) and is canonical. There is one iteration space,
// the largest shape: every value must extend to it by NumPy's rule, and what is stored must be all of it, one value a
// row, or a sum over all rows. The last dimension of the arguments in `strided` (empty: of none) may have any stride,
// that of the others is 1. A gather's source and index are arguments. Unused arguments and dead operations leave no
// trace; the order is the function's. Equal functions give equal programs. Returns "" and fills `lowered`, or says what
// does not fit.
std::string lowerToRowProgram(mlir::func::FuncOp function, const llvm::SmallBitVector& strided,
                              LoweredFunction& lowered);

// Operations where they stand in a larger graph, as a function of `operands`, values that others of its operations
// compute or that are given. In the graph's order; what an operation reads is an operand or a result of one before it.
struct Computation {
  llvm::ArrayRef<mlir::Operation*> ops;
  llvm::ArrayRef<mlir::Value> operands, results;
};

// The same of a computation, whose values have no names and which need not be canonical: what equal operations compute
// is computed once, but two computations that are equal once they are canonical may give different programs.
std::string lowerToRowProgram(const Computation& computation, const llvm::SmallBitVector& strided,
                              LoweredFunction& lowered);

// Whether a kernel has values of this element type.
bool hasKernelType(mlir::Type type);
bool hasKernelTypes(mlir::Operation* op); // its operands and results

} // namespace cermet
