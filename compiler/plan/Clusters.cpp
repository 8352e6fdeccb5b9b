#include "compiler/plan/Clusters.h"
#include "compiler/plan/Grouping.h"
#include "compiler/plan/Lower.h"
#include "compiler/plan/StoredValues.h"
#include "ir/dialect/Body.h"
#include "ir/dialect/Ops.h"
#include "ir/text/Text.h"
#include "ir/transforms/Parts.h"
#include "ir/transforms/Reshapes.h"
#include "mlir/IR/IRMapping.h"
#include "patterns/fusions/Rope.h"
#include "patterns/matching/Dataflow.h"
#include "patterns/matching/Names.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"
#include <fmt/format.h>
#include <set>

using namespace mlir;

namespace cermet {
namespace {

constexpr double kMaxMoved = 0.8;         // of the bytes that the operations one by one move
constexpr double kLeastSaved = 16 * 1024; // bytes: less is not worth a kernel to compile
constexpr double kLeastAlone = 1 << 20;   // bytes that one operation moves where its own kernel is to be better
constexpr double kSymbolicSize = 1024;    // of a symbol that cermet.sizes does not name
constexpr int kMaxRounds = 3;             // of taking launches apart, before those that nothing took are all kept

double bytesOf(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  if (!type)
    return 0;
  auto graph = value.getParentBlock()->getParentOp()->getParentOfType<ModuleOp>();
  auto sizes = graph->getAttrOfType<DictionaryAttr>(ir::kSizes);
  double bytes = double(type.getElementTypeBitWidth()) / 8;
  for (const ir::Dimension& dimension : ir::dimensions(type)) {
    auto said = dimension.isSymbol() && sizes ? sizes.getAs<IntegerAttr>(dimension.symbol) : IntegerAttr();
    bytes *= said ? double(said.getInt()) : dimension.isSymbol() ? kSymbolicSize : double(dimension.size);
  }
  return bytes;
}

bool isFused(Operation* op) {
  return isa<ir::DecomposableOpInterface>(op);
}

// Whether nobody asks for the graph's gradient: it is one of those that autograd made.
bool hasNoGradient(Operation* op) {
  return op->getParentOfType<ModuleOp>()->hasAttr(ir::kNoGradient);
}

// What computes something, which is what a group has of a node.
bool isStep(Operation* op) {
  return !isRepeated(op) && !isView(op) && !isa<ir::ConstantOp>(op);
}

// A kernel that stands in the graph already, and whose operations are known.
bool isLaunch(Operation* op) {
  return op->hasAttr(ir::kBody);
}

// Operations that are to be a kernel by themselves, and its name.
struct Together {
  llvm::DenseMap<Operation*, StringAttr> names;
  llvm::DenseSet<StringAttr> tried; // all names that there were
};

// A copy of the function in small operations, those of launches too but for the `kept` ones, with regions that are
// taken as operations of their own, and what each operation is of the original. It is the form that a plan is made of
// (normalize in Plan.cpp) less what leaves operations of which no node of the frontend is the original: equal ones are
// not merged, transposes are not moved through others, and concats do not become reads of columns. So a region ends at
// those; the plan of what is one text crosses them.
class SmallCopy {
public:
  SmallCopy(func::FuncOp function, const std::vector<Selection>& taken, const llvm::DenseSet<Operation*>& kept,
            const Together& together)
      : module(ir::createGraph(*function.getContext())) {
    OpBuilder builder = OpBuilder::atBlockEnd(module->getBody());
    IRMapping mapping;
    copy = cast<func::FuncOp>(builder.clone(*function, mapping));
    for (Operation& op : function.getBody().front())
      originals[mapping.lookup(&op)] = &op;
    for (const Selection& cluster : taken)
      close(cluster, mapping);
    for (Operation& op : function.getBody().front())
      if (isLaunch(&op) && !kept.contains(&op))
        open(&op, mapping);
    for (ir::DecomposableOpInterface op : llvm::to_vector(copy.getOps<ir::DecomposableOpInterface>()))
      if (hasKernelTypes(op))
        replace(op, originals.lookup(op), [&](OpBuilder& builder) { return op.decompose(builder); });
    for (Operation& op : llvm::make_early_inc_range(llvm::reverse(copy.getBody().front())))
      if (isOpTriviallyDead(&op))
        op.erase();
    sink();
    for (Operation& op : copy.getBody().front())
      if (Operation* original = originalOf(&op)) {
        copies[original].push_back(&op);
        if (kept.contains(original))
          op.setAttr(kApart, StringAttr::get(op.getContext(), nameOf(original)));
        else if (auto name = together.names.find(original); name != together.names.end())
          op.setAttr(kApart, name->second);
      }
  }

