#include "compiler/GraphClusters.h"
#include "compiler/Clusters.h"
#include "compiler/Lower.h"
#include "compiler/StoredValues.h"
#include "ir/Ops.h"
#include "ir/Text.h"
#include "mlir/IR/IRMapping.h"
#include "patterns/Names.h"
#include "patterns/Rope.h"
#include <set>

using namespace mlir;

namespace cermet {
namespace {

constexpr double kMostMoved = 0.8;           // of the bytes that the operations one by one move
constexpr int64_t kLeastSaved = 16 * 1024;   // bytes: less is not worth a kernel to compile
constexpr int64_t kSymbolicSize = 1;         // what a symbolic dimension counts as: only a frontend knows it

int64_t bytesOf(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  if (!type)
    return 0;
  int64_t bits = type.getElementTypeBitWidth();
  for (int64_t size : type.getShape())
    bits *= ShapedType::isDynamic(size) ? kSymbolicSize : size;
  return (bits + 7) / 8;
}

bool isFused(Operation* op) {
  return isa<ir::DecomposableOpInterface>(op);
}

// A copy of the function in small operations, with regions that are taken as operations of their own, and what each
// operation is of the original.
class SmallCopy {
public:
  SmallCopy(func::FuncOp function, const std::vector<Cluster>& taken) : module(ir::createGraph(*function.getContext())) {
    OpBuilder builder = OpBuilder::atBlockEnd(module->getBody());
    IRMapping mapping;
    copy = cast<func::FuncOp>(builder.clone(*function, mapping));
    for (Operation& op : function.getBody().front())
      originals[mapping.lookup(&op)] = &op;
    for (const Cluster& cluster : taken)
      close(cluster, mapping);
    for (ir::DecomposableOpInterface op : llvm::to_vector(copy.getOps<ir::DecomposableOpInterface>()))
      decompose(op);
    for (Operation& op : llvm::make_early_inc_range(llvm::reverse(copy.getBody().front())))
      if (isOpTriviallyDead(&op))
        op.erase();
    for (Operation& op : copy.getBody().front())
      if (Operation* original = originalOf(&op))
        copies[original].push_back(&op);
  }

  func::FuncOp function() { return copy; }
  Operation* originalOf(Operation* op) const { return originals.lookup(op); }
  llvm::ArrayRef<Operation*> copiesOf(Operation* original) const {
    auto known = copies.find(original);
    return known == copies.end() ? llvm::ArrayRef<Operation*>() : known->second;
  }

private:
  void close(const Cluster& cluster, const IRMapping& mapping) {
    llvm::SmallVector<Value> operands, results;
    for (Value operand : cluster.operands)
      operands.push_back(mapping.lookup(operand));
    for (Value result : cluster.results)
      results.push_back(mapping.lookup(result));
    // Behind its last operand: a region has a place there.
    Operation* last = nullptr;
    for (Value operand : operands)
      if (Operation* op = operand.getDefiningOp(); op && (!last || last->isBeforeInBlock(op)))
        last = op;
    OpBuilder builder(copy.getContext());
    if (last)
      builder.setInsertionPointAfter(last);
    else
      builder.setInsertionPointToStart(&copy.getBody().front());
    auto closed = ir::OpaqueOp::create(builder, copy.getLoc(), ValueRange(results).getTypes(), cluster.pattern,
                                       operands, "pure", 0);
    for (auto [result, made] : llvm::zip_equal(results, closed.getResults()))
      result.replaceAllUsesWith(made);
  }

  void decompose(ir::DecomposableOpInterface op) {
    if (!llvm::all_of(op->getOperandTypes(), hasKernelType) || !llvm::all_of(op->getResultTypes(), hasKernelType))
      return;
    Operation* original = originals.lookup(op);
    Operation* before = op->getPrevNode();
    OpBuilder builder(op);
    op->replaceAllUsesWith(op.decompose(builder));
    Operation* made = before ? before->getNextNode() : &op->getBlock()->front();
    for (; made != op; made = made->getNextNode())
      originals[made] = original;
    op->erase();
  }

