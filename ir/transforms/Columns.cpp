#include "ir/transforms/Columns.h"
#include "ir/dialect/Formula.h"
#include "ir/dialect/Ops.h"
#include "ir/transforms/RowViews.h"
#include "runtime/abi/Limits.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"
#include <numeric>
#include <set>

using namespace mlir;

namespace cermet::ir {
namespace {

constexpr int kMaxOfConcat = 256; // operations that one concat may become

// For each column of the row: which element of a value's row it is, counted in memory order; kAny where nothing asks.
using Map = SmallVector<int64_t>;
constexpr int64_t kAny = -1;

// One concat's rows, [rows..., columns].
class Rearrangement {
public:
  Rearrangement(OpBuilder& builder, Value root, CanReadColumns canRead)
      : builder(builder), root(root), canRead(canRead), f(builder, root.getLoc()) {
    Dimensions shape = dimensions(typeOf(root));
    columns = shape.back().size;
    shape.pop_back();
    rows = shape;
  }

  // The root's value by other means, or null.
  Value run() {
    Map map(columns);
    std::iota(map.begin(), map.end(), 0);
    Value result = at(root, kept(std::move(map)));
    // A root that is read as it will be stored is no other means.
    return result && result != root && gains() ? whole(result) : Value();
  }

private:
  // Reading in place pays where several parts come from one tensor: those of unrelated tensors are better written where
  // the concat has them.
  bool gains() const {
    return llvm::any_of(reads, [](const auto& read) { return read.second > 1; });
  }

  // The root's type with another element type.
  RankedTensorType wide(Type element) {
    RankedTensorType& type = wideTypes[element];
    return type ? type : type = withElement(typeOf(root), element);
  }
  Value whole(Value value) { return f.broadcast(value, wide(typeOf(value).getElementType())); }

  // Equal maps are one object, so that they are compared once.
  const Map& kept(Map map) { return *maps.insert(std::move(map)).first; }

  // `value`, whose rows are the root's, at those columns: [rows..., columns], or something that broadcasts to it.
  // `map` is a kept one.
  Value at(Value value, const Map& map) {
    if (auto known = memory.find({value, &map}); known != memory.end())
      return known->second;
    if (++steps > kMaxOfConcat)
      return {};
    Value made = compute(value, map);
    memory[{value, &map}] = made;
    return made;
  }

  Value compute(Value value, const Map& map) {
    Dimensions shape = dimensions(typeOf(value));
    if (shape.size() < rows.size() || ArrayRef(shape).take_front(rows.size()) != ArrayRef(rows) ||
        !rowSize(value, rows.size()))
      return {};
    Operation* op = value.getDefiningOp();
    if (!op)
      return read(value, map);
    if (auto constant = dyn_cast<ConstantOp>(op))
      return ConstantOp::create(builder, constant.getLoc(), wide(typeOf(value).getElementType()),
                                constant.getValueAttr());
    if (isElementwise(op))
      return elementwise(op, map);
    if (auto broadcast = dyn_cast<BroadcastOp>(op))
      return broadcasted(broadcast, map);
    if (auto concat = dyn_cast<ConcatOp>(op))
      return concat.getDim() >= rows.size() ? joined(concat, map) : read(value, map);
    if (isa<SliceOp, ReshapeOp, TransposeOp>(op))
      if (Value from = viewed(op, map))
        return from;
    return read(value, map);
  }

  Value elementwise(Operation* op, const Map& map) {
    SmallVector<Value> operands;
    for (Value operand : op->getOperands()) {
      Value made = at(operand, map);
      if (!made)
        return {};
      operands.push_back(whole(made));
    }
    const Type type = wide(typeOf(op->getResult(0)).getElementType());
    return builder
        .insert(Operation::create(op->getLoc(), op->getName(), type, operands, op->getDiscardableAttrDictionary(),
                                  op->getPropertiesStorage(), BlockRange(), /*numRegions=*/0))
        ->getResult(0);
  }

  // What a view of one operand reads at those columns.
  Value viewed(Operation* view, const Map& map) {
    const RowView elements(view, rows.size());
    Map wanted;
    for (int64_t element : map) {
      std::optional<RowElement> source;
      if (element != kAny && !(source = elements.source(element)))
        return {};
      wanted.push_back(source ? source->at : kAny);
    }
    return at(view->getOperand(0), kept(std::move(wanted)));
  }

