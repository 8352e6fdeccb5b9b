#include "compiler/Clusters.h"
#include "compiler/PlanValues.h"
#include "ir/Ops.h"
#include "ir/Text.h"
#include "llvm/ADT/SetVector.h"
#include <functional>
#include <set>

using namespace mlir;

namespace cermet {
namespace {

// Of one row's inputs: longer ones are not kept on the chip, so a kernel reads them again in every stage.
constexpr int64_t kMostRowBytes = 128 * 1024;

bool isOwnStep(Operation* op) {
  return isa<ir::ConcatOp, ir::MatmulOp, ir::OpaqueOp>(op);
}

bool isWalked(const RowProgram& program) {
  return program.reduces() && program.rowBytes() > kMostRowBytes;
}

RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

// Whether every value of the source is one of the result, which kernels compute in.
bool isWidening(ir::CastOp op) {
  Type from = typeOf(op.getOperand()).getElementType(), to = typeOf(op.getResult()).getElementType();
  return isa<BFloat16Type, Float16Type, Float8E4M3FNType, Float8E5M2Type>(from) && to.isF32();
}

class Grouping {
public:
  explicit Grouping(func::FuncOp function) : block(function.getBody().front()) {}

  std::vector<Group> run() {
    for (Operation& op : block.without_terminator())
      if (!repeats(&op) && !isView(&op) && !groupOf.contains(&op))
        place(&op);
    while (mergeOnce()) {
    }
    for (Operation& op : block.without_terminator())
      if (repeats(&op) && needsStored(&op))
        startGroup(&op);
    return ordered();
  }

private:
  using Members = llvm::SmallSetVector<int, 4>; // groups

  bool repeats(Operation* op) const { return isRepeated(op) && !storedOnes.contains(op); }

  //===--- One group's kernel
  //----------------------------------------------------------------------------------------===//

  // Whether a user reads the value from memory.
  bool readsMemory(Operation* user) const {
    return user == block.getTerminator() || isView(user) || isOwnStep(user) || isa<ir::GatherOp, ir::ColumnsOp>(user);
  }

  // Of a repeated operation: whether it must be stored all the same.
  bool needsStored(Operation* op) const {
    return llvm::any_of(op->getUsers(), [&](Operation* user) {
      auto group = groupOf.find(user);
      return readsMemory(user) || (group != groupOf.end() && !groups[group->second].isKernel);
    });
  }

  // A value that something outside of `inside` needs, by way of repeated operations or not.
  bool isReadOutside(Value value, const llvm::DenseSet<Operation*>& inside) const {
    return llvm::any_of(value.getUsers(), [&](Operation* user) {
      if (repeats(user) && !inside.contains(user))
        return needsStored(user) || isReadOutside(user->getResult(0), inside);
      return !inside.contains(user);
    });
  }

  // Fills the group with the kernel that computes `ops`; "" or why there is none.
  std::string form(Group& group, SmallVector<Operation*> ops) const {
    for (Operation* op : ops)
      for (Type type : op->getResultTypes())
        if (!hasKernelType(type)) {
          std::string text;
          llvm::raw_string_ostream(text) << getElementTypeOrSelf(type);
          return "kernels have no values of " + text;
        }
    llvm::DenseSet<Operation*> inside(ops.begin(), ops.end());
    SmallVector<Value> results;
    for (Operation* op : ops)
      for (Value result : op->getResults())
        if (repeats(op) || isReadOutside(result, inside))
          results.push_back(result);
    if (results.empty())
      return "nothing reads it";
    group.outlined = outlineStep(ops, results, [&](Operation* op) { return repeats(op); });
    llvm::SmallBitVector strided(group.outlined.operands.size());
    for (auto [index, operand] : llvm::enumerate(group.outlined.operands))
      if (!hasUnitStride(operand))
        strided.set(index);
    std::string reason = lowerToRowProgram(ir::graphFunction(*group.outlined.module), strided, group.lowered);
    const RowProgram& program = group.lowered.program;
    if (reason.empty() && ops.size() > 1 && isWalked(program) && program.accumulates())
      reason = "a row of its inputs is too long to be kept, and so are its sums over rows";
    group.isKernel = reason.empty();
    group.ops = std::move(ops);
    return reason;
  }

  //===--- Which groups there are
  //------------------------------------------------------------------------------------===//

  int startGroup(Operation* op) {
    Group group;
    if (!isOwnStep(op)) {
      group.reason = form(group, {op});
      if (!group.reason.empty() && storeSummed(op))
        group.reason = form(group, {op});
    }
    group.ops = {op};
    groupOf[op] = static_cast<int>(groups.size());
    groups.push_back(std::move(group));
    return groupOf[op];
  }

  // A sum over rows that only a broadcast has needs that broadcast in memory: a launch counts the rows of what it
  // reads.
  bool storeSummed(Operation* op) {
    Operation* summed = isa<ir::SumRowsOp>(op) ? op->getOperand(0).getDefiningOp() : nullptr;
    if (!summed || !repeats(summed))
      return false;
    storedOnes.insert(summed);
    startGroup(summed);
    return true;
  }