  OwningOpRef<ModuleOp> module;
  func::FuncOp copy;
  llvm::DenseMap<Operation*, Operation*> originals;
  llvm::DenseMap<Operation*, llvm::SmallVector<Operation*>> copies;
};

// What a cluster is called, and what it counts as: by the fused operations in it.
void name(Cluster& cluster, const std::vector<Cluster>& taken) {
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

// Whether one kernel moves enough less than its operations, each a kernel of its own. A node of a frontend's graph is
// one operation.
bool gains(const Cluster& cluster) {
  std::map<std::string, std::pair<std::set<void*>, std::set<void*>>> nodes; // values that each reads and makes
  int64_t before = 0, after = 0;
  for (Operation* op : cluster.ops) {
    if (isView(op) || isa<ir::ConstantOp, ir::BroadcastOp>(op))
      continue;
    auto& [reads, makes] = nodes[nameOf(op)];
    for (Value operand : op->getOperands()) {
      while (operand.getDefiningOp() && isa<ir::BroadcastOp, ir::ReshapeOp>(operand.getDefiningOp()))
        operand = operand.getDefiningOp()->getOperand(0);
      if (!operand.getDefiningOp<ir::ConstantOp>())
        reads.insert(operand.getAsOpaquePointer());
    }
    for (Value result : op->getResults())
      makes.insert(result.getAsOpaquePointer());
  }
  for (const auto& [node, values] : nodes) {
    int64_t largest = 0; // of what the node makes: the rest stays within it
    for (void* made : values.second)
      largest = std::max(largest, bytesOf(Value::getFromOpaquePointer(made)));
    before += largest;
    for (void* read : values.first)
      if (!values.second.contains(read))
        before += bytesOf(Value::getFromOpaquePointer(read));
  }
  for (Value value : cluster.operands)
    after += bytesOf(value);
  for (Value value : cluster.results)
    after += bytesOf(value);
  // Masks and positions are small, or made once: integers have no bandwidth to win.
  const bool isReal = llvm::any_of(cluster.results, [](Value value) {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    return type && isa<FloatType>(type.getElementType());
  });
  return isReal && nodes.size() > 1 && before - after >= kLeastSaved && double(after) <= kMostMoved * double(before);
}

} // namespace

std::vector<Cluster> findClusters(func::FuncOp function, const std::vector<Cluster>& taken, const NodeValues& nodes) {
  SmallCopy copy(function, taken);
  std::vector<Cluster> clusters;
  for (const Group& group : groupOperations(copy.function())) {
    if (!group.isKernel || group.lowered.appendsColumn)
      continue;
    Cluster cluster;
    bool isWhole = true;
    llvm::SmallPtrSet<Operation*, 16> members(group.ops.begin(), group.ops.end());
    for (Operation* op : group.ops) {
      Operation* original = copy.originalOf(op);
      isWhole &= original != nullptr && !isa<ir::GatherOp, ir::SumRowsOp>(op);
      if (original)
        cluster.ops.insert(original);
    }
    // A fused operation is in it or is not.
    for (Operation* original : cluster.ops)
      if (isFused(original))
        for (Operation* op : copy.copiesOf(original))
          isWhole &= members.contains(op) || isRepeated(op) || isView(op);
    if (!isWhole)
      continue;
    for (size_t i = 0; i < cluster.ops.size(); ++i)
      for (Value operand : cluster.ops[i]->getOperands())
        if (Operation* op = operand.getDefiningOp(); op && isRepeated(op))
          cluster.ops.insert(op);
    name(cluster, taken);
    if (complete(cluster, nodes).empty() && gains(cluster))
      clusters.push_back(std::move(cluster));
  }
  return clusters;
}

} // namespace cermet
