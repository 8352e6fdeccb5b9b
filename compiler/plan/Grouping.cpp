#include "compiler/plan/Grouping.h"
#include "compiler/plan/StoredValues.h"
#include "ir/dialect/Ops.h"
#include "ir/text/Text.h"
#include "runtime/abi/RowArguments.h"
#include "llvm/ADT/SetVector.h"
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <queue>

using namespace mlir;

namespace cermet {
namespace {

// Of one row's inputs: longer ones are not kept on the chip, so a kernel reads them again in every stage.
constexpr int64_t kMaxRowBytes = 128 * 1024;
constexpr size_t kMaxRepeatedOperations = 8 * kMaxOperations; // with what a kernel repeats
constexpr size_t kMaxAtOnce = 64;                             // operations that join a kernel together
constexpr size_t kMaxNeighbours = 32; // kernels behind one, of those that read its tensor, that may join it
constexpr size_t kMaxSteps = 16384;   // from one operation to a reader, before a path is taken for granted

bool isOwnStep(Operation* op) {
  return isa<ir::ConcatOp, ir::MatmulOp, ir::OpaqueOp>(op);
}

bool isWalked(const RowProgram& program) {
  return program.reduces() && program.rowBytes() > kMaxRowBytes;
}

class Grouping {
public:
  Grouping(func::FuncOp function, GroupingWork& work) : block(function.getBody().front()), work(work) {}

  std::vector<Group> run() {
    for (Operation& op : block.without_terminator()) {
      position[&op] = static_cast<int>(all.size());
      all.push_back(&op);
      if (isRepeated(&op))
        repeatable.insert(&op);
    }
    for (Operation& op : block.without_terminator())
      if (!repeats(&op) && !isView(&op) && !groupOf.contains(&op) && !placeRun(&op))
        place(&op);
    mergeNeighbours();
    for (Operation& op : block.without_terminator())
      if (repeats(&op) && needsStored(&op))
        startGroup(&op);
    for (Group& group : groups)
      finish(group);
    return ordered();
  }

private:
  using Members = llvm::SmallSetVector<int, 4>; // groups

  bool repeats(Operation* op) const { return repeatable.contains(op) && !storedOnes.contains(op); }

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
    if (ops.size() > 1 && results.size() > size_t(kMaxOperands))
      return "it has more results than a kernel has operands";
    StepBody body = arrangeStep(ops, results, [&](Operation* op) { return repeats(op); });
    if (ops.size() > 1 && body.ops.size() > kMaxRepeatedOperations)
      return "it repeats too many operations";
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
    group.lastingOperands = llvm::count_if(group.body.operands, [&](Value it) { return isStored(it.getDefiningOp()); });
    return reason;
  }

