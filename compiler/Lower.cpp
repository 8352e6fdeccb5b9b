#include "compiler/Lower.h"
#include "ir/Ops.h"
#include "ir/Text.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "runtime/RowArguments.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"
#include <fmt/format.h>
#include <optional>
#include <set>

namespace cermet {
namespace {

using llvm::SmallVector;
using mlir::Operation;
using mlir::RankedTensorType;
using mlir::Value;

ir::Dimensions shapeOf(Value value) {
  return ir::dimensions(llvm::cast<RankedTensorType>(value.getType()));
}

std::optional<DType> dtypeOf(mlir::Type type) {
  type = mlir::getElementTypeOrSelf(type);
  if (type.isF32())
    return DType::F32;
  if (type.isBF16())
    return DType::BF16;
  if (type.isF16())
    return DType::F16;
  return std::nullopt;
}

std::string text(mlir::Type type) {
  std::string result;
  llvm::raw_string_ostream(result) << type;
  return result;
}

std::string identifier(std::string name) {
  for (char& c : name)
    if (!llvm::isAlnum(c) && c != '_')
      c = '_';
  return name.empty() || llvm::isDigit(name[0]) ? fmt::format("_{}", name) : name;
}

std::optional<Opcode> elementwise(Operation& op) {
  return llvm::TypeSwitch<Operation*, std::optional<Opcode>>(&op)
      .Case<ir::AddOp>([](auto) { return Opcode::Add; })
      .Case<ir::SubOp>([](auto) { return Opcode::Sub; })
      .Case<ir::MulOp>([](auto) { return Opcode::Mul; })
      .Case<ir::DivOp>([](auto) { return Opcode::Div; })
      .Case<ir::NegOp>([](auto) { return Opcode::Neg; })
      .Case<ir::ExpOp>([](auto) { return Opcode::Exp; })
      .Case<ir::RsqrtOp>([](auto) { return Opcode::Rsqrt; })
      .Case<ir::SigmoidOp>([](auto) { return Opcode::Sigmoid; })
      .Case<ir::SiluOp>([](auto) { return Opcode::Silu; })
      .Default([](auto) { return std::nullopt; });
}

Space join(Space a, Space b) {
  if (a == b || b == Space::Uniform)
    return a;
  return a == Space::Uniform ? b : Space::Element;
}

double rounded(double value, DType type) {
  llvm::APFloat number(value);
  bool inexact = false;
  number.convert(type == DType::F32    ? llvm::APFloat::IEEEsingle()
                 : type == DType::BF16 ? llvm::APFloat::BFloat()
                                       : llvm::APFloat::IEEEhalf(),
                 llvm::APFloat::rmNearestTiesToEven, &inexact);
  number.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &inexact);
  return number.convertToDouble();
}

class Lowering {
public:
  Lowering(mlir::func::FuncOp function, LoweredFunction& lowered)
      : function(function), program(lowered.program), positions(lowered.positions) {}

  std::string run() {
    mlir::Block& body = function.getBody().front();
    Operation* end = body.getTerminator();
    if (end->getNumOperands() == 0)
      return "it returns nothing";
    markLive(end);
    if (std::string reason = chooseSpace(end); !reason.empty())
      return reason;
    program.name = identifier(function.getName().str());
    program.columns = tile.back().size;
    for (mlir::BlockArgument argument : body.getArguments())
      if (liveValues.contains(argument))
        if (std::string reason = input(argument); !reason.empty())
          return reason;
    for (Operation& op : body.without_terminator())
      if (live.contains(&op))
        if (std::string reason = lower(op); !reason.empty())
          return reason;
    for (mlir::OpOperand& result : end->getOpOperands())
      if (std::string reason = output(result.get(), static_cast<int>(result.getOperandNumber())); !reason.empty())
        return reason;
    if (program.operands.size() > kMaxOperands)
      return fmt::format("it has {} operands, a kernel takes {}", program.operands.size(), kMaxOperands);
    return "";
  }

private:
  void markLive(Operation* end) {
    SmallVector<Operation*> pending{end};
    while (!pending.empty())
      for (Value value : pending.pop_back_val()->getOperands())
        if (liveValues.insert(value).second)
          if (Operation* op = value.getDefiningOp(); op && live.insert(op).second)
            pending.push_back(op);
  }

