// What a computation's kernel walks: what of it is live, the largest shape, and what each value is in that one's rows.
#pragma once
#include "compiler/plan/Lower.h"
#include "frontends/c/cermet.h"
#include "ir/text/Text.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallPtrSet.h"
#include <bitset>
#include <optional>
#include <string>

namespace cermet {

constexpr size_t kMaxRank = CERMET_MAX_RANK;

class IterationSpace {
public:
  // `function`: whose computation it is, if it has one of its own; its values then have names.
  IterationSpace(const Computation& computation, mlir::func::FuncOp function, bool& appendsColumn);

  void markLive();
  // What does not fit, or "".
  std::string chooseSpace();

  // A single number of rank 0 is one column.
  ir::Dimensions shapeOf(mlir::Value value) const;
  // The operation that computes the value, if it is none of the operands.
  mlir::Operation* producer(mlir::Value value) const {
    return operands.contains(value) ? nullptr : value.getDefiningOp();
  }
  // What reads its operand where that is stored.
  static bool readsStored(mlir::Operation* op);
  // The space of a value whose shape extends to the tile's; a value that is the same for some rows is computed for
  // each.
  std::optional<Space> classify(const ir::Dimensions& shape) const;
  bool isRowShape(const ir::Dimensions& shape) const;
  // The row extents that dimensions of a value are, a bit for each from the outermost; not the columns, and none that
  // has one element.
  int rowExtentsOf(mlir::Value value, size_t from, size_t to) const;
  // A launch learns how many rows there are from the operands that have them.
  void carry(const ir::Dimensions& shape);

  std::string operandName(int position) const;
  std::string described(mlir::Value value) const;
  std::string misfit(mlir::Value value) const;

  const Computation& computation;
  mlir::func::FuncOp function;
  bool& appendsColumn;
  ir::Dimensions tile;
  llvm::DenseMap<mlir::Value, int> operands; // positions
  llvm::SmallPtrSet<mlir::Operation*, 32> live;
  llvm::DenseSet<mlir::Value> liveValues;
  llvm::DenseSet<mlir::Value> readValues; // by anything live but what reads it where it is stored
  std::bitset<kMaxRank> carried;          // row dimensions of the tile that an operand has

private:
  std::string appendColumn();
};

} // namespace cermet
