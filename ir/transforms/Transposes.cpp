#include "ir/transforms/Transposes.h"
#include "ir/dialect/Formula.h"
#include "ir/dialect/Ops.h"
#include "ir/dialect/Shape.h"

using namespace mlir;

namespace cermet::ir {
namespace {

constexpr int kMaxPassed = 256; // operations that one transpose may be moved past

bool isPassed(Operation* op) {
  return op && (isElementwise(op) || isReduction(op) || isa<CumsumOp, ConstantOp, BroadcastOp, SliceOp, ConcatOp>(op));
}

// Whether what reads it may compute with it: else it is a view of what is stored, in an order of rows that others have.
bool isAmid(TransposeOp transpose) {
  return llvm::any_of(transpose->getUsers(),
                      [](Operation* user) { return !isa<OpaqueOp, MatmulOp, func::ReturnOp>(user); });
}

class Hoisting {
public:
  Hoisting(OpBuilder& builder, TransposeOp transpose)
      : builder(builder), f(builder, transpose.getLoc()), permutation(transpose.getPermutation()) {}

  // `value`, transposed; null where that takes too many steps.
  Value of(Value value) {
    if (Value known = made.lookup(value))
      return known;
    if (++steps > kMaxPassed)
      return {};
    return made[value] = compute(value);
  }

  // What is returned of the values that were moved past is not computed a second time: it is transposed back.
  void giveBack(Operation* terminator) {
    for (OpOperand& result : terminator->getOpOperands()) {
      Value moved = made.lookup(result.get());
      Operation* op = moved ? moved.getDefiningOp() : nullptr;
      if (op && isPassed(op) && !isa<ConstantOp, BroadcastOp>(op))
        result.set(f.transpose(moved, inverse(permutation)));
    }
  }

private:
  RankedTensorType moved(Value value) const {
    RankedTensorType type = typeOf(value);
    return tensorType(permuted(dimensions(type), permutation), type.getElementType());
  }

  Value compute(Value value) {
    Operation* op = value.getDefiningOp();
    if (isa_and_nonnull<RandomOp>(op)) // of other rows it has other numbers
      return {};
    if (!isPassed(op))
      return f.transpose(value, permutation);
    if (auto broadcast = dyn_cast<BroadcastOp>(op)) {
      // All its dimensions, so that they can change places.
      Value operand = broadcast.getOperand();
      Dimensions shape = dimensions(typeOf(operand));
      const bool isColumn = llvm::all_of(ArrayRef(shape).drop_back(shape.empty() ? 0 : 1),
                                         [](const Dimension& dimension) { return dimension.isOne(); });
      if (!isColumn) {
        while (shape.size() < permutation.size())
          shape.insert(shape.begin(), Dimension{});
        operand = of(f.reshape(operand, shape));
      }
      return operand ? f.broadcast(operand, moved(value)) : Value();
    }
    SmallVector<Value> operands;
    for (Value operand : op->getOperands()) {
      Value made = of(operand);
      if (!made)
        return {};
      operands.push_back(made);
    }
    Operation* clone = builder.clone(*op);
    clone->setOperands(operands);
    clone->getResult(0).setType(moved(value));
    if (auto slice = dyn_cast<SliceOp>(clone)) {
      SmallVector<int64_t> starts;
      for (int64_t from : permutation)
        starts.push_back(slice.getStarts()[from]);
      slice.setStarts(starts);
    }
    if (auto concat = dyn_cast<ConcatOp>(clone))
      concat.setDim(llvm::find(permutation, int64_t(concat.getDim())) - permutation.begin());
    return clone->getResult(0);
  }

  OpBuilder& builder;
  Formula f;
  SmallVector<int64_t> permutation;
  llvm::DenseMap<Value, Value> made;
  int steps = 0;
};

} // namespace

void hoistTransposes(func::FuncOp function) {
  Block& block = function.getBody().front();
  for (TransposeOp transpose : llvm::to_vector(block.getOps<TransposeOp>())) {
    Operation* op = transpose.getOperand().getDefiningOp();
    ArrayRef<int64_t> permutation = transpose.getPermutation();
    if (!isPassed(op) || !op->hasOneUse() || !isAmid(transpose) ||
        permutation.back() + 1 != int64_t(permutation.size()))
      continue;
    OpBuilder builder(transpose);
    Hoisting hoisting(builder, transpose);
    if (Value made = hoisting.of(transpose.getOperand())) {
      transpose.getResult().replaceAllUsesWith(made);
      hoisting.giveBack(block.getTerminator());
    }
  }
  for (Operation& op : llvm::make_early_inc_range(llvm::reverse(block)))
    if (isOpTriviallyDead(&op))
      op.erase();
}

} // namespace cermet::ir