  // The iteration space is the largest shape: highest rank, then fewest 1s, then first.
  std::string chooseSpace(Operation* end) {
    auto fewerOnes = [](const ir::Dimensions& a, const ir::Dimensions& b) {
      auto extent = [](const ir::Dimension& dimension) { return !dimension.isOne(); };
      return llvm::count_if(a, extent) > llvm::count_if(b, extent);
    };
    bool found = false;
    auto consider = [&](Value value) -> std::string {
      if (!liveValues.contains(value))
        return "";
      if (!llvm::isa<RankedTensorType>(value.getType()) || !dtypeOf(value.getType()))
        return fmt::format("{} is {}; kernels take tensors of f32, bf16 and f16", described(value),
                           text(value.getType()));
      ir::Dimensions shape = shapeOf(value);
      for (const ir::Dimension& dimension : shape)
        if (dimension.size == 0)
          return fmt::format("{} has shape {}, which holds no element", described(value), ir::shapeText(shape));
      if (!found || shape.size() > tile.size() || (shape.size() == tile.size() && fewerOnes(shape, tile)))
        tile = shape;
      found = true;
      return "";
    };
    for (Value argument : function.getArguments())
      if (std::string reason = consider(argument); !reason.empty())
        return reason;
    for (Operation& op : *end->getBlock())
      for (Value value : op.getResults())
        if (std::string reason = consider(value); !reason.empty())
          return reason;
    if (tile.empty())
      return "all its tensors have rank 0; a row program needs a last dimension";
    if (tile.back().isSymbol())
      return fmt::format("the last dimension of {} is symbolic; a kernel is compiled for a number of columns",
                         ir::shapeText(tile));
    if (tile.size() > kMaxRowExtents + 1)
      return fmt::format("{} has {} row dimensions, a kernel takes {}", ir::shapeText(tile), tile.size() - 1,
                         kMaxRowExtents);
    return "";
  }

  bool isRowShape(const ir::Dimensions& shape) const {
    return shape.size() == tile.size() && shape.back().isOne() &&
           std::equal(shape.begin(), shape.end() - 1, tile.begin());
  }

  std::optional<Space> classify(const ir::Dimensions& shape) const {
    if (shape == tile)
      return Space::Element;
    bool ones =
        std::all_of(shape.begin(), shape.end(), [](const ir::Dimension& dimension) { return dimension.isOne(); });
    if (ones)
      return Space::Uniform;
    if (isRowShape(shape))
      return Space::Row;
    bool column =
        shape.size() <= tile.size() && shape.back() == tile.back() &&
        std::all_of(shape.begin(), shape.end() - 1, [](const ir::Dimension& dimension) { return dimension.isOne(); });
    return column ? std::optional(Space::Column) : std::nullopt;
  }

  std::string described(Value value) const {
    if (auto argument = llvm::dyn_cast<mlir::BlockArgument>(value))
      return ir::argumentName(function, argument.getArgNumber());
    Operation* op = value.getDefiningOp();
    llvm::StringRef kind = op->getName().getStringRef(), name = ir::nodeName(op->getLoc());
    return name.empty() ? kind.str() : fmt::format("{} {}", kind, name);
  }

  std::string misfit(Value value) const {
    return fmt::format("{} has shape {}, which is no tile, row or column of {}", described(value),
                       ir::shapeText(shapeOf(value)), ir::shapeText(tile));
  }

  int emit(Opcode opcode, DType type, Space space, llvm::ArrayRef<int> inputs, int operand = -1, double constant = 0) {
    Instruction op{opcode, type, space, 0, {-1, -1}, operand, constant};
    for (size_t i = 0; i < inputs.size(); ++i) {
      op.inputs[i] = inputs[i];
      const Instruction& input = program.instructions[inputs[i]];
      op.stage = std::max(op.stage, input.stage + (input.opcode == Opcode::ReduceSum));
    }
    // Broadcasts and widening casts leave no instruction, so equal ones can meet only here.
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      const Instruction& other = program.instructions[i];
      if (other.opcode == opcode && other.type == type && other.space == space && other.inputs[0] == op.inputs[0] &&
          other.inputs[1] == op.inputs[1] && other.operand == operand &&
          std::bit_cast<uint64_t>(other.constant) == std::bit_cast<uint64_t>(constant))
        return static_cast<int>(i);
    }
    program.instructions.push_back(op);
    return static_cast<int>(program.instructions.size()) - 1;
  }

  int spread(int value, Space space) {
    const Instruction& op = program.instructions[value];
    return op.space == space ? value : emit(Opcode::Cast, op.type, space, {value});
  }

  int addOperand(std::string name, OperandKind kind, DType dtype, bool isOutput, int position) {
    name = identifier(std::move(name));
    std::string unique = name;
    for (int i = 1; !names.insert(unique).second; ++i)
      unique = fmt::format("{}_{}", name, i);
    program.operands.push_back({unique, kind, dtype, isOutput});
    positions.push_back(position);
    return static_cast<int>(program.operands.size()) - 1;
  }

  std::string input(mlir::BlockArgument argument) {
    std::optional<Space> space = classify(shapeOf(argument));
    if (!space)
      return misfit(argument);
    constexpr OperandKind kinds[] = {OperandKind::Tile, OperandKind::Row, OperandKind::Column, OperandKind::Scalar};
    int position = static_cast<int>(argument.getArgNumber());
    DType dtype = *dtypeOf(argument.getType());
    int operand =
        addOperand(ir::argumentName(function, position), kinds[static_cast<int>(*space)], dtype, false, position);
    values[argument] = emit(Opcode::Load, dtype, *space, {}, operand);
    return "";
  }

