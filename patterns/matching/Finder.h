// A finder: one way in which operations of a graph become a region, found on dataflow alone. It says at which
// operations a search starts (its anchors), what must surround them, and answers in one of two forms: with the named
// operation of the dialect, `cermet.<name>`, that has the same meaning (NamedAnswer), or, where no single operation has
// it, with the operations themselves (SelectedAnswer).
//
// A finder only looks. It answers with nothing (the distinctive core is not there), with a near miss (the core is
// there, one condition fails), or with what it found. What holds for every named operation is checked once, in
// patterns/matching/Legality.cpp: that no inner value is read, returned or written elsewhere, that a place exists where
// every operand is there and no result is needed yet, and that the kernels can take the operands. Raise.cpp then
// rewrites. What holds for every selection is checked by `complete` (Selection.h).
#pragma once
#include "mlir/IR/Builders.h"
#include "patterns/matching/Selection.h"
#include <variant>

namespace cermet {

// A place that has a fusion's core but not the whole of it: the one condition that failed, in words.
struct NearMiss {
  std::string pattern; // a finder's name
  std::string at;      // the name of the sequence's last operation (patterns/matching/Names.h)
  std::string condition;
  mlir::Location location; // of that operation
};

// One named operation to make: its operands, and the values that its results replace, in order.
struct Rewrite {
  llvm::SmallVector<mlir::Value> operands;
  llvm::SmallVector<mlir::Value> results;
  llvm::SmallVector<mlir::NamedAttribute> attributes;
  // Where it is another operation than the finder's: its name, `packed_glu`, and the roles of its operands.
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

// Each match at an anchor is rewritten before the next anchor is looked at.
struct NamedAnswer {
  // The roles of operands and results: what messages call them and what a region's text names its arguments.
  llvm::ArrayRef<llvm::StringRef> operands, results;
  Attempt (*match)(mlir::Operation* anchor);

  llvm::ArrayRef<llvm::StringRef> roles(const Rewrite& rewrite) const {
    return rewrite.roles.empty() ? operands : rewrite.roles;
  }
};

// A function that named operations are in already, as a finder of selections sees it.
struct Search {
  mlir::func::FuncOp function;
  const NodeValues& nodes;
  llvm::ArrayRef<mlir::Operation*> anchors; // in block order
  const std::vector<Selection>& taken;      // by the finders before
  std::vector<NearMiss>& nearMisses;        // to add to
};

// Complete selections, in block order.
using SelectedAnswer = std::vector<Selection> (*)(const Search& search);

struct Finder {
  llvm::StringRef name;                    // of what it finds
  llvm::ArrayRef<llvm::StringRef> anchors; // full names of the operations where a search starts; none: anywhere
  std::variant<NamedAnswer, SelectedAnswer> answer;

  llvm::SmallVector<mlir::Operation*> anchorsIn(mlir::func::FuncOp function) const;
};

} // namespace cermet
