#include "ir/Interpreter.h"
#include "ir/Decompose.h"
#include "ir/ErrorText.h"
#include "ir/Ops.h"
#include "ir/Text.h"
#include <cmath>

using namespace mlir;

namespace cermet::ir {

//===--- Rounding ----------------------------------------------------------------------------------------------------//

// To a binary format of `precision` bits (the leading one included) with exponents from `lowest` to `highest`. Scaling
// by powers of two is exact, and nearbyint rounds ties to even.
static double roundToFormat(double value, int precision, int lowest, int highest) {
  if (!std::isfinite(value) || value == 0)
    return value;
  int exponent = std::ilogb(value);
  int unit = std::max(exponent, lowest) - precision + 1;
  double rounded = std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit);
  if (std::fabs(rounded) >= std::ldexp(1.0, highest + 1))
    return std::copysign(HUGE_VAL, value);
  return rounded;
}

static double roundToInteger(double value, unsigned width, bool isUnsigned) {
  if (!std::isfinite(value))
    return 0;
  double range = std::ldexp(1.0, width);
  double wrapped = std::fmod(std::trunc(value), range) + 0.0; // an integer has no -0
  // Within its range a number stays as it is: -1 and 2^64 have no sum in a double.
  double lowest = isUnsigned ? 0 : -range / 2;
  return wrapped < lowest ? wrapped + range : wrapped >= lowest + range ? wrapped - range : wrapped;
}

double roundTo(Type elementType, double value) {
  if (elementType.isF32())
    return static_cast<float>(value);
  if (elementType.isBF16())
    return roundToFormat(value, 8, -126, 127);
  if (elementType.isF16())
    return roundToFormat(value, 11, -14, 15);
  // As PyTorch has it: from an f32, and f8E4M3FN, whose largest is 1.75 * 2^8 and which has no infinity, saturates.
  if (isa<Float8E5M2Type>(elementType))
    return roundToFormat(static_cast<float>(value), 3, -14, 15);
  if (isa<Float8E4M3FNType>(elementType)) {
    double rounded = roundToFormat(static_cast<float>(value), 4, -6, 8);
    return std::fabs(value) > 448 ? std::copysign(448.0, value) : rounded;
  }
  if (auto integer = dyn_cast<IntegerType>(elementType)) {
    if (integer.getWidth() == 1)
      return value != 0;
    return roundToInteger(value, integer.getWidth(), integer.isUnsigned());
  }
  return value;
}

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
    if (honourCasts || isa<IntegerType>(elementType))
      for (double& value : array.data)
        value = roundTo(elementType, value);
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