  void place(Operation* op) {
    int index = startGroup(op);
    if (isOwnStep(op))
      return;
    Members producers;
    for (Value operand : op->getOperands())
      addProducers(operand, producers);
    if (producers.empty())
      return;
    Members all = producers;
    all.insert(index);
    if (merge(all))
      return;
    // Together they are no row program: with the one that stands last, then with the one before it.
    SmallVector<int> order(producers.begin(), producers.end());
    llvm::sort(order, [&](int a, int b) { return groups[b].ops.back()->isBeforeInBlock(groups[a].ops.back()); });
    for (int producer : order) {
      Members pair;
      pair.insert(producer);
      pair.insert(index);
      if (merge(pair))
        return;
    }
  }

  void addProducers(Value value, Members& producers) const {
    Operation* op = value.getDefiningOp();
    if (!op)
      return;
    if (repeats(op)) {
      for (Value operand : op->getOperands())
        addProducers(operand, producers);
      return;
    }
    auto group = groupOf.find(op);
    if (group != groupOf.end() && !isOwnStep(groups[group->second].ops.front()))
      producers.insert(group->second);
  }

  // Kernels that read one tensor, or one what another computes, become one where they can.
  bool mergeOnce() {
    llvm::SetVector<Value> read;
    llvm::DenseMap<Value, Members> readers;
    for (auto [index, group] : llvm::enumerate(groups))
      if (group.isKernel)
        for (Value operand : group.outlined.operands) {
          read.insert(operand);
          readers[operand].insert(index);
        }
    for (Value value : read) {
      Operation* op = value.getDefiningOp();
      auto producer = op ? groupOf.find(op) : groupOf.end();
      const Members& users = readers[value];
      for (size_t i = 0; i < users.size(); ++i) {
        if (producer != groupOf.end() && groups[producer->second].isKernel && mergePair(producer->second, users[i]))
          return true;
        for (size_t k = i + 1; k < users.size(); ++k)
          if (readsAsTile(users[i], value) && readsAsTile(users[k], value) && mergePair(users[i], users[k]))
            return true;
      }
    }
    return false;
  }

  bool mergePair(int a, int b) {
    Members pair;
    pair.insert(a);
    pair.insert(b);
    return a != b && tried.insert({a, groups[a].ops.size(), b, groups[b].ops.size()}).second && merge(pair);
  }

  // A weight or a row's scale is cheap to read twice; kernels that share only that are left apart.
  bool readsAsTile(int index, Value value) const {
    const Group& group = groups[index];
    const auto& positions = group.lowered.positions;
    for (auto [operand, position] : llvm::zip(group.lowered.program.operands, positions))
      if (!operand.isOutput && operand.kind == OperandKind::Tile && group.outlined.operands[position] == value)
        return true;
    return false;
  }

  bool merge(const Members& members) {
    if (hasPathAround(members))
      return false;
    SmallVector<Operation*> ops;
    for (int member : members)
      ops.append(groups[member].ops);
    if (ops.size() > kMostOperations)
      return false;
    llvm::sort(ops, [](Operation* a, Operation* b) { return a->isBeforeInBlock(b); });
    Group merged;
    if (!form(merged, std::move(ops)).empty() || movesMore(merged, members))
      return false;
    int target = *std::min_element(members.begin(), members.end());
    for (int member : members)
      if (member != target)
        groups[member] = Group();
    for (Operation* op : merged.ops)
      groupOf[op] = target;
    groups[target] = std::move(merged);
    return true;
  }

  // What cannot be kept is read once for every stage: together by one kernel if that is no more than by several.
  bool movesMore(const Group& merged, const Members& members) const {
    if (!isWalked(merged.lowered.program))
      return false;
    int64_t apart = 0;
    for (int member : members) {
      if (!groups[member].isKernel)
        return false;
      apart += groups[member].lowered.program.walkedBytes();
    }
    return merged.lowered.program.walkedBytes() > apart;
  }

  // Whether something outside of the members lies between two of them: one kernel could not run before and after it.
  bool hasPathAround(const Members& members) const {
    auto isMember = [&](Operation* op) {
      auto group = groupOf.find(op);
      return group != groupOf.end() && members.contains(group->second);
    };
    llvm::SmallSetVector<Operation*, 32> inside, outside; // operations that follow, repeated by the kernel or not
    for (int member : members)
      for (Operation* op : groups[member].ops)
        inside.insert(op);
    auto visit = [&](Operation* from, bool isOutside) {
      for (Operation* user : from->getUsers()) {
        if (isMember(user)) {
          if (isOutside || (repeats(from) && readsMemory(user)))
            return true;
        } else if (user != block.getTerminator()) {
          (isOutside || !repeats(user) ? outside : inside).insert(user);
        }
      }
      return false;
    };
    for (size_t i = 0; i < inside.size(); ++i)
      visit(inside[i], false);
    for (size_t i = 0; i < outside.size(); ++i) {
      Operation* op = outside[i];
      if (visit(op, true))
        return true;
      if (auto group = groupOf.find(op); group != groupOf.end())
        for (Operation* fellow : groups[group->second].ops)
          outside.insert(fellow);
    }
    return false;
  }

