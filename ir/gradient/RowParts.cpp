// Each value that lies behind the walked input either has rows, and is made for a piece of them, or is made of all.
// Then the values with rows that it reads are results of the pieces. Which of its dimensions are those of the rows is
// not guessed from a shape: `ofPiece` is asked for a value whose first so many dimensions they are, and answers only if
// every operation on the way from the inputs treats them as rows, each apart from the others.
#include "ir/gradient/RowParts.h"
#include "ir/dialect/Formula.h"
#include "ir/gradient/KeptRows.h"
#include "ir/text/Text.h"
#include "ir/transforms/Decompose.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Verifier.h"
#include "llvm/ADT/SetVector.h"
#include <numeric>

using namespace mlir;

namespace cermet::ir {

namespace {

// How many rows some dimensions are: their numbers' product, and their symbols.
struct Count {
  int64_t number = 1;
  SmallVector<StringAttr> symbols;

  explicit Count(ArrayRef<Dimension> dimensions) {
    for (const Dimension& dimension : dimensions)
      if (dimension.isSymbol())
        symbols.push_back(dimension.symbol);
      else
        number *= dimension.size;
    llvm::sort(symbols, [](StringAttr a, StringAttr b) { return a.getValue() < b.getValue(); });
  }
  bool operator==(const Count&) const = default;
};

bool isStatic(ArrayRef<Dimension> dimensions) {
  return llvm::none_of(dimensions, [](const Dimension& dimension) { return dimension.isSymbol(); });
}

NameLoc nameLoc(MLIRContext* context, const Twine& name) {
  return NameLoc::get(StringAttr::get(context, name));
}

} // namespace

std::optional<RowPart> finishPart(OwningOpRef<ModuleOp> graph, std::vector<RowPart::Origin> origins) {
  func::FuncOp function = graphFunction(*graph);
  Block& block = function.getBody().front();
  function.setFunctionType(
      FunctionType::get(graph->getContext(), block.getArgumentTypes(), block.getTerminator()->getOperandTypes()));
  simplify(function);
  llvm::BitVector unused(block.getNumArguments());
  RowPart part;
  for (auto [index, origin] : llvm::enumerate(origins))
    if (block.getArgument(index).use_empty())
      unused.set(index);
    else
      part.inputs.push_back(origin);
  if (failed(function.eraseArguments(unused)) || failed(verify(*graph)) || failed(verifyGraph(*graph)))
    return std::nullopt;
  part.graph = std::move(graph);
  return part;
}

namespace {

// A part that is being written.
class Writer {
public:
  Writer(MLIRContext* context, const Twine& name) : context(context), builder(context), module(createGraph(*context)) {
    builder.setInsertionPointToEnd(module->getBody());
    function = func::FuncOp::create(builder, builder.getUnknownLoc(), name.str(), builder.getFunctionType({}, {}));
    builder.setInsertionPointToStart(function.addEntryBlock());
  }

  Value argument(RowPart::Origin origin, Type type, Location location) {
    origins.push_back(origin);
    return function.getBody().front().addArgument(type, location);
  }

  // The operation on other operands, with a result of another type.
  Value copy(Operation* op, ValueRange operands, Type type) {
    Operation* made = builder.clone(*op);
    made->setOperands(operands);
    made->getResult(0).setType(type);
    return made->getResult(0);
  }

  std::optional<RowPart> finish(ArrayRef<Value> results) {
    func::ReturnOp::create(builder, builder.getUnknownLoc(), results);
    return finishPart(std::move(module), std::move(origins));
  }

  MLIRContext* context;
  OpBuilder builder;
  func::FuncOp function;
  std::vector<RowPart::Origin> origins;

private:
  OwningOpRef<ModuleOp> module;
};

class Splitter {
public:
  Splitter(func::FuncOp function, unsigned walked)
      : function(function), walked(function.getArgument(walked)), rows(leading(dimensions(typeOf(this->walked)))),
        piece(function.getContext(), function.getName() + "_rows"),
        after(function.getContext(), function.getName() + "_after") {
    for (BlockArgument argument : function.getArguments())
      given.insert(argument);
    walking.insert(this->walked);
    for (Operation& op : function.getBody().front().without_terminator())
      for (llvm::DenseSet<Value>* set : {&given, &walking})
        if (llvm::any_of(op.getOperands(), [&](Value operand) { return set->contains(operand); }))
          set->insert(op.result_begin(), op.result_end());
  }

  std::optional<RowParts> run();

private:
  static Dimensions leading(ArrayRef<Dimension> dimensions) { return Dimensions(dimensions.drop_back()); }
  // How many first dimensions of a value are as many as the rows, at least one; 0 where none are.
  size_t rowDimensions(Value value) const;
  // The type of a value for a piece.
  RankedTensorType pieceType(Value value, size_t leads) const;

  // A value for a piece of the rows, which are its first `leads` dimensions; without any, what all rows share. Null
  // where there is none.
  Value ofPiece(Value value, size_t leads);
  Value makeOfPiece(Value value, size_t leads);
  Value derive(Operation* op, size_t leads, RankedTensorType type);
  Value expand(BroadcastOp op, size_t leads, RankedTensorType type);
  Value rearrange(ReshapeOp op, RankedTensorType type);
  // A value that is made of all rows. Null where there is none.
  Value ofAll(Value value);
  Value makeOfAll(Value value);
  // What no row decides, as an argument of a part.
  Value known(Writer& part, Value value, Type type);

