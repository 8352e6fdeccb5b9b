#include "ir/transforms/Reshapes.h"
#include "ir/dialect/Body.h"
#include "ir/dialect/Ops.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace cermet::ir {
namespace {

bool sameShape(RankedTensorType a, RankedTensorType b) {
  return ArrayRef(dimensions(a)) == ArrayRef(dimensions(b));
}

// A kernel has it in registers, so a reshape behind it would end the kernel.
bool isComputed(Value value) {
  Operation* op = value.getDefiningOp();
  return op && (isElementwise(op) || isReduction(op) || isa<BroadcastOp, GatherOp, PickOp, CumsumOp>(op));
}

// Contiguous in memory, where a reshape is a view.
bool isStored(Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    auto function = dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp());
    return function && !function.getArgAttr(argument.getArgNumber(), "cermet.strides");
  }
  Operation* op = value.getDefiningOp();
  if (auto dense = op && isa<OpaqueOp>(op) ? op->getAttrOfType<DenseI64ArrayAttr>(kDense) : DenseI64ArrayAttr())
    return llvm::is_contained(dense.asArrayRef(), int64_t(cast<OpResult>(value).getResultNumber()));
  return isa_and_nonnull<MatmulOp>(op);
}

bool isReturn(Operation* op) {
  return isa<func::ReturnOp>(op);
}

bool keepsColumns(RankedTensorType from, RankedTensorType to) {
  return from.getRank() > 0 && to.getRank() > 0 && !from.isDynamicDim(from.getRank() - 1) &&
         from.getShape().back() == to.getShape().back();
}

// Whether the operand of a broadcast is one number, or one for each column.
bool isColumn(Value value) {
  auto all = dimensions(typeOf(value));
  return all.empty() ||
         llvm::all_of(ArrayRef(all).drop_back(), [](const Dimension& dimension) { return dimension.isOne(); });
}
bool isNumber(Value value) {
  return llvm::all_of(dimensions(typeOf(value)), [](const Dimension& dimension) { return dimension.isOne(); });
}

class Sinking {
public:
  explicit Sinking(func::FuncOp function) : function(function), builder(function.getContext()) {}

  void run(bool liftFirst) {
    Block& block = function.getBody().front();
    for (ReshapeOp reshape : llvm::to_vector(block.getOps<ReshapeOp>())) {
      viewStored(reshape);
      if (liftFirst)
        liftOverElements(reshape);
    }
    sink(block);
  }

  // Reshapes between computations.
  size_t left() {
    return llvm::count_if(function.getBody().front().getOps<ReshapeOp>(), [](ReshapeOp reshape) {
      return isComputed(reshape.getOperand()) && !llvm::all_of(reshape->getUsers(), isReturn);
    });
  }

private:
  void sink(Block& block) {
    for (Operation& op : llvm::make_early_inc_range(block.without_terminator())) {
      builder.setInsertionPoint(&op);
      if (isElementwise(&op))
        elementwise(&op);
      else if (isReduction(&op) || isa<CumsumOp>(op))
        alongRow(&op);
      else if (auto pick = dyn_cast<PickOp>(op))
        picked(pick);
      else if (isa<BroadcastOp>(op))
        broadcast(&op);
      else if (isa<SumRowsOp>(op))
        sumRows(&op);
      else if (isa<ReshapeOp>(op))
        merge(&op);
    }
    for (Operation& op : llvm::make_early_inc_range(llvm::reverse(block)))
      if (isOpTriviallyDead(&op))
        op.erase();
  }

  // What a computed value has been reshaped from, or null.
  static Value sourceOf(Value value) {
    auto reshape = value.getDefiningOp<ReshapeOp>();
    return reshape && isComputed(reshape.getOperand()) ? reshape.getOperand() : Value();
  }

  // reshape(cast(a)) of what is stored becomes cast(reshape(a)): a view.
  void viewStored(ReshapeOp reshape) {
    SmallVector<CastOp> casts;
    Value source = reshape.getOperand();
    for (auto cast = source.getDefiningOp<CastOp>(); cast && cast->hasOneUse(); cast = source.getDefiningOp<CastOp>()) {
      casts.push_back(cast);
      source = cast.getOperand();
    }
    if (casts.empty() || !isStored(source))
      return;
    builder.setInsertionPoint(reshape);
    RankedTensorType shape = typeOf(reshape);
    Value value = reshaped(source, withElement(shape, typeOf(source).getElementType()), reshape.getLoc());
    for (CastOp cast : llvm::reverse(casts)) {
      auto moved = llvm::cast<CastOp>(builder.clone(*cast));
      moved->setOperand(0, value);
      moved.getResult().setType(withElement(shape, typeOf(cast).getElementType()));
      value = moved;
    }
    reshape.getResult().replaceAllUsesWith(value);
  }