  Value joined(ConcatOp concat, const Map& map) {
    const RowView elements(concat, rows.size());
    llvm::SmallMapVector<Value, Map, 2> parts; // what is wanted of each
    for (auto [column, element] : llvm::enumerate(map)) {
      if (element == kAny)
        continue;
      std::optional<RowElement> source = elements.source(element);
      if (!source)
        return {};
      Map& wanted = parts[source->value];
      wanted.resize(columns, kAny);
      wanted[column] = source->at;
    }
    Value result;
    for (auto& [part, wanted] : parts) {
      Value value = at(part, kept(wanted));
      Value condition = result && value ? columnsWhere(wanted, map) : Value();
      if (!value || (result && !condition))
        return {};
      value = whole(value);
      result = result ? f.select(condition, value, result) : value;
    }
    return result;
  }

  // Whether a column is one that is wanted, of those that `map` asks for, as i1; null where that takes a table.
  Value columnsWhere(const Map& wanted, const Map& map) {
    const auto isHere = [&](int64_t column) { return wanted[column] != kAny; };
    RankedTensorType type = tensorType({Dimension{columns, nullptr}}, builder.getI64Type());
    auto holds = [&](auto predicate) {
      for (int64_t column = 0; column < columns; ++column)
        if (map[column] != kAny && isHere(column) != predicate(column))
          return false;
      return true;
    };
    int64_t first = 0;
    while (!isHere(first))
      ++first;
    Value condition;
    for (int64_t parity : {0, 1})
      if (!condition && holds([&](int64_t column) { return column % 2 == parity; })) {
        Value odd = IotaOp::create(builder, root.getLoc(), type, 0, builder.getI64IntegerAttr(2));
        condition = f.compare("eq", odd, double(parity));
      }
    Value column = IotaOp::create(builder, root.getLoc(), type, 0, nullptr);
    if (!condition && holds([&](int64_t at) { return at >= first; }))
      condition = f.compare("ge", column, double(first));
    // A part in the middle: what stands behind it is chosen afterwards.
    int64_t end = first;
    while (end < columns && (isHere(end) || map[end] == kAny))
      ++end;
    if (!condition && holds([&](int64_t at) { return at >= first && at < end; }))
      condition = f.min(f.compare("ge", column, double(first)), f.compare("lt", column, double(end)));
    return condition ? f.broadcast(condition, wide(builder.getI1Type())) : Value();
  }

  // Rows of the operand are some of the root's, or none.
  Value broadcasted(BroadcastOp broadcast, const Map& map) {
    const Dimensions from = dimensions(typeOf(broadcast.getOperand()));
    const size_t inner = typeOf(broadcast.getResult()).getRank() - rows.size();
    Dimensions itsRows(from.begin(), from.begin() + (from.size() > inner ? from.size() - inner : 0));
    const RowView elements(broadcast, rows.size());
    Map wanted;
    for (int64_t element : map)
      wanted.push_back(element == kAny ? kAny : elements.source(element)->at);
    std::swap(rows, itsRows);
    Value made = at(broadcast.getOperand(), kept(std::move(wanted)));
    std::swap(rows, itsRows);
    return made;
  }

  Value read(Value value, const Map& map) {
    const int64_t size = *rowSize(value, rows.size());
    if (size == 1)
      return f.reshape(value, withColumn(rows));
    return readFrom(value, rows, size, map);
  }

  static Dimensions withColumn(ArrayRef<Dimension> rows) {
    Dimensions shape(rows.begin(), rows.end());
    shape.push_back(Dimension{});
    return shape;
  }

  // The value is in memory, or will be: its row of `size` elements as one dimension, and of that the columns.
  Value readFrom(Value value, ArrayRef<Dimension> itsRows, int64_t size, const Map& map) {
    Dimensions shape(itsRows.begin(), itsRows.end());
    shape.push_back(Dimension{size, nullptr});
    value = f.reshape(value, shape);
    const Map full = filled(map, size);
    if (ArrayRef(dimensions(typeOf(root))).drop_back() == itsRows)
      ++reads[value];
    if (size == columns && llvm::equal(full, llvm::seq<int64_t>(0, columns)))
      return value;
    if (canRead && !canRead(value, full))
      return {};
    shape.back().size = columns;
    return ColumnsOp::create(builder, root.getLoc(), tensorType(shape, typeOf(value).getElementType()), value, full);
  }

