#include "compiler/plan/Gains.h"
#include "compiler/plan/StoredValues.h"
#include "ir/dialect/Body.h"
#include "ir/dialect/Ops.h"
#include "ir/text/Text.h"
#include "patterns/matching/Names.h"
#include <fmt/format.h>
#include <set>

using namespace mlir;

namespace cermet {
namespace {

constexpr double kMaxMoved = 0.8;         // of the bytes that the operations one by one move
constexpr double kLeastSaved = 16 * 1024; // bytes: less is not worth a kernel to compile
constexpr double kLeastAlone = 1 << 20;   // bytes that one operation moves where its own kernel is to be better
constexpr double kSymbolicSize = 1024;    // of a symbol that cermet.sizes does not name

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

bool isReal(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && isa<FloatType>(type.getElementType());
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
// of a copy's speed, those of functions 0.85 to 0.95 (bench/results/functions.json); sums, products and choices that
// of a copy, but for those with a tensor that is repeated, a mask too, which it reads number by number.
bool isMoreThanBytes(Operation* op) {
  if (auto broadcast = dyn_cast<ir::BroadcastOp>(op))
    return ir::typeOf(broadcast.getOperand()).getRank() > 0;
  return isa<ir::ReduceSumOp, ir::ReduceMaxOp, ir::ReduceMinOp, ir::CumsumOp, ir::SumRowsOp, ir::EmbeddingBagOp>(op) ||
         isa<ir::ExpOp, ir::LogOp, ir::PowOp, ir::TanhOp, ir::ErfOp, ir::SigmoidOp, ir::SoftplusOp, ir::SiluOp,
             ir::GeluOp, ir::GeluTanhOp>(op);
}

void addMiss(const Selection& cluster, const std::string& reason, std::vector<NearMiss>& misses) {
  Operation* last = cluster.ops.front();
  for (Operation* op : cluster.ops)
    last = last->isBeforeInBlock(op) ? op : last;
  misses.push_back({"cluster", nameOf(last), reason, last->getLoc()});
}

} // namespace

bool isFused(Operation* op) {
  return isa<ir::DecomposableOpInterface>(op);
}

bool hasNoGradient(Operation* op) {
  return op->getParentOfType<ModuleOp>()->hasAttr(ir::kNoGradient);
}

bool isLaunch(Operation* op) {
  return op->hasAttr(ir::kBody);
}

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

void miss(const Selection& cluster, const std::string& reason, std::vector<NearMiss>& misses) {
  const Apart before = apart(cluster);
  const bool isCore =
      llvm::any_of(cluster.ops, [](Operation* op) { return ir::isReduction(op) && isReal(op->getOperand(0)); });
  if (isCore && before.nodes > 1 && before.bytes >= kLeastSaved)
    addMiss(cluster, reason, misses);
}

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

} // namespace cermet
