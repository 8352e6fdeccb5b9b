// The groups of a function's operations while they are made: which operation is in which, what kernels repeat, what has
// to lie in memory, the kernel that given operations are, and the order that the groups run in.
#pragma once
#include "compiler/plan/Grouping.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SetVector.h"

namespace cermet {

constexpr size_t kMaxTensors = 16; // that a kernel reads and writes; of one it may read several views (kMaxOperands)

using GroupSet = llvm::SmallSetVector<int, 4>; // their indices

bool isOwnStep(mlir::Operation* op);      // no kernel ever computes it
bool isWalked(const RowProgram& program); // a row is too long to be kept on the chip: each stage reads its inputs

class Groups {
public:
  // All operations but the terminator; none is in a group yet.
  Groups(mlir::Block& block, GroupingWork& work);

  bool repeats(mlir::Operation* op) const { return repeatable.contains(op) && !storedOnes.contains(op); }
  // From here on a repeated operation is one like others.
  void store(mlir::Operation* op) { storedOnes.insert(op); }
  // Whether a user reads the value from memory.
  bool readsMemory(mlir::Operation* user) const;
  // Of a repeated operation: whether it must be stored all the same.
  bool needsStored(mlir::Operation* op) const;

  int positionOf(mlir::Operation* op) const { return positions.lookup(op); } // in the block
  // The operation's group, or -1.
  int indexOf(mlir::Operation* op) const;

  // Fills the group with the kernel that computes `ops`; "" or why there is none.
  std::string form(Group& group, llvm::SmallVector<mlir::Operation*> ops) const;
  int add(Group group);
  // The group takes the place of the members.
  int replace(const GroupSet& members, Group group);
  // The groups, each with its kernel in canonical form and behind those that it reads.
  std::vector<Group> ordered();

  mlir::Block& block;
  GroupingWork& work;
  llvm::SmallVector<mlir::Operation*> operations; // of the block
  std::vector<Group> all;                         // merged ones are left empty

private:
  bool isReadOutside(mlir::Value value, const llvm::DenseSet<mlir::Operation*>& inside) const;
  GroupSet neededBy(int self) const;

  llvm::DenseMap<mlir::Operation*, int> groupOf, positions;
  llvm::DenseSet<mlir::Operation*> repeatable;
  llvm::DenseSet<mlir::Operation*> storedOnes; // repeated operations that are operations like others all the same
};

} // namespace cermet