  static llvm::SmallBitVector stridesOf(const StepBody& body) {
    llvm::SmallBitVector strided(body.operands.size());
    for (auto [index, operand] : llvm::enumerate(body.operands))
      if (!hasUnitStride(operand))
        strided.set(index);
    return strided;
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

  // Puts the operation, and as many behind it as read that alone, into the one group that computes its operands: asking
  // once for several is what keeps a long chain from asking for every length. False if not even two fit.
  bool placeRun(Operation* op) {
    Members producers;
    llvm::SmallSetVector<Operation*, 32> run;
    for (Operation* next = op; next && next != block.getTerminator() && run.size() < kMaxAtOnce;
         next = next->getNextNode()) {
      if (repeats(next) || isView(next))
        continue;
      if (groupOf.contains(next) || isOwnStep(next))
        break;
      Members needed;
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
    const size_t size = groups[producers.front()].ops.size();
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

  // Whether one of `run` computes the value, too.
  bool addProducers(Value value, Members& producers, const llvm::SmallSetVector<Operation*, 32>& run = {}) const {
    Operation* op = value.getDefiningOp();
    if (!op)
      return false;
    if (repeats(op)) {
      bool readsRun = false;
      for (Value operand : op->getOperands())
        readsRun |= addProducers(operand, producers, run);
      return readsRun;
    }
    auto group = groupOf.find(op);
    if (group != groupOf.end() && !isOwnStep(groups[group->second].ops.front()))
      producers.insert(group->second);
    return run.contains(op);
  }

  // Kernels that read one tensor, or one what another computes, become one where they can. Of the values that they read
  // the first is looked at first: by the first kernel that reads it, and there by its position. A value is looked at
  // again when one of its kernels has grown.
  void mergeNeighbours() {
    for (auto [index, group] : llvm::enumerate(groups))
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
        if (llvm::is_contained(groups[into].body.operands, operand))
          users.insert(llvm::lower_bound(users, into), into);
        const size_t at = llvm::lower_bound(users, into) - users.begin();
        lookAgain(operand, at > kMaxNeighbours ? at - kMaxNeighbours : 0);
      }
      for (Value result : groups[into].body.results)
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
    const auto& operands = groups[users.front()].body.operands;
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
    auto known = op ? groupOf.find(op) : groupOf.end();
    const int producer = known != groupOf.end() && groups[known->second].isKernel ? known->second : -1;
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
        !tried.insert({{a, unsigned(groups[a].ops.size())}, {b, unsigned(groups[b].ops.size())}}).second)
      return false;
    Members pair;
    pair.insert(a);
    pair.insert(b);
    return !areApart(pair) && merge(pair);
  }

  // Whether they have more operands than a kernel takes, by those alone that no other kernel takes from them.
  bool isTooMuch(int a, int b) const {
    return groups[a].lastingResults + groups[b].lastingResults +
               std::max(groups[a].lastingOperands, groups[b].lastingOperands) >
           size_t(kMaxOperands);
  }

  // A weight or a row's scale is cheap to read twice; kernels that share only that are left apart.
  bool readsAsTile(int index, Value value) const {
    const Group& group = groups[index];
    const auto& positions = group.lowered.positions;
    for (auto [operand, position] : llvm::zip(group.lowered.program.operands, positions))
      if (!operand.isOutput && operand.kind == OperandKind::Tile && group.body.operands[position] == value)
        return true;
    return false;
  }

  // The groups, with operations that are in none, as one.
  bool merge(const Members& members, ArrayRef<Operation*> more = {}) {
    size_t count = more.size();
    for (int member : members)
      count += groups[member].ops.size();
    if (count > kMaxOperations)
      return false;
    SmallVector<Operation*> ops;
    ops.reserve(count);
    for (int member : members) {
      const size_t middle = ops.size();
      ops.append(groups[member].ops);
      std::inplace_merge(ops.begin(), ops.begin() + middle, ops.end(),
                         [](Operation* a, Operation* b) { return a->isBeforeInBlock(b); });
    }
    ops.append(more.begin(), more.end()); // they stand behind all others
    Group merged;
    if (hasPathAround(members, more) || !form(merged, std::move(ops)).empty() || movesMore(merged, members, more))
      return false;
    searches.clear();
    grownFrom.clear();
    for (int member : members)
      grownFrom.insert(groups[member].body.operands.begin(), groups[member].body.operands.end());
    int target = *std::min_element(members.begin(), members.end());
    for (int member : members)
      if (member != target)
        groups[member] = Group();
    for (Operation* op : merged.ops)
      groupOf[op] = target;
    addSpan(position.lookup(merged.ops.front()), position.lookup(merged.ops.back()));
    groups[target] = std::move(merged);
    return true;
  }

  void addSpan(int first, int last) {
    auto next = spans.upper_bound(first);
    if (next != spans.begin() && std::prev(next)->second >= first)
      --next;
    for (; next != spans.end() && next->first <= last; next = spans.erase(next)) {
      first = std::min(first, next->first);
      last = std::max(last, next->second);
    }
    spans[first] = last;
  }

  // What cannot be kept is read once for every stage: together by one kernel if that is no more than by several.
  bool movesMore(const Group& merged, const Members& members, ArrayRef<Operation*> more) const {
    if (!isWalked(merged.lowered.program))
      return false;
    if (!more.empty()) // it is asked one by one
      return true;
    int64_t apart = 0;
    for (int member : members) {
      if (!groups[member].isKernel)
        return false;
      apart += groups[member].lowered.program.walkedBytes();
    }
    return merged.lowered.program.walkedBytes() > apart;
  }

  // A search for ways from kernels, and operations with them, to what stands behind them.
  struct Search {
    Search(const Members& of, ArrayRef<Operation*> more) : of(of), more(more.begin(), more.end()) {}

    Members of;
    llvm::DenseSet<Operation*> more;
    std::priority_queue<int, std::vector<int>, std::greater<>> pending; // positions of operations to leave from
    llvm::DenseSet<int> reached, behind; // nodes: found; found by way of a third, or where one stores for the other
    llvm::DenseSet<std::pair<int, Operation*>> repeated; // followed from a node
  };
  static constexpr int kStart = -1; // the node that all of these are

  // A kernel is one node, and an operation in none is.
  int nodeOf(const Search& search, Operation* op) const {
    auto group = groupOf.find(op);
    if (group == groupOf.end())
      return search.more.contains(op) ? kStart : kStart - 1 - position.lookup(op);
    return search.of.contains(group->second) ? kStart : group->second;
  }

  Search startSearch(const Members& of, ArrayRef<Operation*> more) const {
    Search search(of, more);
    for (int member : of)
      for (Operation* op : groups[member].ops)
        search.pending.push(position.lookup(op));
    for (Operation* op : more)
      search.pending.push(position.lookup(op));
    return search;
  }

  // Goes from the operation to its readers; what a kernel repeats is a part of each kernel that reads it.
  size_t leave(Search& search, Operation* op) const {
    const int node = nodeOf(search, op);
    size_t steps = 0;
    SmallVector<Operation*> pending{op};
    while (!pending.empty()) {
      Operation* from = pending.pop_back_val();
      for (Operation* user : from->getUsers()) {
        if (user == block.getTerminator())
          continue;
        ++steps;
        if (repeats(user)) {
          if (search.repeated.insert({node, user}).second)
            pending.push_back(user);
          continue;
        }
        const int next = nodeOf(search, user);
        const bool isStored = repeats(from) && readsMemory(user);
        if (next == node && !isStored)
          continue;
        if (node != kStart || isStored)
          search.behind.insert(next);
        if (next == kStart || !search.reached.insert(next).second)
          continue;
        if (next < kStart)
          search.pending.push(position.lookup(user));
        else
          for (Operation* fellow : groups[next].ops)
            search.pending.push(position.lookup(fellow));
      }
    }
    return steps;
  }

  // Whether there is such a way to the node, at `last` or before. Where the answer takes long there is one for all that
  // is known.
  bool leadsTo(Search& search, int node, int last) const {
    size_t steps = 0;
    while (!search.behind.contains(node) && steps <= kMaxSteps) {
      if (search.pending.empty() || search.pending.top() >= last)
        return false;
      Operation* op = all[search.pending.top()];
      search.pending.pop();
      const size_t taken = leave(search, op);
      steps += taken;
      work.visited += taken;
    }
    return true;
  }

  // From the last of the operations on nothing leads back before them: no kernel spans that place.
  int endOf(const Members& members, ArrayRef<Operation*> more) const {
    int last = more.empty() ? 0 : position.lookup(more.back());
    for (int member : members)
      last = std::max(last, position.lookup(groups[member].ops.back()));
    if (auto span = spans.upper_bound(last); span != spans.begin())
      last = std::max(last, std::prev(span)->second);
    return last;
  }

  // Whether something outside of the members lies between two of them: one kernel could not run before and after it.
  bool hasPathAround(const Members& members, ArrayRef<Operation*> more) const {
    Search search = startSearch(members, more);
    return leadsTo(search, kStart, endOf(members, more));
  }

  // The same of two kernels; what was found from one of them is kept until kernels become one.
  bool areApart(const Members& pair) {
    const int last = endOf(pair, {});
    for (auto [from, to] : {std::pair(pair[0], pair[1]), std::pair(pair[1], pair[0])}) {
      if (searches.size() == kMaxNeighbours && !searches.contains(from))
        searches.clear();
      auto [known, isNew] = searches.try_emplace(from);
      if (isNew)
        known->second = std::make_unique<Search>(startSearch(Members(&from, &from + 1), {}));
      if (leadsTo(*known->second, to, last))
        return true;
    }
    return false;
  }

  //===--- Their order
  //-----------------------------------------------------------------------------------------------===//

  // A kernel repeats a repeated operation even where that is stored, too, but for reading a view of it.
  Members neededBy(int self) const {
    Members needed;
    llvm::SmallSetVector<std::pair<Value, int>, 16> pending; // 1: read where it is stored
    for (Operation* op : groups[self].ops)
      for (Value operand : op->getOperands())
        pending.insert({operand, !groups[self].isKernel || readsMemory(op)});
    for (size_t i = 0; i < pending.size(); ++i) {
      const auto [value, readsStored] = pending[i];
      Operation* op = value.getDefiningOp();
      if (!op)
        continue;
      auto group = groupOf.find(op);
      if (group != groupOf.end()) {
        if (group->second != self && (readsStored || !repeats(op)))
          needed.insert(group->second);
        if (!repeats(op))
          continue;
      }
      for (Value operand : op->getOperands())
        pending.insert({operand, readsStored || isView(op) || isa<ir::ColumnsOp>(op)});
    }
    return needed;
  }

  std::vector<Group> ordered() {
    std::vector<Group> result;
    std::vector<char> begun(groups.size(), false);
    struct Frame {
      int index;
      Members needed;
      size_t next = 0;
    };
    std::vector<Frame> frames;
    auto begin = [&](int index) {
      if (begun[index] || groups[index].ops.empty())
        return;
      begun[index] = true;
      frames.push_back({index, neededBy(index)});
    };
    for (Operation& op : block.without_terminator()) {
      if (auto group = groupOf.find(&op); group != groupOf.end())
        begin(group->second);
      while (!frames.empty()) {
        Frame& frame = frames.back();
        if (frame.next < frame.needed.size()) {
          begin(frame.needed[frame.next++]);
          continue;
        }
        result.push_back(std::move(groups[frame.index]));
        frames.pop_back();
      }
    }
    return result;
  }

  Block& block;
  GroupingWork& work;
  std::vector<Group> groups; // merged ones are left empty
  llvm::DenseMap<Operation*, int> groupOf;
  SmallVector<Operation*> all;              // of the block
  llvm::DenseMap<Operation*, int> position; // in the block
  std::map<int, int> spans;                 // from the first to the last position of groups that overlap
  llvm::DenseSet<Operation*> repeatable;
  llvm::DenseSet<Operation*> storedOnes; // repeated operations that are operations like others all the same
  llvm::DenseSet<std::pair<std::pair<int, unsigned>, std::pair<int, unsigned>>> tried; // each as large as it was

  // Of mergeNeighbours
  llvm::DenseMap<Value, SmallVector<int>> readers;    // kernels, ascending
  std::map<std::pair<int, long>, Value> waiting;      // values to look at, in order
  llvm::DenseMap<Value, std::pair<int, long>> places; // where they wait
  llvm::DenseMap<Value, size_t> unfinished; // the first of a value's kernels that has not been tried with all others
  llvm::SetVector<Value> grownFrom;
  llvm::DenseMap<int, std::unique_ptr<Search>> searches; // from kernels, as these are now
};

} // namespace

std::vector<Group> groupOperations(func::FuncOp function, GroupingWork* work) {
  GroupingWork ignored;
  return Grouping(function, work ? *work : ignored).run();
}

} // namespace cermet