  std::optional<RowPart> writeBefore(std::vector<RowPart*> readers);

  func::FuncOp function;
  BlockArgument walked;
  Dimensions rows;
  llvm::DenseSet<Value> given, walking; // what depends on inputs, and on the walked one
  Writer piece, after;
  llvm::DenseMap<std::pair<Value, size_t>, Value> pieces;
  llvm::DenseMap<Value, Value> wholes;
  llvm::SetVector<Value> early;  // what `before` may return
  SmallVector<Value> rowResults; // of pieces, for `after`
};

} // namespace

size_t Splitter::rowDimensions(Value value) const {
  Dimensions all = dimensions(typeOf(value));
  for (size_t leads = 1; leads <= all.size(); ++leads)
    if (Count(ArrayRef(all).take_front(leads)) == Count(rows))
      return leads;
  return 0;
}

RankedTensorType Splitter::pieceType(Value value, size_t leads) const {
  Dimensions all = dimensions(typeOf(value)), own;
  if (leads > 0)
    own.push_back({ShapedType::kDynamic, StringAttr::get(value.getContext(), kRows)});
  own.append(all.begin() + leads, all.end());
  if (leads > 0 && own.size() == 1)
    own.push_back({}); // one number a row has one form
  return tensorType(own, typeOf(value).getElementType());
}

Value Splitter::known(Writer& part, Value value, Type type) {
  if (auto argument = dyn_cast<BlockArgument>(value))
    return part.argument({RowPart::Origin::Input, int(argument.getArgNumber())}, type, value.getLoc());
  early.insert(value);
  const int index = llvm::find(early, value) - early.begin();
  return part.argument({RowPart::Origin::Before, index}, type, nameLoc(value.getContext(), "before" + Twine(index)));
}

//===--- A piece -----------------------------------------------------------------------------------------------------//

Value Splitter::ofPiece(Value value, size_t leads) {
  auto key = std::make_pair(value, leads);
  if (auto found = pieces.find(key); found != pieces.end())
    return found->second;
  Value made = makeOfPiece(value, leads);
  pieces[key] = made;
  return made;
}

Value Splitter::makeOfPiece(Value value, size_t leads) {
  Dimensions all = dimensions(typeOf(value));
  const bool hasRows = leads > 0, isWalking = walking.contains(value);
  if (hasRows && !(Count(ArrayRef(all).take_front(leads)) == Count(rows)))
    return {};
  if (!isStatic(ArrayRef(all).drop_front(leads)) || (!hasRows && isWalking))
    return {};
  RankedTensorType type = pieceType(value, leads);
  Operation* op = value.getDefiningOp();
  if (!op)
    return value == walked && leads + 1 != all.size() ? Value() : known(piece, value, type);
  if (hasRows || !given.contains(value))
    if (Value made = op->getNumResults() == 1 ? derive(op, leads, type) : Value())
      return made;
  const int64_t width =
      std::accumulate(type.getShape().begin() + hasRows, type.getShape().end(), int64_t(1), std::multiplies<int64_t>());
  // What is as wide as the logits is not kept for all rows.
  return isWalking || (hasRows && width != 1) || !given.contains(value) ? Value() : known(piece, value, type);
}

Value Splitter::derive(Operation* op, size_t leads, RankedTensorType type) {
  if (auto broadcast = dyn_cast<BroadcastOp>(op); broadcast && leads > 0)
    return expand(broadcast, leads, type);
  if (auto reshape = dyn_cast<ReshapeOp>(op); reshape && leads > 0)
    return rearrange(reshape, type);
  if (auto iota = dyn_cast<IotaOp>(op)) {
    if (iota.getDim() < leads)
      return {};
    const int64_t dim = iota.getDim() - leads + (leads > 0);
    return IotaOp::create(piece.builder, op->getLoc(), type, dim, iota.getPeriodAttr());
  }
  const bool alongRow = isa<ReduceSumOp, ReduceMaxOp, ReduceMinOp, CumsumOp, PickOp>(op);
  if (alongRow && size_t(typeOf(op->getResult(0)).getRank()) <= leads)
    return {};
  if (!alongRow && !isElementwise(op) && !isa<ConstantOp>(op) && (leads > 0 || !isa<BroadcastOp, ReshapeOp>(op)))
    return {};
  SmallVector<Value> operands;
  for (Value operand : op->getOperands()) {
    operands.push_back(ofPiece(operand, leads));
    if (!operands.back())
      return {};
  }
  return piece.copy(op, operands, type);
}

Value Splitter::expand(BroadcastOp op, size_t leads, RankedTensorType type) {
  Value operand = op.getOperand();
  Dimensions from = dimensions(typeOf(operand)), to = dimensions(typeOf(op));
  const size_t added = to.size() - from.size(), own = leads > added ? leads - added : 0;
  Formula f(piece.builder, op.getLoc());
  // Repeated for every row, or of the row: nothing between.
  if (llvm::all_of(ArrayRef(from).take_front(own), [](const Dimension& dimension) { return dimension.isOne(); })) {
    Value shared = ofPiece(operand, 0);
    return shared ? f.broadcast(f.reshape(shared, ArrayRef(from).drop_front(own)), type) : Value();
  }
  if (ArrayRef(from).take_front(own) != ArrayRef(to).slice(added, own))
    return {};
  Value each = ofPiece(operand, own);
  return each ? f.broadcast(each, type) : Value();
}

Value Splitter::rearrange(ReshapeOp op, RankedTensorType type) {
  Value operand = op.getOperand();
  const size_t leads = rowDimensions(operand);
  Value each = leads > 0 ? ofPiece(operand, leads) : Value();
  if (!each)
    return {};
  Dimensions from = dimensions(typeOf(each)), to = dimensions(type);
  if (!(Count(ArrayRef(from).drop_front()) == Count(ArrayRef(to).drop_front())))
    return {};
  return Formula(piece.builder, op.getLoc()).reshape(each, to);
}

//===--- All rows ----------------------------------------------------------------------------------------------------//

Value Splitter::ofAll(Value value) {
  if (auto found = wholes.find(value); found != wholes.end())
    return found->second;
  Value made = makeOfAll(value);
  wholes[value] = made;
  return made;
}

Value Splitter::makeOfAll(Value value) {
  Operation* op = value.getDefiningOp();
  if (!walking.contains(value) && given.contains(value))
    return known(after, value, value.getType());
  if (const size_t leads = walking.contains(value) ? rowDimensions(value) : 0) {
    RankedTensorType type = pieceType(value, leads);
    const bool isNumber = Count(ArrayRef(dimensions(type)).drop_front()) == Count(Dimensions());
    if (Value made = isNumber ? ofPiece(value, leads) : Value()) {
      rowResults.push_back(made);
      const int index = rowResults.size() - 1;
      return after.argument({RowPart::Origin::Rows, index}, value.getType(),
                            nameLoc(value.getContext(), "rows" + Twine(index)));
    }
  }
  if (!op || op->getNumResults() != 1 || !isPure(op))
    return {};
  SmallVector<Value> operands;
  for (Value operand : op->getOperands()) {
    operands.push_back(ofAll(operand));
    if (!operands.back())
      return {};
  }
  return after.copy(op, operands, value.getType());
}

//===--- The parts ---------------------------------------------------------------------------------------------------//

// Only what a part reads, in new numbers.
std::optional<RowPart> Splitter::writeBefore(std::vector<RowPart*> readers) {
  llvm::SetVector<int> read;
  for (RowPart* reader : readers)
    for (RowPart::Origin& origin : reader->inputs)
      if (origin.from == RowPart::Origin::Before) {
        read.insert(origin.index);
        origin.index = llvm::find(read, origin.index) - read.begin();
      }
  if (read.empty())
    return RowPart();
  Writer before(function.getContext(), function.getName() + "_before");
  IRMapping mapping;
  for (BlockArgument input : function.getArguments())
    mapping.map(input,
                before.argument({RowPart::Origin::Input, int(input.getArgNumber())}, input.getType(), input.getLoc()));
  for (Operation& op : function.getBody().front().without_terminator())
    before.builder.clone(op, mapping);
  SmallVector<Value> results;
  for (int index : read)
    results.push_back(mapping.lookup(early[index]));
  return before.finish(results);
}

std::optional<RowParts> Splitter::run() {
  // One row that is known to be one cannot be told from a number.
  if (rows.empty() || (isStatic(rows) && Count(rows).number <= 1))
    return std::nullopt;
  SmallVector<Value> results, wide;
  for (Value result : function.getBody().front().getTerminator()->getOperands()) {
    const bool hasRows = dimensions(typeOf(result)) == dimensions(typeOf(walked));
    Value made = hasRows ? ofPiece(result, rows.size()) : ofAll(result);
    if (!made)
      return std::nullopt;
    (hasRows ? wide : results).push_back(made);
  }
  if (rowResults.empty())
    return std::nullopt;
  rowResults.append(wide);
  RowParts parts;
  std::optional<RowPart> part;
  for (auto [written, kept] : {std::pair(&parts.rows, &rowResults), std::pair(&parts.after, &results)}) {
    Writer& writer = written == &parts.rows ? piece : after;
    if (!(part = writer.finish(*kept)))
      return std::nullopt;
    *written = std::move(*part);
  }
  parts.kept = keptRows(parts.rows, walked.getArgNumber());
  if (!(part = writeBefore({&parts.rows, &parts.kept, &parts.after})))
    return std::nullopt;
  parts.before = std::move(*part);
  return parts;
}

std::optional<RowParts> splitRows(func::FuncOp function, unsigned walked) {
  auto type = dyn_cast<RankedTensorType>(function.getArgument(walked).getType());
  if (!type || type.getRank() < 2 || type.isDynamicDim(type.getRank() - 1))
    return std::nullopt;
  return Splitter(function, walked).run();
}

} // namespace cermet::ir