  func::FuncOp function() { return copy; }
  Operation* originalOf(Operation* op) const { return originals.lookup(op); }
  llvm::ArrayRef<Operation*> copiesOf(Operation* original) const {
    auto known = copies.find(original);
    return known == copies.end() ? llvm::ArrayRef<Operation*>() : known->second;
  }

private:
  void close(const Selection& cluster, const IRMapping& mapping) {
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
    auto closed = ir::OpaqueOp::create(builder, copy.getLoc(), ValueRange(results).getTypes(), cluster.pattern,
                                       operands, "pure", 0);
    for (auto [result, made] : llvm::zip_equal(results, closed.getResults()))
      result.replaceAllUsesWith(made);
  }

  void open(Operation* original, const IRMapping& mapping) {
    Operation* launch = mapping.lookup(original);
    replace(launch, original,
            [&](OpBuilder& builder) { return ir::inlineBody(original, launch->getOperands(), builder); });
  }

  // With what stands for it, of which `original` is the original.
  void replace(Operation* op, Operation* original, llvm::function_ref<llvm::SmallVector<Value>(OpBuilder&)> make) {
    Operation* before = op->getPrevNode();
    OpBuilder builder(op);
    op->replaceAllUsesWith(make(builder));
    Operation* made = before ? before->getNextNode() : &op->getBlock()->front();
    for (; made != op; made = made->getNextNode())
      originals[made] = original;
    originals.erase(op);
    op->erase();
  }

  // A row's sum as a frontend has it, without the dimension that it was of, ends no kernel. Operations move as clones.
  void sink() {
    std::vector<Operation*> known;
    Builder builder(copy.getContext());
    for (Operation& op : copy.getBody().front().without_terminator())
      if (Operation* original = originals.lookup(&op)) {
        op.setAttr(kOriginal, builder.getI64IntegerAttr(known.size()));
        known.push_back(original);
      }
    ir::computePartsApart(copy);
    ir::sinkReshapes(copy);
    originals.clear();
    for (Operation& op : copy.getBody().front().without_terminator())
      if (auto number = dyn_cast_or_null<IntegerAttr>(op.removeAttr(kOriginal)))
        originals[&op] = known[number.getInt()];
  }

  static constexpr llvm::StringLiteral kOriginal = "original";