  std::string lower(Operation& op) {
    if (op.getNumResults() != 1)
      return fmt::format("{} does not work row by row", op.getName().getStringRef());
    Value result = op.getResult(0);
    for (Value operand : op.getOperands())
      if (sums.contains(operand) && !llvm::isa<ir::CastOp>(op))
        return fmt::format("{} is read again by {}; a sum over rows is complete only when the kernel ends",
                           described(operand), described(result));
    DType type = *dtypeOf(result.getType());
    if (llvm::isa<ir::SumRowsOp>(op)) {
      if (classify(shapeOf(op.getOperand(0))) != Space::Element)
        return misfit(op.getOperand(0));
      sums[result] = values.lookup(op.getOperand(0));
      return "";
    }
    if (auto sum = op.getNumOperands() == 1 ? sums.find(op.getOperand(0)) : sums.end(); sum != sums.end()) {
      // The kernel sums in f32 and rounds once; a sum that was already rounded cannot be widened.
      if (dtypeOf(op.getOperand(0).getType()) != DType::F32)
        return fmt::format("{} is rounded to {} before {}", described(op.getOperand(0)),
                           text(mlir::getElementTypeOrSelf(op.getOperand(0).getType())), described(result));
      int summed = sum->second;
      sums[result] = summed;
      return "";
    }
    if (!classify(shapeOf(result)))
      return misfit(result);
    if (auto constant = llvm::dyn_cast<ir::ConstantOp>(op)) {
      values[result] =
          emit(Opcode::Constant, type, Space::Uniform, {}, -1, rounded(constant.getValue().convertToDouble(), type));
      return "";
    }
    if (llvm::isa<ir::BroadcastOp>(op)) {
      values[result] = values.lookup(op.getOperand(0));
      return "";
    }
    if (llvm::isa<ir::ReduceSumOp>(op)) {
      if (classify(shapeOf(op.getOperand(0))) != Space::Element)
        return misfit(op.getOperand(0));
      values[result] =
          emit(Opcode::ReduceSum, type, Space::Row, {spread(values.lookup(op.getOperand(0)), Space::Element)});
      return "";
    }
    SmallVector<int, 2> inputs;
    Space space = Space::Uniform;
    for (Value operand : op.getOperands()) {
      inputs.push_back(values.lookup(operand));
      space = join(space, program.instructions[inputs.back()].space);
    }
    if (llvm::isa<ir::CastOp>(op)) {
      DType from = program.instructions[inputs[0]].type;
      bool exact = from == type || type == DType::F32;
      values[result] = exact ? inputs[0] : emit(Opcode::Cast, type, space, inputs);
      return "";
    }
    std::optional<Opcode> opcode = elementwise(op);
    if (!opcode)
      return fmt::format("{} does not work row by row", described(result));
    values[result] = emit(*opcode, type, space, inputs);
    return "";
  }

  std::string output(Value value, int position) {
    DType dtype = *dtypeOf(value.getType());
    // An argument's name stays the input's.
    std::string name = llvm::isa<mlir::BlockArgument>(value) ? "" : ir::nodeName(value.getLoc()).str();
    if (name.empty())
      name = fmt::format("result{}", position);
    if (auto sum = sums.find(value); sum != sums.end()) {
      int operand = addOperand(name, OperandKind::Column, dtype, true, position);
      emit(Opcode::AccumulateRows, dtype, Space::Column, {spread(sum->second, Space::Element)}, operand);
      return "";
    }
    ir::Dimensions shape = shapeOf(value);
    Space space = shape == tile ? Space::Element : Space::Row;
    if (shape != tile && !isRowShape(shape))
      return fmt::format("it returns {} of shape {}; a kernel stores {}, one value a row, or sums over rows",
                         described(value), ir::shapeText(shape), ir::shapeText(tile));
    int operand =
        addOperand(name, space == Space::Element ? OperandKind::Tile : OperandKind::Row, dtype, true, position);
    emit(Opcode::Store, dtype, space, {spread(values.lookup(value), space)}, operand);
    return "";
  }

  mlir::func::FuncOp function;
  RowProgram& program;
  std::vector<int>& positions;
  ir::Dimensions tile;
  llvm::SmallPtrSet<Operation*, 32> live;
  llvm::DenseSet<Value> liveValues;
  llvm::DenseMap<Value, int> values; // instruction
  llvm::DenseMap<Value, int> sums;   // of sum_rows and its casts: the instruction that is summed
  std::set<std::string> names;
};

} // namespace

std::string lowerToRowProgram(mlir::func::FuncOp function, LoweredFunction& lowered) {
  LoweredFunction result;
  std::string reason = Lowering(function, result).run();
  if (reason.empty())
    lowered = std::move(result);
  return reason;
}

} // namespace cermet
