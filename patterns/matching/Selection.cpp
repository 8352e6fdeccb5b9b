#include "patterns/matching/Selection.h"
#include "ir/dialect/Body.h"
#include "ir/text/Text.h"
#include "mlir/IR/IRMapping.h"
#include "patterns/matching/Dataflow.h"
#include "patterns/matching/Names.h"
#include <fmt/format.h>

using namespace mlir;

namespace cermet {
namespace {

StringAttr nodeOf(Operation* op) {
  return StringAttr::get(op->getContext(), ir::nodeName(op->getLoc()));
}

// It computes nothing: others may have it again.
bool isEntry(Operation* op) {
  return isa<ir::ConstantOp, ir::BroadcastOp, ir::ReshapeOp, ir::SliceOp, ir::TransposeOp, ir::CastOp, ir::IotaOp>(op);
}

// Whether someone else could compute it again, and need not have it in memory.
bool isComputing(Operation* user) {
  return ir::isElementwise(user) || isEntry(user);
}

llvm::SmallVector<Operation*> inBlockOrder(llvm::SetVector<Operation*>& ops) {
  llvm::SmallVector<Operation*> order(ops.begin(), ops.end());
  llvm::sort(order, [](Operation* a, Operation* b) { return a->isBeforeInBlock(b); });
  return order;
}

// A view for others of what others read, too, stays where it is: it would be the same result twice.
bool staysToo(Operation* op, const Selection& selection, const NodeValues& nodes) {
  auto isOutside = [&](Operation* user) { return !selection.ops.contains(user); };
  auto reshape = dyn_cast<ir::ReshapeOp>(op);
  return reshape && reshape.getOperand().getDefiningOp() && !isOutside(reshape.getOperand().getDefiningOp()) &&
         nodes.isNodes(reshape.getOperand()) && nodes.isNodes(reshape.getResult()) &&
         llvm::any_of(reshape.getOperand().getUsers(), isOutside) &&
         !llvm::any_of(reshape->getUsers(), [&](Operation* user) { return writes(user, reshape.getResult()); });
}

} // namespace

NodeValues::NodeValues(func::FuncOp function) {
  for (Operation& op : function.getBody().front())
    last[nodeOf(&op)] = &op;
}

bool NodeValues::isNodes(Value value) const {
  Operation* op = value.getDefiningOp();
  if (!op)
    return true;
  StringAttr node = nodeOf(op);
  return node.empty() || op->getNumResults() > 1 || last.lookup(node) == op;
}

std::string complete(Selection& selection, const NodeValues& nodes) {
  for (size_t i = 0; i < selection.ops.size(); ++i)
    for (Value operand : selection.ops[i]->getOperands())
      if (Operation* op = operand.getDefiningOp(); op && (isa<ir::ConstantOp>(op) || !nodes.isNodes(operand)))
        selection.ops.insert(op);
  llvm::SmallVector<Operation*> order = inBlockOrder(selection.ops);
  selection.ops.clear();
  selection.ops.insert(order.begin(), order.end());

  llvm::SmallSetVector<Value, 8> operands;
  llvm::SmallPtrSet<Operation*, 16> entries; // of operands alone
  llvm::SmallPtrSet<Operation*, 16> made;    // of constants and indices, such as a mask
  llvm::SmallPtrSet<Operation*, 4> views;    // that stay for others
  selection.results.clear();
  for (Operation* op : order) {
    bool fromOperands = true, ofNothing = isComputing(op);
    for (Value operand : op->getOperands()) {
      Operation* source = operand.getDefiningOp();
      ofNothing &= source && made.contains(source);
      if (!source || !selection.ops.contains(source))
        operands.insert(operand);
      else
        fromOperands &= entries.contains(source);
    }
    if (ofNothing)
      made.insert(op);
    // Who reads it may come before the last operand: each computes it, as the selection does.
    if (ofNothing && llvm::all_of(op->getUsers(),
                                  [&](Operation* user) { return selection.ops.contains(user) || isComputing(user); })) {
      entries.insert(op);
      continue;
    }
    if (fromOperands && isEntry(op)) {
      entries.insert(op);
      continue;
    }
    if (staysToo(op, selection, nodes)) {
      views.insert(op);
      continue;
    }
    for (Value value : op->getResults()) {
      bool isRead = false;
      for (Operation* user : value.getUsers()) {
        if (writes(user, value))
          return writtenText(value, user);
        isRead |= !selection.ops.contains(user);
      }
      selection.readInside = isRead && !nodes.isNodes(value) ? op : nullptr;
      if (selection.readInside)
        return fmt::format("`{}` is read outside, and is a step of its node only", nameOf(value));
      if (isRead)
        selection.results.push_back(value);
    }
  }
  selection.operands.assign(operands.begin(), operands.end());
  for (Value operand : selection.operands)
    if (!isa<RankedTensorType>(operand.getType()))
      return fmt::format("operand `{}` is no tensor of a type that kernels have", nameOf(operand));
  llvm::DenseSet<StringAttr> sizes; // a launch learns them from what it is given
  for (Value operand : selection.operands)
    for (const ir::Dimension& dimension : ir::dimensions(cast<RankedTensorType>(operand.getType())))
      if (dimension.symbol)
        sizes.insert(dimension.symbol);
  for (Operation* op : order)
    for (Value value : op->getResults())
      if (auto type = dyn_cast<RankedTensorType>(value.getType()))
        for (const ir::Dimension& dimension : ir::dimensions(type))
          if (dimension.symbol && !sizes.contains(dimension.symbol))
            return fmt::format("`{}` has the size {}, which none of its operands has", nameOf(value),
                               dimension.symbol.str());
  if (selection.results.empty())
    return "nothing reads it";
  if (selection.operands.empty())
    return "it reads nothing";
  auto isMember = [&](Operation* op) { return selection.ops.contains(op) && !views.contains(op); };
  const auto found = obstacle(selection.operands, selection.results, isMember);
  selection.readTooEarly = found && !found->isWrite ? found->value.getDefiningOp() : nullptr;
  return found ? "one of its results is read before the last of its operands exists" : "";
}

namespace {

// Which dimensions of a selection's values are one and the same, and which of those are rows: any number will do. An
// operation depends on the size of a last dimension, and of what reshapes, slices and concats change.
class RowNames {
public:
  explicit RowNames(const Selection& selection) {
    for (Operation* op : selection.ops) {
      if (auto gather = dyn_cast<ir::GatherOp>(op)) {
        relate(gather);
        continue;
      }
      if (auto bag = dyn_cast<ir::EmbeddingBagOp>(op)) {
        relate(bag);
        continue;
      }
      for (Value value : op->getResults())
        keepLast(value);
      for (Value operand : op->getOperands()) {
        keepLast(operand);
        for (Value result : op->getResults())
          relate(op, operand, result);
      }
      if (auto iota = dyn_cast<ir::IotaOp>(op))
        fix({iota, iota.getDim()});
    }
  }