  // What nothing asks for is chosen so that the parts of one value read the same columns and become one read.
  Map filled(const Map& map, int64_t size) const {
    if (!llvm::is_contained(map, kAny))
      return map;
    Map exchanged = map; // columns that change places
    bool isExchange = size == columns;
    for (int64_t column = 0; isExchange && column < columns; ++column)
      if (map[column] != kAny) {
        int64_t& back = exchanged[map[column]];
        isExchange = back == kAny || back == column;
        back = column;
      }
    Map result = isExchange ? exchanged : map;
    const bool isHalf = !isExchange && llvm::all_of(llvm::seq<int64_t>(0, columns), [&](int64_t column) {
      return map[column] == kAny || map[column] == column / 2;
    });
    for (int64_t column = 0; column < columns; ++column)
      if (result[column] == kAny)
        result[column] = isHalf && column / 2 < size ? column / 2 : column % size;
    return result;
  }

  OpBuilder& builder;
  Value root;
  CanReadColumns canRead;
  Formula f;
  Dimensions rows;
  int64_t columns = 0;
  int steps = 0;
  std::set<Map> maps;
  llvm::DenseMap<std::pair<Value, const Map*>, Value> memory;
  llvm::SmallDenseMap<Type, RankedTensorType, 4> wideTypes;
  llvm::DenseMap<Value, int> reads; // in how many arrangements a value of the root's rows is read
};

// A concat of columns, or the reshape that makes columns of what was stacked.
Value rootOf(ConcatOp concat) {
  Value value = concat.getResult();
  Dimensions shape = dimensions(typeOf(value));
  if (concat.getDim() + 1 != shape.size())
    return {};
  if (value.hasOneUse())
    if (auto reshape = dyn_cast<ReshapeOp>(*value.user_begin())) {
      Dimensions to = dimensions(typeOf(reshape.getResult()));
      const bool merges = to.size() + 1 == shape.size() && !to.empty() && !to.back().isSymbol() &&
                          llvm::equal(ArrayRef(to).drop_back(), ArrayRef(shape).drop_back(2)) &&
                          !shape[shape.size() - 2].isSymbol();
      if (merges)
        return reshape.getResult();
    }
  return value;
}

} // namespace

// Of the operations from `first` to `last`, and of what only they read, what is dead and no concat.
static void eraseDead(Operation* first, Operation* last) {
  llvm::SmallSetVector<Operation*, 16> pending;
  for (Operation* op = first;; op = op->getNextNode()) {
    pending.insert(op);
    if (op == last)
      break;
  }
  while (!pending.empty()) {
    Operation* op = pending.pop_back_val();
    if (isa<ConcatOp>(op) || !isOpTriviallyDead(op))
      continue;
    for (Value operand : op->getOperands())
      if (Operation* source = operand.getDefiningOp())
        pending.insert(source);
    op->erase();
  }
}

void readColumnsInPlace(func::FuncOp function, CanReadColumns canRead) {
  Block& block = function.getBody().front();
  // The last first: a concat inside of another is part of its rearrangement.
  auto concats = llvm::to_vector(block.getOps<ConcatOp>());
  for (ConcatOp concat : llvm::reverse(concats)) {
    Value root = rootOf(concat);
    if (!root || root.use_empty() || dimensions(typeOf(root)).back().size > kMaxHeadColumns)
      continue;
    Operation* before = root.getDefiningOp();
    OpBuilder builder(before->getContext());
    builder.setInsertionPointAfter(before);
    Operation* next = before->getNextNode();
    if (Value made = Rearrangement(builder, root, canRead).run())
      root.replaceAllUsesWith(made);
    eraseDead(before, next->getPrevNode());
  }
  for (Operation& op : llvm::make_early_inc_range(llvm::reverse(block)))
    if (isOpTriviallyDead(&op))
      op.erase();
}

} // namespace cermet::ir
