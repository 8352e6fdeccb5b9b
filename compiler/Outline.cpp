#include "compiler/Outline.h"
#include "ir/Decompose.h"
#include "ir/Ops.h"
#include "ir/Text.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace cermet {
namespace {

// A function whose arguments have `operands`' types, with nothing in it yet.
func::FuncOp beginFunction(OutlinedStep& step, StringRef name, TypeRange results, OpBuilder& builder) {
  MLIRContext* context = builder.getContext();
  step.module = ir::createGraph(*context);
  SmallVector<Type> types(ValueRange(step.operands).getTypes());
  builder.setInsertionPointToEnd(step.module->getBody());
  auto function =
      func::FuncOp::create(builder, UnknownLoc::get(context), name, builder.getFunctionType(types, results));
  Block* body = function.addEntryBlock();
  for (BlockArgument argument : body->getArguments())
    argument.setLoc(NameLoc::get(builder.getStringAttr("operand" + Twine(argument.getArgNumber()))));
  builder.setInsertionPointToEnd(body);
  return function;
}

} // namespace

OutlinedStep outlineStep(Operation* op, llvm::function_ref<bool(Operation*)> isRepeated) {
  OutlinedStep step;
  llvm::SmallSetVector<Operation*, 8> repeated;
  llvm::SmallSetVector<Value, 8> operands;
  SmallVector<Operation*> pending{op};
  while (!pending.empty()) {
    for (Value value : pending.pop_back_val()->getOperands()) {
      Operation* source = value.getDefiningOp();
      if (!source || !isRepeated(source))
        operands.insert(value);
      else if (repeated.insert(source))
        pending.push_back(source);
    }
  }
  step.operands.assign(operands.begin(), operands.end());
  SmallVector<Operation*> order(repeated.begin(), repeated.end());
  llvm::sort(order, [](Operation* a, Operation* b) { return a->isBeforeInBlock(b); });
  order.push_back(op);

  SmallVector<Type> types;
  for (Value result : op->getResults())
    if (!result.use_empty()) {
      step.results.push_back(result);
      types.push_back(result.getType());
    }
  OpBuilder builder(op->getContext());
  func::FuncOp function = beginFunction(step, op->getName().stripDialect(), types, builder);
  IRMapping mapping;
  mapping.map(step.operands, function.getArguments());
  for (Operation* each : order)
    builder.clone(*each, mapping)->setLoc(builder.getUnknownLoc());
  SmallVector<Value> results;
  for (Value result : step.results)
    results.push_back(mapping.lookup(result));
  func::ReturnOp::create(builder, builder.getUnknownLoc(), results);
  ir::decomposeFused(function);
  ir::simplify(function);
  return step;
}

OutlinedStep outlineCopy(Value value) {
  OutlinedStep step;
  step.operands = step.results = {value};
  OpBuilder builder(value.getContext());
  func::FuncOp function = beginFunction(step, "copy", value.getType(), builder);
  func::ReturnOp::create(builder, builder.getUnknownLoc(), function.getArguments());
  return step;
}

} // namespace cermet