  //===--- Their order
  //-----------------------------------------------------------------------------------------------===//

  // A kernel repeats a repeated operation even where that is stored, too, but for reading a view of it.
  void addNeeded(Value value, int self, bool readsStored, Members& needed) const {
    Operation* op = value.getDefiningOp();
    if (!op)
      return;
    auto group = groupOf.find(op);
    if (group != groupOf.end()) {
      if (group->second != self && (readsStored || !repeats(op)))
        needed.insert(group->second);
      if (!repeats(op))
        return;
    }
    for (Value operand : op->getOperands())
      addNeeded(operand, self, readsStored || isView(op) || isa<ir::ColumnsOp>(op), needed);
  }

  std::vector<Group> ordered() {
    std::vector<Group> result;
    SmallVector<char> done(groups.size(), false);
    std::function<void(int)> emit = [&](int index) {
      if (done[index] || groups[index].ops.empty())
        return;
      done[index] = true;
      Members needed;
      for (Operation* op : groups[index].ops)
        for (Value operand : op->getOperands())
          addNeeded(operand, index, !groups[index].isKernel || readsMemory(op), needed);
      for (int before : needed)
        emit(before);
      result.push_back(std::move(groups[index]));
    };
    for (Operation& op : block.without_terminator())
      if (auto group = groupOf.find(&op); group != groupOf.end())
        emit(group->second);
    return result;
  }

  Block& block;
  std::vector<Group> groups; // merged ones are left empty
  llvm::DenseMap<Operation*, int> groupOf;
  llvm::DenseSet<Operation*> storedOnes; // repeated operations that are operations like others all the same
  std::set<std::tuple<int, size_t, int, size_t>> tried; // pairs, each group as large as it was (groups only grow)
};

bool hasStaticUnitStride(BlockArgument argument) {
  auto function = dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp());
  auto strides = function ? function.getArgAttrOfType<DenseI64ArrayAttr>(argument.getArgNumber(), "cermet.strides")
                          : DenseI64ArrayAttr();
  return !strides || strides.empty() || strides.asArrayRef().back() == 1;
}

// Of the stride itself: what is read under a view may have a last dimension of 1, and any stride there.
bool isUnitStride(Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value))
    return hasStaticUnitStride(argument);
  Operation* op = value.getDefiningOp();
  if (auto transpose = dyn_cast<ir::TransposeOp>(op))
    return transpose.getPermutation().back() == int64_t(transpose.getPermutation().size()) - 1 &&
           isUnitStride(transpose.getOperand());
  // A last dimension of 1 that a reshape drops leaves the stride of the one before it.
  if (isa<ir::ReshapeOp>(op) && !isDense(op->getOperand(0)) && typeOf(op->getOperand(0)).getShape().back() == 1)
    return false;
  return isView(op) ? isUnitStride(op->getOperand(0)) : true;
}

} // namespace

// Numbers of columns and what follows from them, such as a mask: computed wherever they are needed.
static bool isOfIndices(Operation* op) {
  return isa<ir::ConstantOp, ir::IotaOp>(op) ||
         ((ir::isElementwise(op) || isa<ir::BroadcastOp>(op)) && llvm::all_of(op->getOperands(), [](Value operand) {
            return operand.getDefiningOp() && isOfIndices(operand.getDefiningOp());
          }));
}

// One number a row, or fewer, computed from what is given without a reduction, such as whether a label counts: a row's
// kernel can have it again, and what needs it alone must not wait for the rows.
static bool isOfGivenRows(Operation* op) {
  auto type = op->getNumResults() == 1 ? dyn_cast<RankedTensorType>(op->getResult(0).getType()) : RankedTensorType();
  if (!type || (type.getRank() > 0 && type.getShape().back() != 1) || !(ir::isElementwise(op) || isView(op)))
    return false;
  return llvm::all_of(op->getOperands(), [](Value operand) {
    Operation* source = operand.getDefiningOp();
    return !source || isOfIndices(source) || isOfGivenRows(source);
  });
}

bool isRepeated(Operation* op) {
  if (!isView(op) && isOfGivenRows(op))
    return true;
  if (auto cast = dyn_cast<ir::CastOp>(op))
    return isWidening(cast) || isOfIndices(op);
  return isa<ir::BroadcastOp, ir::ColumnsOp>(op) || isOfIndices(op);
}

bool isView(Operation* op) {
  return isa<ir::ReshapeOp, ir::TransposeOp, ir::SliceOp>(op);
}

bool hasUnitStride(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return !type || type.getRank() == 0 || type.getShape().back() == 1 || isUnitStride(value);
}

std::vector<Group> groupOperations(func::FuncOp function) {
  return Grouping(function).run();
}

} // namespace cermet
