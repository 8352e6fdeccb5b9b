#include "compiler/plan/Grouping.h"
#include "compiler/plan/GroupPaths.h"
#include "compiler/plan/StoredValues.h"
#include "ir/dialect/Ops.h"
#include "runtime/abi/RowArguments.h"
#include <algorithm>
#include <optional>

using namespace mlir;

namespace cermet {
namespace {

constexpr size_t kMaxAtOnce = 64;     // operations that join a kernel together
constexpr size_t kMaxNeighbours = 32; // kernels behind one, of those that read its tensor, that may join it

class Grouping {
public:
  Grouping(func::FuncOp function, GroupingWork& work) : groups(function.getBody().front(), work), paths(groups) {}

  std::vector<Group> run() {
    for (Operation* op : groups.operations)
      if (!groups.repeats(op) && !isView(op) && groups.indexOf(op) < 0 && !placeRun(op))
        place(op);
    mergeNeighbours();
    for (Operation* op : groups.operations)
      if (groups.repeats(op) && groups.needsStored(op))
        startGroup(op);
    return groups.ordered();
  }

private:
  int startGroup(Operation* op) {
    Group group;
    if (!isOwnStep(op)) {
      group.reason = groups.form(group, {op});
      if (!group.reason.empty() && storeSummed(op))
        group.reason = groups.form(group, {op});
    }
    group.ops = {op};
    return groups.add(std::move(group));
  }

  // A sum over rows that only a broadcast has needs that broadcast in memory: a launch counts the rows of what it
  // reads.
  bool storeSummed(Operation* op) {
    Operation* summed = isa<ir::SumRowsOp>(op) ? op->getOperand(0).getDefiningOp() : nullptr;
    if (!summed || !groups.repeats(summed))
      return false;
    groups.store(summed);
    startGroup(summed);
    return true;
  }

  // Puts the operation, and as many behind it as read that alone, into the one group that computes its operands: asking
  // once for several is what keeps a long chain from asking for every length. False if not even two fit.
  bool placeRun(Operation* op) {
    GroupSet producers;
    llvm::SmallSetVector<Operation*, 32> run;
    for (Operation* next = op; next && next != groups.block.getTerminator() && run.size() < kMaxAtOnce;
         next = next->getNextNode()) {
      if (groups.repeats(next) || isView(next))
        continue;
      if (groups.indexOf(next) >= 0 || isOwnStep(next))
        break;
      GroupSet needed;
      bool readsRun = false;
      for (Value operand : next->getOperands())
        readsRun |= addProducers(operand, needed, run);
      if (run.empty())
        producers = needed;
      if (producers.size() != 1 || (!run.empty() && !readsRun && needed.empty()) ||
          !llvm::all_of(needed, [&](int group) { return producers.contains(group); }))
        break;
      run.insert(next);
    }
    if (run.size() < 2)
      return false;
    const size_t size = groups.all[producers.front()].ops.size();
    size_t count = std::min(run.size(), kMaxOperations - std::min(size, kMaxOperations));
    for (; count > 1; count /= 2)
      if (merge(producers, run.getArrayRef().take_front(count)))
        return true;
    return false;
  }

  void place(Operation* op) {
    int index = startGroup(op);
    if (isOwnStep(op))
      return;
    GroupSet producers;
    for (Value operand : op->getOperands())
      addProducers(operand, producers);
    if (producers.empty())
      return;
    GroupSet all = producers;
    all.insert(index);
    if (merge(all))
      return;
    // Together they are no row program: with the one that stands last, then with the one before it.
    SmallVector<int> order(producers.begin(), producers.end());
    llvm::sort(order,
               [&](int a, int b) { return groups.all[b].ops.back()->isBeforeInBlock(groups.all[a].ops.back()); });
    for (int producer : order) {
      GroupSet pair;
      pair.insert(producer);
      pair.insert(index);
      if (merge(pair))
        return;
    }
  }

  // Whether one of `run` computes the value, too.
  bool addProducers(Value value, GroupSet& producers, const llvm::SmallSetVector<Operation*, 32>& run = {}) const {
    Operation* op = value.getDefiningOp();
    if (!op)
      return false;
    if (groups.repeats(op)) {
      bool readsRun = false;
      for (Value operand : op->getOperands())
        readsRun |= addProducers(operand, producers, run);
      return readsRun;
    }
    const int group = groups.indexOf(op);
    if (group >= 0 && !isOwnStep(groups.all[group].ops.front()))
      producers.insert(group);
    return run.contains(op);
  }

  // What cannot be kept is read once for every stage: together by one kernel if that is no more than by several.
  bool movesMore(const Group& merged, const GroupSet& members, ArrayRef<Operation*> more) const {
    if (!isWalked(merged.lowered.program))
      return false;
    if (!more.empty()) // it is asked one by one
      return true;
    int64_t apart = 0;
    for (int member : members) {
      if (!groups.all[member].isKernel)
        return false;
      apart += groups.all[member].lowered.program.walkedBytes();
    }
    return merged.lowered.program.walkedBytes() > apart;
  }

  // The groups, with operations that are in none, as one.
  bool merge(const GroupSet& members, ArrayRef<Operation*> more = {}) {
    size_t count = more.size();
    for (int member : members)
      count += groups.all[member].ops.size();
    if (count > kMaxOperations)
      return false;
    SmallVector<Operation*> ops;
    ops.reserve(count);
    for (int member : members) {
      const size_t middle = ops.size();
      ops.append(groups.all[member].ops);
      std::inplace_merge(ops.begin(), ops.begin() + middle, ops.end(),
                         [](Operation* a, Operation* b) { return a->isBeforeInBlock(b); });
    }
    ops.append(more.begin(), more.end()); // they stand behind all others
    const auto apart = [](Operation* op) { return op->getAttrOfType<StringAttr>(kApart); };
    if (llvm::any_of(ops, [&](Operation* op) { return apart(op) != apart(ops.front()); }))
      return false;
    Group merged;
    if (paths.leadAround(members, more) || !groups.form(merged, std::move(ops)).empty() ||
        movesMore(merged, members, more))
      return false;
    grownFrom.clear();
    for (int member : members)
      grownFrom.insert(groups.all[member].body.operands.begin(), groups.all[member].body.operands.end());
    paths.merged(merged);
    groups.replace(members, std::move(merged));
    return true;
  }