  // reshape(f(a)), where f works element by element on what is stored and on numbers, becomes f of views. What else
  // reads a step of f reads it reshaped back, and such a reshape may sink, where this one had met what lies along its
  // rows.
  void liftOverElements(ReshapeOp reshape) {
    llvm::SetVector<Operation*> steps;
    if (llvm::all_of(reshape->getUsers(), isReturn) || !isComputed(reshape.getOperand()) ||
        !endAlike(typeOf(reshape.getOperand()).getShape(), typeOf(reshape).getShape()) ||
        !worksOnStored(reshape.getOperand(), steps))
      return;
    llvm::SmallVector<Operation*> order = steps.takeVector();
    llvm::sort(order, [](Operation* a, Operation* b) { return a->isBeforeInBlock(b); });
    for (Operation* step : order) {
      builder.setInsertionPoint(step);
      SmallVector<Value> operands;
      for (Value operand : step->getOperands())
        operands.push_back(inShape(operand, typeOf(reshape)));
      replace(step, operands, typeOf(reshape));
    }
  }

  static constexpr size_t kMaxSteps = 32;
  static constexpr int kMaxRandomSteps = 4;
  static constexpr int kMaxStoredSteps = 4;

  bool worksOnStored(Value value, llvm::SetVector<Operation*>& steps) {
    Operation* op = value.getDefiningOp();
    if (isStored(value) || isa_and_nonnull<ConstantOp>(op))
      return true;
    if (auto broadcast = dyn_cast_or_null<BroadcastOp>(op))
      return isNumber(broadcast.getOperand());
    if (steps.contains(op)) // else nothing more is asked
      return true;
    if (!op || !isElementwise(op) || steps.size() == kMaxSteps)
      return false;
    steps.insert(op);
    return llvm::all_of(op->getOperands(), [&](Value operand) { return worksOnStored(operand, steps); });
  }

  void elementwise(Operation* op) {
    RankedTensorType shape;
    for (Value operand : op->getOperands())
      if (Value source = sourceOf(operand)) {
        shape = typeOf(source);
        break;
      }
    if (!shape || !llvm::all_of(op->getOperands(), [&](Value operand) { return fits(operand, shape); }))
      return;
    SmallVector<Value> operands;
    for (Value operand : op->getOperands())
      operands.push_back(inShape(operand, shape));
    replace(op, operands, shape);
  }

  // Whether a value is made of random numbers and constants alone; those of rows that change have others.
  static bool isRandom(Value value, bool keepsRows, int steps = kMaxRandomSteps) {
    Operation* op = value.getDefiningOp();
    if (!op || isa<RandomOp>(op))
      return op && keepsRows;
    return isElementwise(op) && steps > 0 && llvm::all_of(op->getOperands(), [&](Value operand) {
             return operand.getDefiningOp<ConstantOp>() || isRandom(operand, keepsRows, steps - 1);
           });
  }

  // Whether a value is computed element by element of what is stored, where nothing else reads it; a cast is repeated.
  static bool isOfStored(Value value, int steps = kMaxStoredSteps) {
    Operation* op = value.getDefiningOp();
    if (isStored(value) || isa_and_nonnull<ConstantOp>(op))
      return true;
    return op && isElementwise(op) && steps > 0 && (isa<CastOp>(op) || op->hasOneUse()) &&
           llvm::all_of(op->getOperands(), [&](Value operand) { return isOfStored(operand, steps - 1); });
  }

  bool fits(Value operand, RankedTensorType shape) {
    if (isOfStored(operand))
      return true;
    if (isRandom(operand, keepsColumns(typeOf(operand), shape)))
      return true;
    if (auto reshape = operand.getDefiningOp<ReshapeOp>())
      return sameShape(typeOf(reshape.getOperand()), shape) || isStored(reshape.getOperand());
    auto broadcast = operand.getDefiningOp<BroadcastOp>();
    return broadcast && (isNumber(broadcast.getOperand()) ||
                         (isColumn(broadcast.getOperand()) && keepsColumns(typeOf(operand), shape)));
  }

