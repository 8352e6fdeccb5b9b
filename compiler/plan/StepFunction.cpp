#include "compiler/plan/StepFunction.h"
#include "ir/transforms/Decompose.h"
#include "ir/dialect/Ops.h"
#include "ir/text/Text.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;

namespace cermet {
namespace {

constexpr size_t kMaxNames = 3; // in a kernel's name

// What the operation is part of, or is.
StringRef partName(Operation* op) {
  if (auto part = dyn_cast<FusedLoc>(op->getLoc()))
    if (auto name = dyn_cast_or_null<StringAttr>(part.getMetadata()))
      return name;
  return isa<ir::CastOp, ir::BroadcastOp, ir::ConstantOp, ir::IotaOp, ir::RandomOp, ir::ColumnsOp>(op)
             ? StringRef()
             : op->getName().stripDialect();
}

// Fused operations first; small ones only where there is none.
std::string nameOf(ArrayRef<Operation*> ops) {
  llvm::SmallSetVector<StringRef, 8> fused, small;
  for (Operation* op : ops)
    if (StringRef name = partName(op); !name.empty())
      (isa<FusedLoc>(op->getLoc()) ? fused : small).insert(name);
  const auto& names = fused.empty() ? small : fused;
  if (names.empty())
    return "copy";
  std::string result = llvm::join(names.getArrayRef().take_front(kMaxNames), "_");
  return names.size() > kMaxNames ? result + "_and_more" : result;
}

} // namespace

Location partOf(StringRef name, Location location) {
  MLIRContext* context = location.getContext();
  return FusedLoc::get(context, location, StringAttr::get(context, name));
}

StepBody arrangeStep(ArrayRef<Operation*> ops, ArrayRef<Value> results,
                     llvm::function_ref<bool(Operation*)> isRepeated) {
  // What is repeated stands right before its first reader, wherever the graph has it.
  llvm::DenseSet<Operation*> members(ops.begin(), ops.end());
  llvm::SmallSetVector<Operation*, 16> order;
  llvm::SmallSetVector<Value, 8> operands;
  auto stored = [&](Operation* op) { // it reads memory, whatever could be repeated
    for (Value operand : op->getOperands())
      if (!members.contains(operand.getDefiningOp()))
        operands.insert(operand);
  };
  auto reach = [&](auto& self, Value value) -> void {
    Operation* source = value.getDefiningOp();
    if ((source && members.contains(source)) || operands.contains(value))
      return;
    if (!source || !isRepeated(source)) {
      operands.insert(value);
    } else if (!order.contains(source)) {
      if (isa<ir::ColumnsOp>(source))
        stored(source);
      for (Value operand : source->getOperands())
        self(self, operand);
      order.insert(source);
    }
  };
  for (Operation* op : ops)
    if (isa<ir::GatherOp, ir::EmbeddingBagOp, ir::ColumnsOp>(op))
      stored(op);
  for (Operation* op : ops) {
    for (Value operand : op->getOperands())
      reach(reach, operand);
    order.insert(op);
  }
  for (Value result : results)
    reach(reach, result);
  // What was repeated before it was found to be read where it is stored is computed.
  operands.remove_if([&](Value value) { return order.contains(value.getDefiningOp()); });
  return {order.takeVector(), operands.takeVector(), SmallVector<Value>(results)};
}

StepFunction stepFunction(ArrayRef<Operation*> ops, const StepBody& body) {
  StepFunction step;
  step.operands = body.operands;
  step.results = body.results;
  MLIRContext* context = body.results.front().getContext();
  OpBuilder builder(context);
  step.module = ir::createGraph(*context);
  SmallVector<Type> types(ValueRange(step.operands).getTypes()), resultTypes(ValueRange(step.results).getTypes());
  builder.setInsertionPointToEnd(step.module->getBody());
  auto function =
      func::FuncOp::create(builder, builder.getUnknownLoc(), nameOf(ops), builder.getFunctionType(types, resultTypes));
  Block* block = function.addEntryBlock();
  for (BlockArgument argument : block->getArguments())
    argument.setLoc(NameLoc::get(builder.getStringAttr("operand" + Twine(argument.getArgNumber()))));
  builder.setInsertionPointToEnd(block);
  IRMapping mapping;
  mapping.map(step.operands, function.getArguments());
  for (Operation* each : body.ops)
    builder.clone(*each, mapping)->setLoc(builder.getUnknownLoc());
  SmallVector<Value> returned;
  for (Value result : step.results)
    returned.push_back(mapping.lookup(result));
  func::ReturnOp::create(builder, builder.getUnknownLoc(), returned);
  ir::simplify(function);
  return step;
}

} // namespace cermet