  OwningOpRef<ModuleOp> module;
  func::FuncOp copy;
  llvm::DenseMap<Operation*, Operation*> originals;
  llvm::DenseMap<Operation*, llvm::SmallVector<Operation*>> copies;
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

bool isReal(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && isa<FloatType>(type.getElementType());
}

// What is behind the operation in its own node: a frontend can name that alone.
bool endsNode(Operation* op, Operation* user) {
  return hasName(op) && hasName(user) && nameOf(op) == nameOf(user) &&
         (ir::isElementwise(user) || isView(user) ||
          isa<ir::BroadcastOp, ir::ReduceSumOp, ir::ReduceMaxOp, ir::ReduceMinOp, ir::CumsumOp, ir::SumRowsOp>(user));
}

// Adds the reshapes between the cluster's operations, which its kernel does not have, and what its nodes do behind
// them.
void close(Selection& cluster, const NodeValues& nodes) {
  for (size_t i = 0; i < cluster.ops.size(); ++i)
    for (Value result : cluster.ops[i]->getResults())
      for (Operation* user : llvm::to_vector(result.getUsers())) {
        if (!nodes.isNodes(result) && endsNode(cluster.ops[i], user))
          cluster.ops.insert(user);
        llvm::SmallVector<Operation*> between;
        for (Operation* next = user; isa<ir::ReshapeOp>(next); next = *next->user_begin()) {
          between.push_back(next);
          if (llvm::any_of(next->getUsers(), [&](Operation* reader) { return cluster.ops.contains(reader); }))
            cluster.ops.insert(between.begin(), between.end());
          if (next->use_empty())
            break;
        }
      }
}

// What its operations move, each a kernel of its own. A node of a frontend's graph is one operation.
struct Apart {
  size_t nodes;
  double bytes;
};

double bytesOf(ValueRange values) {
  double bytes = 0;
  for (Value value : values)
    bytes += bytesOf(value);
  return bytes;
}

// What an operation reads of the operand: of a table no more than the rows that it takes.
double bytesRead(Operation* op, Value operand) {
  auto gather = dyn_cast<ir::GatherOp>(op);
  return gather && operand == gather.getSource() ? std::min(bytesOf(operand), bytesOf(gather.getResult()))
                                                 : bytesOf(operand);
}

double moved(const Selection& selection) {
  double bytes = bytesOf(selection.results);
  for (Value operand : selection.operands) {
    double read = 0;
    for (Operation* user : operand.getUsers())
      if (selection.ops.contains(user))
        read = std::max(read, bytesRead(user, operand));
    bytes += read;
  }
  return bytes;
}

Apart apart(const Selection& cluster) {
  // What each reads, in bytes, and the values that it makes.
  std::map<std::string, std::pair<std::map<void*, double>, std::set<void*>>> nodes;
  double before = 0;
  size_t launches = 0;
  for (Operation* op : cluster.ops) {
    if (isLaunch(op)) {
      before += bytesOf(op->getOperands()) + bytesOf(op->getResults());
      ++launches;
      continue;
    }
    if (isView(op) || isa<ir::ConstantOp, ir::BroadcastOp, ir::RandomOp>(op))
      continue;
    auto& [reads, makes] = nodes[nameOf(op)];
    for (Value operand : op->getOperands()) {
      Value source = operand;
      while (source.getDefiningOp() && isa<ir::BroadcastOp, ir::ReshapeOp>(source.getDefiningOp()))
        source = source.getDefiningOp()->getOperand(0);
      if (isa_and_nonnull<ir::ConstantOp, ir::RandomOp>(source.getDefiningOp()))
        continue;
      double& bytes = reads[source.getAsOpaquePointer()];
      bytes = std::max(bytes, source == operand ? bytesRead(op, operand) : bytesOf(source));
    }
    for (Value result : op->getResults())
      makes.insert(result.getAsOpaquePointer());
  }
  for (const auto& [node, values] : nodes) {
    double largest = 0; // of what the node makes: the rest stays within it
    for (void* made : values.second)
      largest = std::max(largest, bytesOf(Value::getFromOpaquePointer(made)));
    before += largest;
    for (auto [read, bytes] : values.first)
      if (!values.second.contains(read))
        before += bytes;
  }
  return {nodes.size() + launches, before};
}

// Whether a frontend's own kernel for the operation takes longer than its bytes do. Those of norms reach 0.27 to 0.59
// of a copy's speed, those of functions 0.85 to 0.95 (bench/results/functions.json); sums and products that of a copy.
bool isMoreThanBytes(Operation* op) {
  return isa<ir::ReduceSumOp, ir::ReduceMaxOp, ir::ReduceMinOp, ir::CumsumOp, ir::SumRowsOp, ir::EmbeddingBagOp>(op) ||
         isa<ir::ExpOp, ir::LogOp, ir::PowOp, ir::TanhOp, ir::ErfOp, ir::SigmoidOp, ir::SoftplusOp, ir::SiluOp,
             ir::GeluOp, ir::GeluTanhOp>(op);
}

// Whether one kernel moves enough less, or is worth it for one operation that moves as much.
bool gains(const Selection& cluster, const NodeValues& nodes) {
  const Apart before = apart(cluster);
  const double after = moved(cluster);
  // Masks and positions are small, or made once: integers have no bandwidth to win.
  if (llvm::none_of(cluster.results, isReal) || before.nodes == 0)
    return false;
  const bool hasLaunch = llvm::any_of(cluster.ops, isLaunch);
  // What others store beside their result, a gradient makes again of random numbers.
  if (before.nodes == 1 && llvm::any_of(cluster.ops, [](Operation* op) { return isa<ir::RandomOp>(op); }))
    return !hasLaunch && after >= kLeastSaved;
  if (before.nodes == 1)
    return !hasLaunch && after >= kLeastAlone && llvm::any_of(cluster.ops, isMoreThanBytes) &&
           hasNoGradient(cluster.ops.front());
  if (!hasLaunch)
    return before.bytes - after >= kLeastSaved && after <= kMaxMoved * before.bytes;
  // Less than its launches as they stand and the rest beside them, as one kernel if that is one.
  Selection launches, rest;
  for (Operation* op : cluster.ops)
    (isLaunch(op) ? launches : rest).ops.insert(op);
  double beside = apart(rest).bytes;
  if (!rest.ops.empty() && complete(rest, nodes).empty() && gains(rest, nodes))
    beside = std::min(beside, moved(rest));
  return apart(launches).bytes + beside - after >= kLeastSaved;
}

void addMiss(const Selection& cluster, const std::string& reason, std::vector<NearMiss>& misses) {
  Operation* last = cluster.ops.front();
  for (Operation* op : cluster.ops)
    last = last->isBeforeInBlock(op) ? op : last;
  misses.push_back({"cluster", nameOf(last), reason, last->getLoc()});
}

// Why what has a reduction and something beside it is left alone, where it could have gained.
void miss(const Selection& cluster, const std::string& reason, std::vector<NearMiss>& misses) {
  const Apart before = apart(cluster);
  const bool isCore =
      llvm::any_of(cluster.ops, [](Operation* op) { return ir::isReduction(op) && isReal(op->getOperand(0)); });
  if (isCore && before.nodes > 1 && before.bytes >= kLeastSaved)
    addMiss(cluster, reason, misses);
}

// What saves bytes, but too small a part of them. The name of a fused operation in it is found all the same.
void missGain(const Selection& cluster, std::vector<NearMiss>& misses) {
  const Apart before = apart(cluster);
  const double after = moved(cluster);
  if (llvm::none_of(cluster.ops, [](Operation* op) { return isLaunch(op) || isFused(op); }) &&
      llvm::any_of(cluster.results, isReal) && before.nodes > 1 && before.bytes - after >= kLeastSaved)
    addMiss(cluster,
            fmt::format("one kernel moves {:.0f} bytes where its operations move {:.0f}, expected at most {:.0f} %",
                        after, before.bytes, 100 * kMaxMoved),
            misses);
}

// Completes a cluster; whether it is to be replaced.
bool take(Selection& cluster, const Search& search, llvm::DenseSet<Operation*>& computed,
          std::vector<NearMiss>& misses) {
  for (size_t i = 0; i < cluster.ops.size(); ++i)
    for (Value operand : cluster.ops[i]->getOperands())
      if (Operation* op = operand.getDefiningOp(); op && isRepeated(op))
        cluster.ops.insert(op);
  close(cluster, search.nodes);
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
  auto name = StringAttr::get(whole.front()->getContext(), "with " + nameOf(whole.front()));
  if (!together.tried.insert(name).second)
    return false;
  for (Operation* op : whole)
    together.names[op] = name;
  return true;
}

// What the groups of the operations become while `kept` launches are whole. One that would gain and cannot be replaced
// is a near miss; launches that something was grouped with in vain are to be kept, first those that are not all in it,
// and so is a node whose result others read before its group could be there.
std::vector<Selection> findAround(llvm::DenseSet<Operation*>& kept, Together& together, const Search& search,
                                  std::vector<NearMiss>& misses) {
  SmallCopy copy(search.function, search.taken, kept, together);
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
      Operation* original = copy.originalOf(op);
      isWhole &= original && (isBehindAutograd || !isa<ir::SumRowsOp, ir::GatherOp, ir::EmbeddingBagOp>(op));
      if (original)
        cluster.ops.insert(original);
    }
    // A fused operation or a launch is in it or is not. Without one that is not the others may be a kernel.
    llvm::SmallVector<Operation*> launches, inPart;
    for (Operation* original : cluster.ops) {
      if (!isFused(original) && !isLaunch(original))
        continue;
      const bool isIn = llvm::all_of(
          copy.copiesOf(original), [&](Operation* op) { return members.contains(op) || isRepeated(op) || isView(op); });
      isWhole &= isIn;
      if (!isIn)
        inPart.push_back(original);
      else if (isLaunch(original))
        launches.push_back(original);
    }
    const bool hasMore = cluster.ops.size() > 1;
    const Selection found = cluster; // take() adds to it
    if (isWhole && take(cluster, search, computed, misses))
      clusters.push_back(std::move(cluster));
    else if (hasMore && isBehindAutograd && inPart.empty() && putTogether(found, steps, together))
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