  // An operand that fits, as a value of that shape.
  Value inShape(Value operand, RankedTensorType shape) {
    RankedTensorType type = withElement(shape, typeOf(operand).getElementType());
    if (auto constant = operand.getDefiningOp<ConstantOp>())
      return ConstantOp::create(builder, constant.getLoc(), type, constant.getValueAttr());
    if (auto random = operand.getDefiningOp<RandomOp>())
      return RandomOp::create(builder, random.getLoc(), type, random.getSeed());
    if (Operation* op = operand.getDefiningOp(); op && isElementwise(op)) {
      SmallVector<Value> operands;
      for (Value each : op->getOperands())
        operands.push_back(inShape(each, shape));
      Operation* moved = builder.clone(*op);
      moved->setOperands(operands);
      moved->getResult(0).setType(type);
      return moved->getResult(0);
    }
    if (auto broadcast = operand.getDefiningOp<BroadcastOp>()) {
      Value column = broadcast.getOperand();
      Dimensions last;
      if (!isNumber(column))
        last.push_back(dimensions(typeOf(column)).back());
      column = reshaped(column, tensorType(last, type.getElementType()), broadcast.getLoc());
      return BroadcastOp::create(builder, broadcast.getLoc(), type, column);
    }
    auto reshape = operand.getDefiningOp<ReshapeOp>();
    return reshaped(reshape ? reshape.getOperand() : operand, type, operand.getLoc());
  }

  Value reshaped(Value value, RankedTensorType type, Location location) {
    return value.getType() == type ? value : ReshapeOp::create(builder, location, type, value);
  }

  void alongRow(Operation* op) {
    Value source = sourceOf(op->getOperand(0));
    if (source && keepsColumns(typeOf(source), typeOf(op->getOperand(0))))
      replace(op, source, isReduction(op) ? rowType(typeOf(source)) : typeOf(source));
  }

  void picked(PickOp pick) {
    Value source = sourceOf(pick.getOperand());
    if (!source || !keepsColumns(typeOf(source), typeOf(pick.getOperand())))
      return;
    const RankedTensorType rows = rowType(typeOf(source));
    if (fits(pick.getIndex(), rows))
      replace(pick, {source, inShape(pick.getIndex(), rows)}, rows);
  }

  // Of one number a row.
  void broadcast(Operation* op) {
    Value operand = op->getOperand(0), source = sourceOf(operand);
    RankedTensorType to = typeOf(op->getResult(0));
    if (!source || operand.getType() != rowType(to) || !keepsColumns(typeOf(source), typeOf(operand)))
      return;
    Dimensions shape = dimensions(typeOf(source));
    shape.back() = dimensions(to).back();
    replace(op, source, tensorType(shape, to.getElementType()));
  }

  void sumRows(Operation* op) {
    Value source = sourceOf(op->getOperand(0));
    if (source && keepsColumns(typeOf(source), typeOf(op->getOperand(0))))
      op->setOperand(0, source);
  }

  // Two reshapes as one, or as none.
  void merge(Operation* op) {
    if (auto inner = op->getOperand(0).getDefiningOp<ReshapeOp>())
      op->setOperand(0, inner.getOperand());
    if (op->getOperand(0).getType() == op->getResult(0).getType())
      op->getResult(0).replaceAllUsesWith(op->getOperand(0));
  }

  // `op` on other operands, its result of another shape until the reshape behind it.
  void replace(Operation* op, ValueRange operands, RankedTensorType shape) {
    Operation* moved = builder.clone(*op);
    moved->setOperands(operands);
    RankedTensorType type = typeOf(op->getResult(0));
    moved->getResult(0).setType(withElement(shape, type.getElementType()));
    op->getResult(0).replaceAllUsesWith(reshaped(moved->getResult(0), type, op->getLoc()));
  }

  func::FuncOp function;
  OpBuilder builder;
};

} // namespace

bool endAlike(ArrayRef<int64_t> a, ArrayRef<int64_t> b) {
  if (a.empty() || b.empty())
    return false;
  if (a.back() > b.back())
    std::swap(a, b);
  if (ShapedType::isDynamic(a.back()) || ShapedType::isDynamic(b.back()))
    return false;
  int64_t rest = b.back(); // of the one, behind those of the other so far
  for (int64_t size : llvm::reverse(a)) {
    if (rest == 1 || ShapedType::isDynamic(size))
      break;
    if (size % rest == 0)
      return true;
    if (rest % size != 0)
      return false;
    rest /= size;
  }
  return rest == 1;
}

void sinkReshapes(func::FuncOp function) {
  // How many reshapes stay between computations, on a copy.
  auto left = [&](bool liftFirst) {
    OwningOpRef<func::FuncOp> trial = function.clone();
    Sinking sinking(*trial);
    sinking.run(liftFirst);
    return sinking.left();
  };
  const size_t sunk = left(/*liftFirst=*/false);
  Sinking(function).run(sunk > 0 && left(/*liftFirst=*/true) < sunk);
}

} // namespace cermet::ir
