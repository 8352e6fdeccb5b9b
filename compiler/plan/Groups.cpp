#include "compiler/plan/Groups.h"
#include "compiler/plan/StoredValues.h"
#include "ir/dialect/Ops.h"
#include "ir/text/Text.h"
#include "runtime/abi/RowArguments.h"
#include <fmt/format.h>

using namespace mlir;

namespace cermet {

// Of one row's inputs: longer ones are not kept on the chip, so a kernel reads them again in every stage.
constexpr int64_t kMaxRowBytes = 128 * 1024;
constexpr size_t kMaxRepeatedOperations = 8 * kMaxOperations; // with what a kernel repeats

bool isOwnStep(Operation* op) {
  return isa<ir::ConcatOp, ir::MatmulOp, ir::OpaqueOp>(op);
}

bool isWalked(const RowProgram& program) {
  return program.reduces() && program.rowBytes() > kMaxRowBytes;
}

Groups::Groups(Block& block, GroupingWork& work) : block(block), work(work) {
  for (Operation& op : block.without_terminator()) {
    positions[&op] = static_cast<int>(operations.size());
    operations.push_back(&op);
    if (isRepeated(&op))
      repeatable.insert(&op);
  }
}

bool Groups::readsMemory(Operation* user) const {
  return user == block.getTerminator() || isView(user) || isOwnStep(user) ||
         isa<ir::GatherOp, ir::EmbeddingBagOp, ir::ColumnsOp>(user);
}

bool Groups::needsStored(Operation* op) const {
  return llvm::any_of(op->getUsers(), [&](Operation* user) {
    const int group = indexOf(user);
    return readsMemory(user) || (group >= 0 && !all[group].isKernel);
  });
}

int Groups::indexOf(Operation* op) const {
  auto group = groupOf.find(op);
  return group == groupOf.end() ? -1 : group->second;
}

int Groups::add(Group group) {
  const int index = static_cast<int>(all.size());
  for (Operation* op : group.ops)
    groupOf[op] = index;
  all.push_back(std::move(group));
  return index;
}

int Groups::replace(const GroupSet& members, Group group) {
  const int target = *llvm::min_element(members);
  for (int member : members)
    all[member] = Group();
  for (Operation* op : group.ops)
    groupOf[op] = target;
  all[target] = std::move(group);
  return target;
}

//===--- One group's kernel -----------------------------------------------------------------------------------------//

// A value that something outside of `inside` needs, by way of repeated operations or not.
bool Groups::isReadOutside(Value value, const llvm::DenseSet<Operation*>& inside) const {
  return llvm::any_of(value.getUsers(), [&](Operation* user) {
    if (repeats(user) && !inside.contains(user))
      return needsStored(user) || isReadOutside(user->getResult(0), inside);
    return !inside.contains(user);
  });
}

static llvm::SmallBitVector stridesOf(const StepBody& body) {
  llvm::SmallBitVector strided(body.operands.size());
  for (auto [index, operand] : llvm::enumerate(body.operands))
    if (!hasUnitStride(operand))
      strided.set(index);
  return strided;
}

// The tensors that a kernel reads, each once with all of its views, of those operands for which `isCounted` holds.
static size_t countTensors(const StepBody& body, llvm::function_ref<bool(Operation*)> isCounted) {
  llvm::DenseSet<Value> read;
  for (Value operand : body.operands) {
    if (!isCounted(operand.getDefiningOp()))
      continue;
    while (operand.getDefiningOp() && isView(operand.getDefiningOp()))
      operand = operand.getDefiningOp()->getOperand(0);
    read.insert(operand);
  }
  return read.size();
}

std::string Groups::form(Group& group, SmallVector<Operation*> ops) const {
  for (Operation* op : ops)
    for (Type type : op->getResultTypes())
      if (!hasKernelType(type))
        return "kernels have no values of " + ir::typeText(getElementTypeOrSelf(type));
  llvm::DenseSet<Operation*> inside(ops.begin(), ops.end());
  SmallVector<Value> results;
  for (Operation* op : ops)
    for (Value result : op->getResults())
      if (repeats(op) || isReadOutside(result, inside))
        results.push_back(result);
  if (results.empty())
    return "nothing reads it";
  if (ops.size() > 1 && results.size() > kMaxTensors)
    return "it has more results than a kernel has operands";
  StepBody body = arrangeStep(ops, results, [&](Operation* op) { return repeats(op); });
  if (ops.size() > 1 && body.ops.size() > kMaxRepeatedOperations)
    return "it repeats too many operations";
  const size_t tensors = countTensors(body, [](Operation*) { return true; }) + body.results.size();
  if (ops.size() > 1 && tensors > kMaxTensors)
    return fmt::format("it has {} tensors, a kernel takes {}", tensors, kMaxTensors);
  work.lowered += body.ops.size();
  std::string reason = lowerToRowProgram(body.computation(), stridesOf(body), group.lowered);
  const RowProgram& program = group.lowered.program;
  if (reason.empty() && ops.size() > 1 && isWalked(program) && program.accumulates())
    reason = "a row of its inputs is too long to be kept, and so are its sums over rows";
  group.isKernel = reason.empty();
  group.ops = std::move(ops);
  group.body = std::move(body);
  auto reads = [&](Operation* user) { return readsMemory(user); };
  auto isStored = [](Operation* op) { return !op || isView(op) || isOwnStep(op); };
  group.lastingResults =
      llvm::count_if(group.body.results, [&](Value it) { return llvm::any_of(it.getUsers(), reads); });
  group.lastingOperands = countTensors(group.body, isStored);
  return reason;
}

// The kernel in its canonical form: equal groups have one.
static void finish(Group& group) {
  if (!group.isKernel)
    return;
  StepFunction outlined = stepFunction(group.ops, group.body);
  func::FuncOp function = ir::graphFunction(*outlined.module);
  if (!lowerToRowProgram(function, stridesOf(group.body), group.lowered).empty())
    group.lowered.program.name = function.getName().str(); // it is a kernel as it stands
}

bool Group::storeToo(Value operand) {
  Group more;
  more.ops = ops;
  more.body = body;
  more.body.results.push_back(operand);
  if (ops.empty() || countTensors(more.body, [](Operation*) { return true; }) + more.body.results.size() > kMaxTensors)
    return false;
  StepFunction outlined = stepFunction(more.ops, more.body);
  if (!lowerToRowProgram(ir::graphFunction(*outlined.module), stridesOf(more.body), more.lowered).empty())
    return false;
  body = std::move(more.body);
  lowered = std::move(more.lowered);
  return true;
}

//===--- Their order ------------------------------------------------------------------------------------------------//

// A kernel repeats a repeated operation even where that is stored, too, but for reading a view of it.
GroupSet Groups::neededBy(int self) const {
  GroupSet needed;
  llvm::SmallSetVector<std::pair<Value, int>, 16> pending; // 1: read where it is stored
  for (Operation* op : all[self].ops)
    for (Value operand : op->getOperands())
      pending.insert({operand, !all[self].isKernel || readsMemory(op)});
  for (size_t i = 0; i < pending.size(); ++i) {
    const auto [value, readsStored] = pending[i];
    Operation* op = value.getDefiningOp();
    if (!op)
      continue;
    if (const int group = indexOf(op); group >= 0) {
      if (group != self && (readsStored || !repeats(op)))
        needed.insert(group);
      if (!repeats(op))
        continue;
    }
    for (Value operand : op->getOperands())
      pending.insert({operand, readsStored || isView(op) || isa<ir::ColumnsOp>(op)});
  }
  return needed;
}

std::vector<Group> Groups::ordered() {
  for (Group& group : all)
    finish(group);
  std::vector<Group> result;
  std::vector<char> begun(all.size(), false);
  struct Frame {
    int index;
    GroupSet needed;
    size_t next = 0;
  };
  std::vector<Frame> frames;
  auto begin = [&](int index) {
    if (begun[index] || all[index].ops.empty())
      return;
    begun[index] = true;
    frames.push_back({index, neededBy(index)});
  };
  for (Operation& op : block.without_terminator()) {
    if (const int group = indexOf(&op); group >= 0)
      begin(group);
    while (!frames.empty()) {
      Frame& frame = frames.back();
      if (frame.next < frame.needed.size()) {
        begin(frame.needed[frame.next++]);
        continue;
      }
      result.push_back(std::move(all[frame.index]));
      frames.pop_back();
    }
  }
  return result;
}

} // namespace cermet
