#include "ir/transforms/Parts.h"
#include "ir/dialect/Ops.h"
#include <optional>

using namespace mlir;

namespace cermet::ir {
namespace {

// One index of a dimension, which the part does not have.
struct Part {
  size_t dim;
  int64_t at;
};

// The part of `slice`'s operand that its only reader, a reshape, leaves of it.
std::optional<Part> partOf(SliceOp slice) {
  auto reshape = slice->hasOneUse() ? dyn_cast<ReshapeOp>(*slice->user_begin()) : ReshapeOp();
  if (!reshape)
    return std::nullopt;
  const Dimensions from = shapeOf(slice.getOperand()), to = shapeOf(slice.getResult());
  std::optional<Part> part;
  for (size_t dim = 0; dim < from.size(); ++dim) {
    if (from[dim] == to[dim])
      continue;
    if (part || !to[dim].isOne() || from[dim].isSymbol() || dim + 1 == from.size())
      return std::nullopt;
    part = {dim, slice.getStarts()[dim]};
  }
  if (!part)
    return std::nullopt;
  Dimensions rest = to;
  rest.erase(rest.begin() + part->dim);
  return ArrayRef(shapeOf(reshape.getResult())) == ArrayRef(rest) ? part : std::nullopt;
}

bool isComputed(Operation* op) {
  return op && (isElementwise(op) || isa<BroadcastOp, GatherOp>(op));
}

class Parting {
public:
  explicit Parting(func::FuncOp function) : function(function), builder(function.getContext()) {}

  void run() {
    Block& block = function.getBody().front();
    for (Operation& op : llvm::make_early_inc_range(llvm::reverse(block))) // readers come first
      if (isComputed(&op))
        partWhole(&op);
    for (Operation& op : llvm::make_early_inc_range(llvm::reverse(block)))
      if (isOpTriviallyDead(&op))
        op.erase();
  }

private:
  static constexpr int kMaxSteps = 32;

  // Whether what the operation computes with can be had in parts: nothing but it reads that, or it is cheap or stored.
  static bool hasParts(Operation* op, int steps = kMaxSteps) {
    for (auto [index, operand] : llvm::enumerate(op->getOperands())) {
      Operation* source = operand.getDefiningOp();
      if (!isComputed(source) || (isa<GatherOp>(op) && index == 0))
        continue;
      const bool isCheap = isa<BroadcastOp>(source);
      if (steps == 0 || (!isCheap && !llvm::all_of(source->getUsers(), [&](Operation* user) { return user == op; })) ||
          !hasParts(source, steps - 1))
        return false;
    }
    return true;
  }

  // Computes the operation for each of its parts, if those are all that is read.
  void partWhole(Operation* op) {
    SmallVector<std::pair<SliceOp, Part>> slices;
    llvm::DenseSet<int64_t> taken;
    for (Operation* user : op->getUsers()) {
      auto slice = dyn_cast<SliceOp>(user);
      const std::optional<Part> part = slice ? partOf(slice) : std::nullopt;
      if (!part || (!slices.empty() && slices.front().second.dim != part->dim) || !taken.insert(part->at).second)
        return;
      slices.emplace_back(slice, *part);
    }
    if (slices.empty() || !hasParts(op))
      return;
    for (auto [slice, part] : slices) {
      Operation* reshape = *slice->user_begin();
      builder.setInsertionPoint(reshape);
      reshape->getResult(0).replaceAllUsesWith(computed(op, part));
      reshape->erase();
      slice->erase();
    }
    op->erase();
  }

  // The operation on parts of its operands.
  Value computed(Operation* op, Part part) {
    const RankedTensorType type = typeOf(op->getResult(0));
    Dimensions shape = dimensions(type);
    const size_t rank = shape.size();
    shape.erase(shape.begin() + part.dim);
    SmallVector<Value> operands;
    for (auto [index, operand] : llvm::enumerate(op->getOperands())) {
      const size_t own = shapeOf(operand).size(), missing = isa<BroadcastOp>(op) ? rank - own : 0;
      if (isa<GatherOp>(op) && index == 0)
        operands.push_back(operand);
      else if (part.dim < missing) // it has not the dimension
        operands.push_back(operand);
      else
        operands.push_back(partFrom(operand, {part.dim - missing, part.at}));
    }
    Operation* moved = builder.clone(*op);
    moved->setOperands(operands);
    moved->getResult(0).setType(tensorType(shape, type.getElementType()));
    return moved->getResult(0);
  }

  // The part of a value; of one that a broadcast repeats, the only one that there is.
  Value partFrom(Value value, Part part) {
    if (auto broadcast = value.getDefiningOp<BroadcastOp>())
      return computed(broadcast, part);
    Dimensions shape = shapeOf(value);
    Type element = typeOf(value).getElementType();
    Dimensions rest = shape;
    rest.erase(rest.begin() + part.dim);
    const RankedTensorType type = tensorType(rest, element);
    if (auto constant = value.getDefiningOp<ConstantOp>())
      return ConstantOp::create(builder, constant.getLoc(), type, constant.getValueAttr());
    if (!shape[part.dim].isOne()) {
      SmallVector<int64_t> starts(shape.size(), 0);
      starts[part.dim] = part.at;
      shape[part.dim] = Dimension{};
      value = SliceOp::create(builder, value.getLoc(), tensorType(shape, element), value, starts);
    }
    return ReshapeOp::create(builder, value.getLoc(), type, value);
  }

  func::FuncOp function;
  OpBuilder builder;
};

} // namespace

void computePartsApart(func::FuncOp function) {
  Parting(function).run();
}

} // namespace cermet::ir
