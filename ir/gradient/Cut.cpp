#include "ir/gradient/Cut.h"
#include "ir/dialect/Ops.h"
#include "llvm/ADT/SetVector.h"
#include <tuple>

using namespace mlir;

namespace cermet::ir {

namespace {

class Cutter {
public:
  Cutter(func::FuncOp joint, int inputs, int outputs);
  GradientCut best();

private:
  mutable func::FuncOp joint; // MLIR's accessors are not const
  SmallVector<Value> outputs, gradients;
  llvm::DenseMap<Value, unsigned> outputIndex; // the first that the value is
  llvm::DenseSet<Value> backward;              // depends on a cotangent
  llvm::DenseSet<Value> rowScalars;            // one number a row, behind a reduction

  // The cut that reads the outputs of `chosen`, and saves those of `rows`, where it meets them.
  GradientCut walk(unsigned chosen, const llvm::DenseSet<Value>& rows) const;
  bool isChosen(unsigned chosen, Value value) const {
    auto output = outputIndex.find(value);
    return output != outputIndex.end() && output->second < 32 && (chosen >> output->second & 1);
  }
  GradientCut withFewestSaved(unsigned chosen) const;
  // Bytes, then tensors, then operations; dimensions that are not known count as a typical number of tokens.
  std::tuple<double, size_t, size_t> cost(const GradientCut& cut) const;
};

} // namespace

// What is picked of a constant is known from the index alone.
static bool reducesRows(Operation* op) {
  if (auto pick = dyn_cast<PickOp>(op))
    return !pick.getOperand().getDefiningOp<ConstantOp>();
  return isReduction(op);
}

static bool holdsOneNumberPerRow(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && tensor.getRank() > 0 && tensor.getShape().back() == 1 && isa<FloatType>(tensor.getElementType());
}

Cutter::Cutter(func::FuncOp joint, int inputs, int outputCount) : joint(joint) {
  Block& block = joint.getBody().front();
  ValueRange results = block.getTerminator()->getOperands();
  outputs.append(results.begin(), results.begin() + outputCount);
  gradients.append(results.begin() + outputCount, results.end());
  for (auto [index, output] : llvm::enumerate(outputs))
    outputIndex.try_emplace(output, index);
  for (BlockArgument argument : joint.getArguments().drop_front(inputs))
    backward.insert(argument);
  llvm::DenseSet<Value> reduced;
  for (Operation& op : block.without_terminator()) {
    auto reads = [&](const llvm::DenseSet<Value>& values) {
      return llvm::any_of(op.getOperands(), [&](Value operand) { return values.contains(operand); });
    };
    bool isBackward = reads(backward), isReduced = reducesRows(&op) || reads(reduced);
    for (Value result : op.getResults()) {
      if (isBackward)
        backward.insert(result);
      if (isReduced)
        reduced.insert(result);
      if (isReduced && !isBackward && holdsOneNumberPerRow(result.getType()))
        rowScalars.insert(result);
    }
  }
}

GradientCut Cutter::walk(unsigned chosen, const llvm::DenseSet<Value>& rows) const {
  GradientCut cut;
  llvm::DenseSet<Value> seen, saved;
  SmallVector<Value> worklist(gradients);
  while (!worklist.empty()) {
    Value value = worklist.pop_back_val();
    if (!seen.insert(value).second)
      continue;
    bool isForward = !backward.contains(value);
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      if (isForward)
        cut.inputs.push_back(argument.getArgNumber());
      else
        cut.needed.insert(value);
      continue;
    }
    if (isForward && isChosen(chosen, value)) {
      cut.outputs.push_back(outputIndex.lookup(value));
      continue;
    }
    if (rows.contains(value)) {
      saved.insert(value);
      continue;
    }
    cut.needed.insert(value);
    worklist.append(value.getDefiningOp()->operand_begin(), value.getDefiningOp()->operand_end());
  }
  llvm::sort(cut.inputs);
  llvm::sort(cut.outputs);
  for (Operation& op : joint.getBody().front())
    for (Value result : op.getResults())
      if (saved.contains(result))
        cut.saved.push_back(result);
  return cut;
}