  // Kernels that read one tensor, or one what another computes, become one where they can. Of the values that they read
  // the first is looked at first: by the first kernel that reads it, and there by its position. A value is looked at
  // again when one of its kernels has grown.
  void mergeNeighbours() {
    for (auto [index, group] : llvm::enumerate(groups.all))
      if (group.isKernel)
        for (Value operand : group.body.operands)
          readers[operand].push_back(static_cast<int>(index));
    for (auto& [value, users] : readers)
      lookAgain(value, 0);
    while (!waiting.empty()) {
      Value value = waiting.begin()->second;
      waiting.erase(waiting.begin());
      places.erase(value);
      std::optional<std::pair<int, int>> pair = mergeReaders(value);
      if (!pair)
        continue;
      const auto [into, from] = *pair;
      for (Value operand : grownFrom) {
        SmallVector<int>& users = readers[operand];
        for (int gone : {into, from})
          if (auto user = llvm::lower_bound(users, gone); user != users.end() && *user == gone)
            users.erase(user);
        if (llvm::is_contained(groups.all[into].body.operands, operand))
          users.insert(llvm::lower_bound(users, into), into);
        const size_t at = llvm::lower_bound(users, into) - users.begin();
        lookAgain(operand, at > kMaxNeighbours ? at - kMaxNeighbours : 0);
      }
      for (Value result : groups.all[into].body.results)
        if (readers.contains(result))
          lookAgain(result, 0);
    }
  }

  // The value's kernels are looked at from the one at `first` on.
  void lookAgain(Value value, size_t first) {
    if (auto place = places.find(value); place != places.end()) {
      waiting.erase(place->second);
      places.erase(place);
    }
    const SmallVector<int>& users = readers[value];
    if (users.empty())
      return;
    const auto& operands = groups.all[users.front()].body.operands;
    const std::pair<int, long> key{users.front(), llvm::find(operands, value) - operands.begin()};
    waiting[key] = value;
    places[value] = key;
    size_t& from = unfinished.try_emplace(value, SIZE_MAX).first->second;
    from = std::min(from, first);
  }

  // Merges the first two of the value's kernels that can be one, and says which went into which; leaves in `grownFrom`
  // what either read.
  std::optional<std::pair<int, int>> mergeReaders(Value value) {
    const ArrayRef<int> users = readers[value];
    Operation* op = value.getDefiningOp();
    const int known = op ? groups.indexOf(op) : -1;
    const int producer = known >= 0 && groups.all[known].isKernel ? known : -1;
    for (size_t i = std::exchange(unfinished[value], SIZE_MAX); i < users.size(); ++i) {
      if (producer >= 0 && i <= kMaxNeighbours && mergePair(producer, users[i])) {
        unfinished[value] = i;
        return std::pair(std::minmax(producer, users[i]));
      }
      if (!readsAsTile(users[i], value))
        continue;
      for (size_t k = i + 1; k < std::min(users.size(), i + 1 + kMaxNeighbours); ++k)
        if (readsAsTile(users[k], value) && mergePair(users[i], users[k])) {
          unfinished[value] = i;
          return std::pair(users[i], users[k]);
        }
    }
    return std::nullopt;
  }

  bool mergePair(int a, int b) {
    if (a == b || isTooMuch(a, b) ||
        !tried.insert({{a, unsigned(groups.all[a].ops.size())}, {b, unsigned(groups.all[b].ops.size())}}).second)
      return false;
    GroupSet pair;
    pair.insert(a);
    pair.insert(b);
    return !paths.keepApart(pair) && merge(pair);
  }

  // Whether they have more tensors than a kernel takes, by those alone that no other kernel takes from them.
  bool isTooMuch(int a, int b) const {
    return groups.all[a].lastingResults + groups.all[b].lastingResults +
               std::max(groups.all[a].lastingOperands, groups.all[b].lastingOperands) >
           kMaxTensors;
  }

  // A weight or a row's scale is cheap to read twice; kernels that share only that are left apart.
  bool readsAsTile(int index, Value value) const {
    const Group& group = groups.all[index];
    const auto& positions = group.lowered.positions;
    for (auto [operand, position] : llvm::zip(group.lowered.program.operands, positions))
      if (!operand.isOutput && operand.kind == OperandKind::Tile && group.body.operands[position] == value)
        return true;
    return false;
  }

  Groups groups;
  GroupPaths paths;
  llvm::DenseSet<std::pair<std::pair<int, unsigned>, std::pair<int, unsigned>>> tried; // each as large as it was

  // Of mergeNeighbours
  llvm::DenseMap<Value, SmallVector<int>> readers;    // kernels, ascending
  std::map<std::pair<int, long>, Value> waiting;      // values to look at, in order
  llvm::DenseMap<Value, std::pair<int, long>> places; // where they wait
  llvm::DenseMap<Value, size_t> unfinished; // the first of a value's kernels that has not been tried with all others
  llvm::SetVector<Value> grownFrom;
};

} // namespace

std::vector<Group> groupOperations(func::FuncOp function, GroupingWork* work) {
  GroupingWork ignored;
  return Grouping(function, work ? *work : ignored).run();
}

} // namespace cermet
