#include "compiler/plan/Clusters.h"
#include "compiler/plan/Gains.h"
#include "compiler/plan/Grouping.h"
#include "compiler/plan/NormalForm.h"
#include "compiler/plan/StoredValues.h"
#include "ir/dialect/Body.h"
#include "ir/dialect/Ops.h"
#include "ir/text/Text.h"
#include "mlir/IR/IRMapping.h"
#include "patterns/fusions/Rope.h"
#include "patterns/matching/Dataflow.h"
#include "patterns/matching/Names.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;

namespace cermet {
namespace {

constexpr int kMaxRounds = 3; // of taking launches apart, before those that nothing took are all kept

// What computes something, which is what a group has of a node.
bool isStep(Operation* op) {
  return !isRepeated(op) && !isView(op) && !isa<ir::ConstantOp>(op);
}

// Operations that are to be a kernel by themselves, and its name.
struct Together {
  llvm::DenseMap<Operation*, StringAttr> names;
  llvm::DenseSet<StringAttr> tried; // all names that there were

  // Whether the name is a new one: then these have it.
  bool put(llvm::ArrayRef<Operation*> ops, const Twine& called) {
    auto name = StringAttr::get(ops.front()->getContext(), called);
    if (!tried.insert(name).second)
      return false;
    for (Operation* op : ops)
      names[op] = name;
    return true;
  }
};

// A copy of the function in the normal form, with launches but for the `kept` ones opened and regions that are taken as
// operations of their own, and what each operation is of the original: its location says it.
class NormalCopy {
public:
  NormalCopy(func::FuncOp function, const std::vector<Selection>& taken, const llvm::DenseSet<Operation*>& kept,
             const Together& together)
      : module(ir::createGraph(*function.getContext())) {
    OpBuilder builder = OpBuilder::atBlockEnd(module->getBody());
    IRMapping mapping;
    copy = cast<func::FuncOp>(builder.clone(*function, mapping));
    auto originals = function.getBody().front().without_terminator();
    for (Operation& op : originals)
      mapping.lookup(&op)->setLoc(OpaqueLoc::get(&op, op.getLoc()));
    for (const Selection& cluster : taken)
      close(cluster, mapping);
    for (Operation& op : originals)
      if (isLaunch(&op) && !kept.contains(&op))
        open(&op, mapping.lookup(&op));
    // Equal operations of two nodes stay two: a node stays in the frontend's graph, whatever it equals. Merged, one of
    // them would be read from memory where each kernel computes it; in one kernel, the plan of its text merges them.
    llvm::DenseMap<Operation*, int64_t> numbers;
    for (Operation& op : originals)
      numbers.try_emplace(&op, numbers.size());
    normalize(copy, [&](Operation* op) {
      Operation* original = originalOf(op);
      if (!original || isView(op)) // which computes nothing
        return;
      op->setAttr(kOriginal, builder.getI64IntegerAttr(numbers.lookup(original)));
      if (kept.contains(original))
        op->setAttr(kApart, builder.getStringAttr(nameOf(original)));
      else if (auto name = together.names.find(original); name != together.names.end())
        op->setAttr(kApart, name->second);
    });
    for (Operation& op : copy.getBody().front().without_terminator())
      if (Operation* original = originalOf(&op))
        copies[original].push_back(&op);
  }

  func::FuncOp function() { return copy; }
  static Operation* originalOf(Operation* op) {
    auto location = op->getLoc()->findInstanceOf<OpaqueLoc>();
    return location ? OpaqueLoc::getUnderlyingLocation<Operation*>(location) : nullptr;
  }
  llvm::ArrayRef<Operation*> copiesOf(Operation* original) const {
    auto known = copies.find(original);
    return known == copies.end() ? llvm::ArrayRef<Operation*>() : known->second;
  }
  // Whether the normal form has nothing of what the operation computed.
  bool isGone(Operation* original) const {
    return copiesOf(original).empty() && !closed.contains(original) && !isView(original) && isPure(original);
  }

private:
  static constexpr llvm::StringLiteral kOriginal = "cermet.original"; // of an operation, its original's number

  void close(const Selection& cluster, const IRMapping& mapping) {
    closed.insert(cluster.ops.begin(), cluster.ops.end());
    llvm::SmallVector<Value> operands, results;
    for (Value operand : cluster.operands)
      operands.push_back(mapping.lookup(operand));
    for (Value result : cluster.results)
      results.push_back(mapping.lookup(result));
    OpBuilder builder(copy.getContext());
    if (Operation* last = lastMaker(operands)) // a region has a place behind it
      builder.setInsertionPointAfter(last);
    else
      builder.setInsertionPointToStart(&copy.getBody().front());
    auto region = ir::OpaqueOp::create(builder, copy.getLoc(), ValueRange(results).getTypes(), cluster.pattern,
                                       operands, "pure", 0);
    for (auto [result, made] : llvm::zip_equal(results, region.getResults()))
      result.replaceAllUsesWith(made);
  }