  Type operator()(Value value) {
    auto tensor = cast<RankedTensorType>(value.getType());
    ir::Dimensions shape = ir::dimensions(tensor);
    for (auto [index, dimension] : llvm::enumerate(shape)) {
      const int root = rootOf({value, index});
      if (!dimension.isSymbol() && (dimension.isOne() || fixed[root]))
        continue;
      auto known = names.try_emplace(root, fmt::format("r{}", names.size())).first;
      dimension = {ShapedType::kDynamic, StringAttr::get(value.getContext(), known->second)};
    }
    return ir::tensorType(shape, tensor.getElementType());
  }

private:
  using Place = std::pair<Value, unsigned>; // a dimension of a value

  static ir::Dimensions shapeOf(Value value) { return ir::dimensions(cast<RankedTensorType>(value.getType())); }

  int rootOf(Place place) {
    auto [known, isNew] = numbers.try_emplace(place, parents.size());
    if (isNew) {
      parents.push_back(known->second);
      fixed.push_back(false);
    }
    int number = known->second;
    while (parents[number] != number)
      number = parents[number] = parents[parents[number]];
    return number;
  }
  // Rows that are symbols of the graph are one and the same where they have one symbol.
  void fix(Place place) {
    fixed[rootOf(place)] = true;
    if (StringAttr symbol = shapeOf(place.first)[place.second].symbol)
      join(fixedSymbols.try_emplace(symbol, place).first->second, place);
  }
  void join(Place a, Place b) {
    const int first = rootOf(a), second = rootOf(b);
    parents[second] = first;
    fixed[first] = fixed[first] || fixed[second];
  }

  void keepLast(Value value) {
    if (const size_t rank = shapeOf(value).size())
      fix({value, unsigned(rank - 1)});
  }

  // Of a gather's rows there are as many as numbers, and the table's are of no matter.
  void relate(ir::GatherOp gather) {
    keepLast(gather.getResult());
    join({gather.getSource(), 1}, {gather.getResult(), unsigned(shapeOf(gather.getResult()).size() - 1)});
    for (unsigned row = 0; row < shapeOf(gather.getIndex()).size(); ++row)
      join({gather.getIndex(), row}, {gather.getResult(), row});
  }

  // As many as bounds; of rows and numbers there may be any number.
  void relate(ir::EmbeddingBagOp bag) {
    keepLast(bag.getResult());
    for (Value table : {Value(bag.getSource()), Value(bag.getSums())})
      if (table)
        join({table, 1}, {bag.getResult(), unsigned(shapeOf(bag.getResult()).size() - 1)});
    for (Value bounds : {bag.getBegins(), bag.getEnds()})
      for (unsigned row = 0; row < shapeOf(bounds).size(); ++row)
        join({bounds, row}, {bag.getResult(), row});
  }

