// A pattern: one fusion, found on dataflow alone. It says at which operations a search starts (its anchors), what must
// surround them, and which named operation of the dialect, `cermet.<name>`, has the same meaning.
//
// A pattern only looks. It answers with nothing (the distinctive core is not there), with a near miss (the core is
// there, one condition fails), or with a match. What holds for every fusion is checked once, in patterns/Legality.cpp:
// that no inner value is read, returned or written elsewhere, that a place exists where every operand is there and no
// result is needed yet, and that the kernels can take the operands. Raise.cpp then rewrites.
#pragma once
#include "mlir/IR/Builders.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/SetVector.h"
#include <string>
#include <variant>

namespace cermet {

// A place that has a fusion's core but not the whole of it: the one condition that failed, in words.
struct NearMiss {
  std::string pattern; // a pattern's name
  std::string at;      // the name of the sequence's last operation (patterns/Names.h)
  std::string condition;
  mlir::Location location; // of that operation
};

// One named operation to make: its operands, and the values that its results replace, in order.
struct Rewrite {
  llvm::SmallVector<mlir::Value> operands;
  llvm::SmallVector<mlir::Value> results;
  llvm::SmallVector<mlir::NamedAttribute> attributes;
  // Where it is another operation than the pattern's: its name, `packed_glu`, and the roles of its operands.
  llvm::StringRef operation = {};
  llvm::ArrayRef<llvm::StringRef> roles = {};
};

struct Match {
  llvm::SmallVector<Rewrite, 1> rewrites; // several where they share inner operations: one input under two weights
  // Operations whose results only the sequence may read.
  llvm::SmallSetVector<mlir::Operation*, 16> inner;
  // Conversions of operands (casts, broadcasts, reshapes, slices) that stay where something else reads them too.
  llvm::SmallSetVector<mlir::Operation*, 8> entry;
};

struct Miss {
  mlir::Operation* root; // the sequence's last operation as far as it was recognised
  std::string condition;
};

using Attempt = std::variant<std::monostate, Miss, Match>;

struct Pattern {
  llvm::StringRef name;                    // of the pattern and of the operation it makes
  llvm::ArrayRef<llvm::StringRef> anchors; // full names of the operations where a search starts
  // The roles of operands and results: what messages call them and what an outlined graph names its arguments.
  llvm::ArrayRef<llvm::StringRef> operands;
  llvm::ArrayRef<llvm::StringRef> results;
  Attempt (*match)(mlir::Operation* anchor);

  llvm::ArrayRef<llvm::StringRef> roles(const Rewrite& rewrite) const {
    return rewrite.roles.empty() ? operands : rewrite.roles;
  }
};

} // namespace cermet