  void open(Operation* original, Operation* launch) {
    OpBuilder builder(launch);
    launch->replaceAllUsesWith(ir::inlineBody(original, launch->getOperands(), builder, launch->getLoc()));
    launch->erase();
  }

  OwningOpRef<ModuleOp> module;
  func::FuncOp copy;
  llvm::DenseMap<Operation*, llvm::SmallVector<Operation*>> copies;
  llvm::DenseSet<Operation*> closed; // originals in regions
};

// What a cluster is called, and what it counts as: by the fused operations in it.
void name(Selection& cluster, const std::vector<Selection>& taken) {
  llvm::SmallVector<StringRef> fused;
  for (Operation* op : cluster.ops)
    if (isFused(op)) {
      fused.push_back(op->getName().stripDialect());
      const bool isHead = isa<ir::RmsNormOp>(op) && isQueryOrKey(op->getResult(0), taken);
      ++cluster.counts[isHead ? "qk_norm" : isa<ir::PackedGluOp>(op) ? "glu" : fused.back().str()];
    }
  cluster.pattern = fused.size() == 1 ? fused.front().str() : "cluster";
  if (fused.empty())
    cluster.counts["cluster"] = 1;
}

// What is behind the operation in its own node: a frontend can name that alone.
bool endsNode(Operation* op, Operation* user) {
  return hasName(op) && hasName(user) && nameOf(op) == nameOf(user) &&
         (ir::isElementwise(user) || isView(user) ||
          isa<ir::BroadcastOp, ir::ReduceSumOp, ir::ReduceMaxOp, ir::ReduceMinOp, ir::CumsumOp, ir::SumRowsOp>(user));
}

// Adds what the cluster's nodes do behind its operations, and what its kernel has not or has elsewhere: operations of
// which the normal form has nothing, views of what it reads other columns of, and views between its operations.
class Closing {
public:
  Closing(Selection& cluster, const NodeValues& nodes, const NormalCopy& copy)
      : ops(cluster.ops), nodes(nodes), copy(copy) {}

  void run() {
    for (size_t i = 0; i < ops.size(); ++i) {
      endNode(ops[i]);
      for (Value operand : ops[i]->getOperands())
        if (Operation* source = operand.getDefiningOp(); source && copy.isGone(source))
          ops.insert(source);
    }
    for (size_t i = 0; i < ops.size(); ++i)
      if (isa<ir::ConcatOp>(ops[i]))
        addViews(ops[i]);
    for (size_t i = 0; i < ops.size(); ++i)
      for (Value operand : ops[i]->getOperands())
        (void)reachesOps(operand, kMaxBetween);
  }

private:
  static constexpr int kMaxBetween = 32;

  void endNode(Operation* op) {
    for (Value result : op->getResults())
      if (!nodes.isNodes(result))
        for (Operation* user : result.getUsers())
          if (endsNode(op, user))
            ops.insert(user);
  }

  // Of what a concat joins.
  void addViews(Operation* concat) {
    llvm::SmallSetVector<Operation*, 16> behind;
    behind.insert(concat);
    for (size_t i = 0; i < behind.size(); ++i)
      for (Value operand : behind[i]->getOperands())
        if (Operation* source = operand.getDefiningOp(); source && (isView(source) || ops.contains(source))) {
          behind.insert(source);
          ops.insert(source);
        }
  }

  bool reachesOps(Value value, int steps) {
    Operation* op = value.getDefiningOp();
    if (!op || ops.contains(op))
      return op;
    if (!isView(op) || steps == 0 || !reachesOps(op->getOperand(0), steps - 1))
      return false;
    return ops.insert(op);
  }