  void relate(Operation* op, Value operand, Value result) {
    const ir::Dimensions from = shapeOf(operand), to = shapeOf(result);
    if (auto transpose = dyn_cast<ir::TransposeOp>(op)) {
      for (auto [index, before] : llvm::enumerate(transpose.getPermutation()))
        join({operand, unsigned(before)}, {result, unsigned(index)});
      return;
    }
    size_t front = 0, back = 0; // dimensions that stay, counted from either end
    const size_t least = std::min(from.size(), to.size());
    if (isa<ir::ReshapeOp>(op)) {
      while (back < least && from[from.size() - 1 - back] == to[to.size() - 1 - back])
        ++back;
      while (front + back < least && from[front] == to[front])
        ++front;
    } else {
      back = least;
    }
    auto meet = [&](size_t a, size_t b) {
      if (from[a] == to[b])
        join({operand, unsigned(a)}, {result, unsigned(b)});
      else if (isa<ir::SliceOp, ir::ConcatOp, ir::MatmulOp>(op)) {
        fix({operand, unsigned(a)});
        fix({result, unsigned(b)});
      }
    };
    for (size_t i = 0; i < front; ++i)
      meet(i, i);
    for (size_t i = 0; i < back; ++i)
      meet(from.size() - 1 - i, to.size() - 1 - i);
    if (!isa<ir::ReshapeOp>(op))
      return;
    for (size_t i = front; i + back < from.size(); ++i)
      fix({operand, unsigned(i)});
    for (size_t i = front; i + back < to.size(); ++i)
      fix({result, unsigned(i)});
  }

  llvm::DenseMap<Place, int> numbers;
  std::vector<int> parents;
  std::vector<bool> fixed;
  std::map<int, std::string> names;
  llvm::DenseMap<StringAttr, Place> fixedSymbols;
};

// Of a selection in small operations.
std::string textOfSmall(const Selection& selection) {
  MLIRContext* context = selection.ops.front()->getContext();
  auto unknown = UnknownLoc::get(context);
  OwningOpRef<ModuleOp> graph = ir::createGraph(*context);
  RowNames named(selection);
  OpBuilder builder = OpBuilder::atBlockEnd(graph->getBody());
  llvm::SmallVector<Type> inputs, outputs;
  for (Value operand : selection.operands)
    inputs.push_back(named(operand));
  for (Value result : selection.results)
    outputs.push_back(named(result));
  auto function = func::FuncOp::create(builder, unknown, selection.pattern, builder.getFunctionType(inputs, outputs));
  Block* body = builder.createBlock(&function.getBody());
  IRMapping mapping;
  for (auto [index, operand] : llvm::enumerate(selection.operands))
    mapping.map(operand, body->addArgument(inputs[index], NameLoc::get(builder.getStringAttr("a" + Twine(index)))));
  for (Operation* op : selection.ops) {
    Operation* copy = builder.clone(*op, mapping);
    for (auto [result, original] : llvm::zip_equal(copy->getResults(), op->getResults()))
      result.setType(named(original));
  }
  llvm::SmallVector<Value> results;
  for (Value result : selection.results)
    results.push_back(mapping.lookup(result));
  func::ReturnOp::create(builder, unknown, results);
  return ir::printGraph(*graph, /*withLocations=*/false);
}

} // namespace

std::string textOf(const Selection& selection) {
  if (llvm::none_of(selection.ops, [](Operation* op) { return op->hasAttr(ir::kBody); }))
    return textOfSmall(selection);
  MLIRContext* context = selection.ops.front()->getContext();
  OwningOpRef<ModuleOp> graph = ir::createGraph(*context);
  OpBuilder builder = OpBuilder::atBlockEnd(graph->getBody());
  auto function = func::FuncOp::create(builder, UnknownLoc::get(context), selection.pattern,
                                       builder.getFunctionType(ValueRange(selection.operands).getTypes(), {}));
  Block* body = function.addEntryBlock();
  builder.setInsertionPointToStart(body);
  IRMapping mapping;
  mapping.map(selection.operands, body->getArguments());
  for (Operation* op : selection.ops)
    if (op->hasAttr(ir::kBody)) {
      auto operands = llvm::map_to_vector(op->getOperands(), [&](Value operand) { return mapping.lookup(operand); });
      mapping.map(op->getResults(), ir::inlineBody(op, operands, builder, op->getLoc()));
    } else {
      builder.clone(*op, mapping);
    }
  Selection small{selection.pattern, selection.counts, {}, {}, {}};
  for (Value operand : body->getArguments())
    small.operands.push_back(operand);
  for (Value result : selection.results)
    small.results.push_back(mapping.lookup(result));
  func::ReturnOp::create(builder, UnknownLoc::get(context), small.results);
  for (Operation& op : llvm::make_early_inc_range(llvm::reverse(*body))) // a range would read the erased
    if (isOpTriviallyDead(&op))
      op.erase();
  for (Operation& op : body->without_terminator())
    small.ops.insert(&op);
  return textOfSmall(small);
}

} // namespace cermet