// A saved value that the others give, without a further tensor or reduction, is not saved.
GradientCut Cutter::withFewestSaved(unsigned chosen) const {
  GradientCut cut = walk(chosen, rowScalars);
  // Whether the backward's part would reduce again what the forward has reduced.
  auto repeats = [&](Value value) { return rowScalars.contains(value) && reducesRows(value.getDefiningOp()); };
  if (llvm::any_of(cut.needed, repeats))
    return cut;
  llvm::DenseSet<Value> saved(cut.saved.begin(), cut.saved.end());
  for (Value candidate : llvm::reverse(cut.saved)) {
    // What it takes to compute the candidate: all that the cut has not is needed, too.
    llvm::SmallSetVector<Value, 8> needed;
    needed.insert(candidate);
    bool isGiven = true;
    for (size_t i = 0; i < needed.size() && isGiven; ++i) {
      isGiven = !repeats(needed[i]);
      for (Value operand : needed[i].getDefiningOp()->getOperands()) {
        auto argument = dyn_cast<BlockArgument>(operand);
        if (argument)
          isGiven &= llvm::is_contained(cut.inputs, int(argument.getArgNumber()));
        else if (isChosen(chosen, operand))
          isGiven &= llvm::is_contained(cut.outputs, int(outputIndex.lookup(operand)));
        else if ((operand == candidate || !saved.contains(operand)) && !cut.needed.contains(operand))
          needed.insert(operand);
      }
    }
    if (!isGiven)
      continue;
    saved.erase(candidate);
    cut.needed.insert(needed.begin(), needed.end());
  }
  llvm::erase_if(cut.saved, [&](Value value) { return !saved.contains(value); });
  return cut;
}

std::tuple<double, size_t, size_t> Cutter::cost(const GradientCut& cut) const {
  double bytes = 0;
  auto count = [&](Value value, double times) {
    auto tensor = dyn_cast<RankedTensorType>(value.getType());
    if (!tensor || !tensor.getElementType().isIntOrFloat())
      return;
    double size = times * tensor.getElementTypeBitWidth() / 8;
    for (int64_t dimension : tensor.getShape())
      size *= ShapedType::isDynamic(dimension) ? 1024 : dimension;
    bytes += size;
  };
  for (int index : cut.inputs)
    count(joint.getArgument(index), 1);
  for (int index : cut.outputs)
    count(outputs[index], 1);
  for (Value value : cut.saved)
    count(value, 2); // also written
  return {bytes, cut.inputs.size() + cut.outputs.size() + cut.saved.size(), cut.needed.size()};
}

GradientCut Cutter::best() {
  // Every choice among the first outputs: a region has few, and a graph with many is not cut by this alone. One that
  // the gradient does not come by even where nothing is saved changes nothing.
  unsigned choices = 1u << std::min<size_t>(outputs.size(), 6), met = 0;
  const GradientCut whole = walk(0, {});
  for (const auto& [output, index] : outputIndex)
    if (index < 32 && whole.needed.contains(output))
      met |= 1u << index;
  GradientCut cut = withFewestSaved(0);
  for (unsigned chosen = 1; chosen < choices; ++chosen) {
    if (chosen & ~met)
      continue;
    GradientCut other = withFewestSaved(chosen);
    if (cost(other) < cost(cut))
      cut = std::move(other);
  }
  return cut;
}

static Dimensions tensorShapeOf(Value value) {
  auto tensor = dyn_cast<RankedTensorType>(value.getType());
  return tensor ? dimensions(tensor) : Dimensions();
}

// A symbol's size comes with an argument that has it. Where the backward has none of those that it reads, it is given
// the first input that has.
static void bindSymbols(func::FuncOp joint, int inputs, GradientCut& cut) {
  Block& block = joint.getBody().front();
  llvm::DenseSet<StringAttr> known;
  auto add = [&](Value value) {
    for (const Dimension& dimension : tensorShapeOf(value))
      known.insert(dimension.symbol);
  };
  for (int index : cut.inputs)
    add(joint.getArgument(index));
  for (int index : cut.outputs)
    add(block.getTerminator()->getOperand(index));
  llvm::for_each(cut.saved, add);
  for (BlockArgument cotangent : joint.getArguments().drop_front(inputs))
    if (cut.needed.contains(cotangent))
      add(cotangent);
  auto bind = [&](StringAttr symbol) {
    for (BlockArgument input : joint.getArguments().take_front(inputs))
      if (llvm::any_of(tensorShapeOf(input), [&](const Dimension& dimension) { return dimension.symbol == symbol; })) {
        cut.inputs.push_back(input.getArgNumber());
        return add(input);
      }
  };
  for (Operation& op : block)
    for (Value result : op.getResults())
      if (cut.needed.contains(result))
        for (const Dimension& dimension : tensorShapeOf(result))
          if (dimension.symbol && !known.contains(dimension.symbol))
            bind(dimension.symbol);
  llvm::sort(cut.inputs);
}

FailureOr<GradientCut> cutGradient(func::FuncOp joint, int inputs, int outputs) {
  GradientCut cut = Cutter(joint, inputs, outputs).best();
  bindSymbols(joint, inputs, cut);
  for (Operation& op : joint.getBody().front()) {
    auto opaque = dyn_cast<OpaqueOp>(op);
    if (opaque && opaque.getEffect() != "pure" &&
        llvm::any_of(op.getResults(), [&](Value result) { return cut.needed.contains(result); }))
      return op.emitOpError() << "\"" << opaque.getTarget() << "\" is read by the gradient and has an effect, which a "
                              << "backward would repeat: expected its result to be an output";
  }
  return cut;
}

} // namespace cermet::ir