  llvm::SetVector<Operation*>& ops;
  const NodeValues& nodes;
  const NormalCopy& copy;
};

// Completes a cluster; whether it is to be replaced.
bool take(Selection& cluster, const Search& search, const NormalCopy& copy, llvm::DenseSet<Operation*>& computed,
          std::vector<NearMiss>& misses) {
  for (size_t i = 0; i < cluster.ops.size(); ++i)
    for (Value operand : cluster.ops[i]->getOperands())
      if (Operation* op = operand.getDefiningOp(); op && isRepeated(op))
        cluster.ops.insert(op);
  Closing(cluster, search.nodes, copy).run();
  name(cluster, search.taken);
  if (std::string reason = complete(cluster, search.nodes); !reason.empty()) {
    miss(cluster, reason, misses);
    return false;
  }
  if (llvm::any_of(cluster.ops, [&](Operation* op) { return computed.contains(op); }))
    return false;
  if (!gains(cluster, search.nodes)) {
    missGain(cluster, misses);
    return false;
  }
  for (Operation* op : cluster.ops)
    if (!isRepeated(op) && !isView(op))
      computed.insert(op);
  return true;
}

// Whether an operation joins what these compute, constants, and nothing else: each is stored where the whole has it.
bool isPlaceOf(Operation* op, const llvm::SmallPtrSetImpl<Operation*>& members) {
  return isa<ir::ConcatOp>(op) && llvm::all_of(op->getOperands(), [&](Value operand) {
           Operation* source = operand.getDefiningOp();
           return source && (members.contains(source) || isa<ir::ConstantOp>(source) || isPlaceOf(source, members));
         });
}

// Launches that put what these compute, and nobody else reads, beside constants, and do nothing else.
llvm::SmallVector<Operation*> placesOf(const Group& group, const llvm::SmallPtrSetImpl<Operation*>& members,
                                       const NormalCopy& copy) {
  llvm::SmallVector<Operation*> found;
  for (Operation* op : group.ops)
    for (Value result : op->getResults()) {
      Operation* place = result.hasOneUse() ? *result.user_begin() : nullptr;
      Operation* original = isa_and_nonnull<ir::ConcatOp>(place) ? NormalCopy::originalOf(place) : nullptr;
      if (original && isLaunch(original) && llvm::all_of(copy.copiesOf(original), [&](Operation* each) {
            return isa<ir::ConstantOp>(each) || isPlaceOf(each, members);
          }))
        found.push_back(original);
    }
  return found;
}

// A launch, or what one node of a frontend's became.
void keepNode(Operation* node, const Selection& cluster, llvm::DenseSet<Operation*>& kept) {
  kept.insert(node);
  for (Operation* op : cluster.ops)
    if (!isLaunch(op) && nameOf(op) == nameOf(node))
      kept.insert(op);
}

// Of a group that cannot be replaced what it has whole nodes of: steps of another node, which waits for more, have
// joined what they read. Whether that is some nodes, and was not tried before.
bool putTogether(const Selection& cluster, const llvm::StringMap<size_t>& steps, Together& together) {
  llvm::StringMap<size_t> inside;
  for (Operation* op : cluster.ops)
    inside[nameOf(op)] += isStep(op);
  llvm::SmallVector<Operation*> whole;
  llvm::StringSet<> nodes;
  for (Operation* op : cluster.ops)
    if (isStep(op) && inside.lookup(nameOf(op)) == steps.lookup(nameOf(op))) {
      whole.push_back(op);
      nodes.insert(nameOf(op));
    }
  if (nodes.size() < 2 || whole.size() == cluster.ops.size())
    return false;
  return together.put(whole, "with " + nameOf(whole.front()));
}

// Of a group that cannot be replaced because others read results of it before its last operand is there: what those
// results are made of, as a kernel by itself. Whether that is some nodes, and was not tried before.
bool putEarlyTogether(const Selection& cluster, Together& together) {
  Operation* last = lastMaker(cluster.operands);
  llvm::SetVector<Operation*> early;
  for (Value result : cluster.results)
    if (llvm::any_of(result.getUsers(), [&](Operation* user) {
          return !cluster.ops.contains(user) && last && user->isBeforeInBlock(last);
        }))
      early.insert(result.getDefiningOp());
  for (size_t i = 0; i < early.size(); ++i)
    for (Value operand : early[i]->getOperands())
      if (Operation* source = operand.getDefiningOp(); source && cluster.ops.contains(source))
        early.insert(source);
  early.remove_if([](Operation* op) { return !isStep(op); });
  llvm::StringSet<> nodes;
  for (Operation* op : early)
    nodes.insert(nameOf(op));
  if (nodes.size() < 2 || early.size() == size_t(llvm::count_if(cluster.ops, isStep)))
    return false;
  return together.put(early.getArrayRef(), "before " + nameOf(last));
}

// Of a group that cannot be replaced because others read a step inside of a node: that node and all that read its steps
// (the gradients that one call gives), with what was put together with these before, as a kernel by itself. Whether
// that was not tried before.
bool putReadersTogether(Operation* step, const Search& search, Together& together) {
  llvm::StringSet<> nodes;
  nodes.insert(nameOf(step));
  auto steps = llvm::make_filter_range(func::FuncOp(search.function).getBody().front().without_terminator(),
                                       [](Operation& op) { return hasName(&op) && !isa<ir::ConstantOp>(op); });
  for (Operation& op : steps)
    if (nameOf(&op) == nameOf(step))
      for (Value result : op.getResults())
        if (!search.nodes.isNodes(result))
          for (Operation* user : result.getUsers())
            nodes.insert(nameOf(user));
  llvm::DenseSet<StringAttr> joined;
  for (Operation& op : steps)
    if (StringAttr name = together.names.lookup(&op); name && nodes.contains(nameOf(&op)))
      joined.insert(name);
  llvm::SmallVector<Operation*> whole;
  for (Operation& op : steps)
    if (isStep(&op) && (nodes.contains(nameOf(&op)) || joined.contains(together.names.lookup(&op))))
      whole.push_back(&op);
  if (whole.empty())
    return false;
  return together.put(whole, "all of " + nameOf(whole.front()) + " to " + nameOf(whole.back()));
}

// What the groups of the operations become while `kept` launches are whole. One that would gain and cannot be replaced
// is a near miss; launches that something was grouped with in vain are to be kept, first those that are not all in it,
// and so is a node whose result others read before its group could be there.
std::vector<Selection> findAround(llvm::DenseSet<Operation*>& kept, Together& together, const Search& search,
                                  std::vector<NearMiss>& misses) {
  NormalCopy copy(search.function, search.taken, kept, together);
  const bool isBehindAutograd = hasNoGradient(search.function);
  llvm::StringMap<size_t> steps; // of each node
  for (Operation& op : func::FuncOp(search.function).getBody().front().without_terminator())
    steps[nameOf(&op)] += isStep(&op);
  std::vector<Selection> clusters;
  llvm::DenseSet<Operation*> computed; // by clusters: what ends a node may belong to one alone
  for (const Group& group : groupOperations(copy.function())) {
    if (!group.isKernel)
      continue;
    Selection cluster;
    bool isWhole = !group.lowered.appendsColumn;
    llvm::SmallPtrSet<Operation*, 16> members(group.ops.begin(), group.ops.end());
    for (Operation* op : group.ops) {
      Operation* original = NormalCopy::originalOf(op);
      isWhole &= original && (isBehindAutograd || !isa<ir::SumRowsOp, ir::GatherOp, ir::EmbeddingBagOp>(op));
      if (original)
        cluster.ops.insert(original);
    }
    for (Operation* place : placesOf(group, members, copy))
      cluster.ops.insert(place);
    // A fused operation or a launch is in it or is not. Without one that is not the others may be a kernel.
    llvm::SmallVector<Operation*> launches, inPart;
    for (Operation* original : cluster.ops) {
      if (!isFused(original) && !isLaunch(original))
        continue;
      const bool isIn = llvm::all_of(copy.copiesOf(original), [&](Operation* op) {
        return members.contains(op) || isRepeated(op) || isView(op) || isPlaceOf(op, members);
      });
      isWhole &= isIn;
      if (!isIn)
        inPart.push_back(original);
      else if (isLaunch(original))
        launches.push_back(original);
    }
    const bool hasMore = cluster.ops.size() > 1;
    const Selection found = cluster; // take() adds to it
    if (isWhole && take(cluster, search, copy, computed, misses))
      clusters.push_back(std::move(cluster));
    else if (hasMore && isBehindAutograd && inPart.empty() && putTogether(found, steps, together))
      continue;
    else if (hasMore && isBehindAutograd && cluster.readTooEarly && putEarlyTogether(cluster, together))
      continue;
    else if (isBehindAutograd && cluster.readInside && inPart.empty() &&
             putReadersTogether(cluster.readInside, search, together))
      continue;
    else if (hasMore && cluster.readTooEarly) // the others may do without it
      keepNode(cluster.readTooEarly, cluster, kept);
    else if (hasMore && llvm::any_of(inPart, isLaunch))
      llvm::for_each(llvm::make_filter_range(inPart, isLaunch), [&](Operation* launch) { kept.insert(launch); });
    else if (hasMore)
      kept.insert(launches.begin(), launches.end());
  }
  return clusters;
}

// A launch that is no better in a kernel with others is whole in the next round, so that they find each other.
std::vector<Selection> find(const Search& search) {
  llvm::DenseSet<Operation*> kept;
  Together together;
  for (int round = 1;; ++round) {
    const size_t before = kept.size(), tried = together.tried.size();
    std::vector<NearMiss> misses;
    std::vector<Selection> clusters = findAround(kept, together, search, misses);
    if (kept.size() == before && together.tried.size() == tried) {
      llvm::append_range(search.nearMisses, std::move(misses));
      return clusters;
    }
    if (round < kMaxRounds)
      continue;
    for (Operation& op : func::FuncOp(search.function).getBody().front())
      if (isLaunch(&op) && llvm::none_of(clusters, [&](const Selection& it) { return it.ops.contains(&op); }))
        kept.insert(&op);
  }
}

} // namespace

Finder clusters() {
  return {"cluster", {}, find};
}

} // namespace cermet
