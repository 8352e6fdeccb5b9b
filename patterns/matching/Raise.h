// Raising: the sequences of a function that finders with a NamedAnswer match become named operations, in place.
#pragma once
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "patterns/matching/Finder.h"
#include <vector>

namespace cermet {

// A named operation that raising made. Names are the frontend's (patterns/matching/Names.h).
struct NamedRegion {
  llvm::StringRef pattern;               // the finder's name
  llvm::ArrayRef<llvm::StringRef> roles; // of the operation's operands
  mlir::Operation* op;                   // right after its last operand in block order; results in the roles' order
  std::vector<std::string> operands, results;
  std::vector<std::string> replaced; // every operation that it stands for, in block order, each name once
};

struct RaiseResult {
  std::vector<NamedRegion> regions; // in the order of their first results in the function as it was
  std::vector<NearMiss> nearMisses;
};

// Folds what changes no bit, then tries every finder of named operations, in order, at every anchor. Equal operations
// are not merged: each keeps its name. The function's meaning stays the same in every rounding.
RaiseResult raise(mlir::func::FuncOp function, llvm::ArrayRef<Finder> finders);

} // namespace cermet
