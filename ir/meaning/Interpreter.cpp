#include "ir/meaning/Interpreter.h"
#include "ir/transforms/Decompose.h"
#include "ir/text/ErrorText.h"
#include "ir/dialect/Ops.h"
#include "ir/dialect/ElementTypes.h"
#include "ir/text/Text.h"
#include "runtime/abi/Rounding.h"
#include <cmath>

using namespace mlir;

namespace cermet::ir {

//===--- One run -----------------------------------------------------------------------------------------------------//

namespace {
class Run {
public:
  Run(func::FuncOp function, bool honourCasts) : function(function), honourCasts(honourCasts) {}

  LogicalResult bind(ArrayRef<Array> inputs);
  LogicalResult execute(std::vector<Array>& outputs);

private:
  func::FuncOp function;
  bool honourCasts;
  llvm::DenseMap<StringAttr, int64_t> symbols;
  llvm::DenseMap<Value, Array> values;

  void round(Type elementType, Array& array) {
    const std::optional<cermet_dtype> dtype = elementTypeOf(elementType);
    if (dtype && (honourCasts || isa<IntegerType>(elementType)))
      for (double& value : array.data)
        value = cermet::roundTo(*dtype, value);
  }
  LogicalResult bindInput(unsigned index, const Array& input);
  LogicalResult evaluate(Operation& op);
};
} // namespace

LogicalResult Run::bindInput(unsigned index, const Array& input) {
  BlockArgument argument = function.getArgument(index);
  auto emitError = [&] {
    return mlir::emitError(argument.getLoc()) << "input " << index << " (" << argumentName(function, index) << ") ";
  };
  auto type = dyn_cast<RankedTensorType>(argument.getType());
  if (!type)
    return emitError() << "has type " << argument.getType() << ", expected a tensor: only tensors can be interpreted";
  if (int64_t(input.shape.size()) != type.getRank())
    return emitError() << "has rank " << input.shape.size() << ", expected " << type.getRank();
  int64_t elements = 1;
  for (auto [position, dimension] : llvm::enumerate(dimensions(type))) {
    int64_t size = input.shape[position];
    elements *= size;
    if (!dimension.isSymbol()) {
      if (size != dimension.size)
        return emitError() << "has size " << size << " in dimension " << position << ", expected " << dimension.size;
      continue;
    }
    auto [known, isNew] = symbols.try_emplace(dimension.symbol, size);
    if (!isNew && known->second != size)
      return emitError() << "has size " << size << " in dimension " << position << ", expected " << known->second
                         << " (" << dimension.symbol.getValue() << " of an earlier input)";
  }
  if (int64_t(input.data.size()) != elements)
    return emitError() << "has " << input.data.size() << " numbers, expected " << elements << " (its shape's)";
  Array& array = values[argument] = input;
  round(type.getElementType(), array);
  return success();
}

LogicalResult Run::bind(ArrayRef<Array> inputs) {
  if (inputs.size() != function.getNumArguments())
    return function.emitError() << "given " << inputs.size() << " inputs, expected " << function.getNumArguments();
  for (auto [index, input] : llvm::enumerate(inputs))
    if (failed(bindInput(index, input)))
      return failure();
  return success();
}

LogicalResult Run::evaluate(Operation& op) {
  auto interpretable = dyn_cast<InterpretableOpInterface>(op);
  if (!interpretable) {
    if (auto opaque = dyn_cast<OpaqueOp>(op))
      return op.emitOpError() << "\"" << opaque.getTarget() << "\" cannot be interpreted: only its importer knows it";
    return op.emitOpError() << "cannot be interpreted";
  }
  auto type = cast<RankedTensorType>(op.getResult(0).getType());
  Array result;
  int64_t elements = 1;
  for (const Dimension& dimension : dimensions(type)) {
    int64_t size = dimension.size;
    if (dimension.isSymbol()) {
      auto known = symbols.find(dimension.symbol);
      if (known == symbols.end())
        return op.emitOpError() << "result has a dimension " << shapeText(dimension)
                                << ", expected a symbol of an input's shape";
      size = known->second;
    }
    result.shape.push_back(size);
    elements *= size;
  }
  result.data.assign(elements, 0.0);
  SmallVector<const Array*> operands;
  for (Value operand : op.getOperands())
    operands.push_back(&values.find(operand)->second);
  if (failed(interpretable.interpret(operands, result)))
    return failure();
  round(type.getElementType(), result);
  values[op.getResult(0)] = std::move(result);
  return success();
}

LogicalResult Run::execute(std::vector<Array>& outputs) {
  llvm::DenseMap<Value, Operation*> lastUse;
  Block& block = function.getBody().front();
  for (Operation& op : block)
    for (Value operand : op.getOperands())
      lastUse[operand] = &op;
  for (Operation& op : block) {
    if (isa<func::ReturnOp>(op)) {
      outputs.clear();
      for (Value result : op.getOperands())
        outputs.push_back(values.find(result)->second);
      return success();
    }
    if (failed(evaluate(op)))
      return failure();
    for (Value operand : op.getOperands())
      if (lastUse[operand] == &op)
        values.erase(operand);
  }
  return success();
}

bool interpret(ModuleOp graph, ArrayRef<Array> inputs, bool honourCasts, std::vector<Array>& outputs,
               std::string& error) {
  error.clear();
  ErrorText errors(*graph.getContext(), error);
  OwningOpRef<ModuleOp> copy = graph.clone();
  func::FuncOp function = graphFunction(*copy);
  decomposeFused(function);
  Run run(function, honourCasts);
  return succeeded(run.bind(inputs)) && succeeded(run.execute(outputs));
}

} // namespace cermet::ir
