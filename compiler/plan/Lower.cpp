#include "compiler/plan/Lower.h"
#include "compiler/plan/IterationSpace.h"
#include "compiler/plan/LowerOperations.h"
#include "compiler/plan/ProgramWriter.h"
#include "ir/dialect/ElementTypes.h"
#include "ir/dialect/Ops.h"
#include "ir/text/Text.h"
#include "runtime/abi/Limits.h"
#include "runtime/abi/RowArguments.h"
#include <fmt/format.h>

namespace cermet {
namespace {

using llvm::SmallVector;
using mlir::Operation;
using mlir::RankedTensorType;
using mlir::Value;

Space join(Space a, Space b) {
  if (a == b || b == Space::Uniform)
    return a;
  return a == Space::Uniform ? b : Space::Element;
}

// A constant as its type holds it.
double rounded(double value, mlir::Type type) {
  return ir::roundTo(mlir::getElementTypeOrSelf(type), value);
}

class Lowering : ProgramWriter, IterationSpace {
public:
  Lowering(const Computation& computation, mlir::func::FuncOp function, const llvm::SmallBitVector& strided,
           LoweredFunction& lowered)
      : ProgramWriter(lowered.program, lowered.positions), IterationSpace(computation, function, lowered.appendsColumn),
        strided(strided) {}

  std::string run() {
    if (computation.results.empty())
      return "it returns nothing";
    markLive();
    // What it will have at least: each result, and each operand that is read.
    const size_t least = computation.results.size() + llvm::count_if(computation.operands, [&](Value operand) {
                           return liveValues.contains(operand);
                         });
    if (least > size_t(kMaxOperands))
      return tooManyOperands(least);
    if (std::string reason = chooseSpace(); !reason.empty())
      return reason;
    if (function)
      program.name = identifier(function.getName().str());
    program.columns = tile.back().size;
    for (auto [position, operand] : llvm::enumerate(computation.operands))
      if (readValues.contains(operand))
        if (std::string reason = input(operand, static_cast<int>(position)); !reason.empty())
          return reason;
    for (Operation* op : computation.ops)
      if (live.contains(op) && llvm::isa<ir::GatherOp, ir::EmbeddingBagOp>(op))
        if (std::string reason = gathered(op); !reason.empty())
          return reason;
    for (Operation* op : computation.ops)
      if (auto columns = llvm::dyn_cast<ir::ColumnsOp>(op); columns && live.contains(op))
        if (std::string reason = mapped(columns); !reason.empty())
          return reason;
    declareIndices();
    for (Operation* op : computation.ops)
      if (live.contains(op))
        if (std::string reason = lower(*op); !reason.empty())
          return reason;
    for (auto [position, result] : llvm::enumerate(computation.results))
      if (std::string reason = output(result, static_cast<int>(position)); !reason.empty())
        return reason;
    dropDead();
    if (std::string reason = checkCumsums(program); !reason.empty())
      return reason;
    // A launch learns how many rows there are from what it is given.
    for (size_t i = 0; i + 1 < tile.size(); ++i)
      if (!tile[i].isOne() && !carried.test(i))
        return fmt::format("none of its operands has dimension {} of {}", i, ir::shapeText(tile));
    return program.operands.size() > kMaxOperands ? tooManyOperands(program.operands.size()) : "";
  }

private:
  static std::string tooManyOperands(size_t count) {
    return fmt::format("it has {} operands, a kernel takes {}", count, kMaxOperands);
  }

  std::string input(Value argument, int position) {
    std::optional<Space> space = classify(shapeOf(argument));
    if (!space)
      return misfit(argument);
    constexpr OperandKind kinds[] = {OperandKind::Tile, OperandKind::Row, OperandKind::Column, OperandKind::Scalar};
    carry(shapeOf(argument));
    DType dtype = *dtypeOf(argument.getType());
    int operand =
        addOperand(operandName(position), kinds[static_cast<int>(*space)], dtype, false, position, isStrided(position));
    values[argument] = emit(Opcode::Load, dtype, *space, {}, operand);
    return "";
  }

  // A gather reads its source where that is stored, at the rows that the stored index has; a bag their sums.
  std::string gathered(Operation* op) {
    Value result = op->getResult(0);
    ir::Dimensions shape = shapeOf(result);
    if (!classify(shape) || !(shape.back() == tile.back()))
      return misfit(result);
    for (Value operand : op->getOperands())
      if (producer(operand))
        return fmt::format("{} reads {}, which the same kernel computes; it reads what is stored", described(result),
                           described(operand));
    carry(shape);
    const bool isBag = llvm::isa<ir::EmbeddingBagOp>(op);
    const int numbers = numbersOf(op->getOperand(1), isBag ? OperandKind::List : OperandKind::Row);
    const int begins = isBag ? numbersOf(op->getOperand(2), OperandKind::Row) : -1;
    const int ends = isBag ? numbersOf(op->getOperand(3), OperandKind::Row) : -1;
    const int sums = op->getNumOperands() > 4 ? numbersOf(op->getOperand(4), OperandKind::List) : -1;
    const int source = operands.lookup(op->getOperand(0));
    DType dtype = *dtypeOf(op->getOperand(0).getType());
    int operand = addOperand(operandName(source), OperandKind::Gathered, dtype, false, source, isStrided(source));
    Operand& rows = program.operands[operand];
    std::tie(rows.rowsFrom, rows.from, rows.to, rows.sums) = std::tuple(numbers, begins, ends, sums);
    rows.isWide = dtypeOf(result.getType()) != dtype;
    values[result] = emit(Opcode::Load, loadedType(rows), Space::Element, {}, operand);
    return "";
  }

  // The operand that has numbers of rows, or of places in a list of them, or sums of such rows.
  int numbersOf(Value index, OperandKind kind) {
    auto [numbers, isNew] = rowNumbers.try_emplace({index, int(kind)}, 0);
    const int from = operands.lookup(index);
    if (isNew)
      numbers->second = addOperand(operandName(from), kind, *dtypeOf(index.getType()), false, from);
    return numbers->second;
  }

  // Columns are read in another order where they are stored.
  std::string mapped(ir::ColumnsOp op) {
    Value result = op.getResult();
    std::optional<Space> space = classify(shapeOf(result));
    if (!space || !(shapeOf(result).back() == tile.back()))
      return misfit(result);
    const Value source = op.getOperand();
    if (producer(source))
      return fmt::format("{} reads columns of {}, which the same kernel computes; it reads what is stored",
                         described(result), described(op.getOperand()));
    int from = operands.lookup(source);
    std::optional<ColumnMap> map = columnMapOf(op.getMap().vec(), shapeOf(source).back().size);
    if (!map || isStrided(from))
      return fmt::format("{} reads columns of {} in an order that kernels do not have", described(result),
                         described(source));
    carry(shapeOf(result));
    DType dtype = *dtypeOf(source.getType());
    bool isColumn = *space == Space::Column;
    int operand = addOperand(operandName(from), isColumn ? OperandKind::Column : OperandKind::Tile, dtype, false, from);
    for (int i = 0; i < operand; ++i)
      if (const Operand& other = program.operands[i]; positions[i] == from &&
                                                      other.kind == program.operands[operand].kind &&
                                                      !other.map.isMapped() && map->width == program.columns)
        program.operands[operand].of = i;
    program.operands[operand].map = std::move(*map);
    values[result] = emit(Opcode::Load, dtype, isColumn ? Space::Column : Space::Element, {}, operand);
    return "";
  }

  std::string picked(ir::PickOp op, DType type) {
    Value result = op.getResult();
    if (classify(shapeOf(op.getOperand())) != Space::Element)
      return misfit(op.getOperand());
    const int number = values.lookup(op.getIndex());
    const Instruction& index = program.instructions[number];
    if (index.space != Space::Row && index.space != Space::Uniform)
      return misfit(op.getIndex());
    if (index.stage > 0)
      return fmt::format("{} reads the column that {} says, which a reduction of the same kernel decides",
                         described(result), described(op.getIndex()));
    const int rows = spread(values.lookup(op.getOperand()), Space::Element);
    values[result] = emit(Opcode::Pick, type, Space::Row, {rows, number}, -1, std::numeric_limits<double>::quiet_NaN());
    return "";
  }

  bool isStrided(int argument) const { return argument < static_cast<int>(strided.size()) && strided.test(argument); }

  int rowExtentOf(ir::IotaOp iota) const { return rowExtentsOf(iota.getResult(), iota.getDim(), iota.getDim() + 1); }
  // Of random numbers: their rows, and their columns where these are rows of the program.
  int rowsOf(ir::RandomOp random) const {
    const size_t rank = ir::typeOf(random.getResult()).getRank();
    return rank == 0 ? 0 : rowExtentsOf(random.getResult(), 0, rank - 1);
  }
  int columnsOf(ir::RandomOp random) const {
    const size_t rank = ir::typeOf(random.getResult()).getRank();
    return rank == 0 ? 0 : rowExtentsOf(random.getResult(), rank - 1, rank);
  }

  // Inputs stand before outputs, so indices are operands before anything is lowered.
  void declareIndices() {
    for (Operation* op : computation.ops) {
      if (!live.contains(op) || op->getNumResults() != 1 || !llvm::isa<ir::IotaOp, ir::RandomOp>(op) ||
          !classify(shapeOf(op->getResult(0))))
        continue;
      auto random = llvm::dyn_cast<ir::RandomOp>(op);
      declareIndex(random ? rowsOf(random) : rowExtentOf(llvm::cast<ir::IotaOp>(op)));
      if (random)
        declareIndex(columnsOf(random));
    }
  }

  // A row's number among those of some extents, in row-major order.
  void declareIndex(int extents) {
    if (extents == 0 || indices.contains(extents))
      return;
    std::string name = "index";
    for (size_t extent = 0; extent < kMaxRank; ++extent)
      if (extents >> extent & 1)
        name += std::to_string(extent);
    indices[extents] = emit(Opcode::Load, DType::I64, Space::Row, {},
                            addOperand(name, OperandKind::Index, DType::I64, false, extents));
  }

  // Its number where it has some, else a number that is the same for all.
  int indexOf(int extents) {
    return extents ? indices.lookup(extents) : emit(Opcode::Constant, DType::I64, Space::Uniform, {});
  }

  std::string randomized(ir::RandomOp op) {
    const int seed = values.lookup(op.getSeed());
    const bool isColumn = columnsOf(op) == 0 && !shapeOf(op.getResult()).back().isOne();
    const int row = indexOf(rowsOf(op));
    const int column = isColumn ? emit(Opcode::ColumnIndex, DType::I64, Space::Column, {}) : indexOf(columnsOf(op));
    auto spaceOf = [&](int value) { return program.instructions[value].space; };
    const int key = emit(Opcode::RandomKey, DType::I64, join(spaceOf(seed), spaceOf(row)), {seed, row});
    values[op.getResult()] = emit(Opcode::RandomBits, DType::I64, join(spaceOf(key), spaceOf(column)), {key, column});
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
    if (readsStored(&op))
      return "";
    DType type = *dtypeOf(result.getType());
    if (llvm::isa<ir::SumRowsOp>(op)) {
      if (shapeOf(op.getOperand(0)) != tile)
        return fmt::format("{} has shape {}; a kernel sums over all rows of {}", described(op.getOperand(0)),
                           ir::shapeText(shapeOf(op.getOperand(0))), ir::shapeText(tile));
      sums[result] = values.lookup(op.getOperand(0));
      return "";
    }
    if (auto sum = op.getNumOperands() == 1 ? sums.find(op.getOperand(0)) : sums.end(); sum != sums.end()) {
      // The kernel sums in f32 and rounds once; a sum that was already rounded cannot be widened.
      if (dtypeOf(op.getOperand(0).getType()) != DType::F32 || classOf(type) != ValueClass::Real)
        return fmt::format("{} is {} before {}", described(op.getOperand(0)),
                           ir::typeText(mlir::getElementTypeOrSelf(op.getOperand(0).getType())), described(result));
      int summed = sum->second;
      sums[result] = summed;
      return "";
    }
    std::optional<Space> space = classify(shapeOf(result));
    if (!space)
      return misfit(result);
    if (auto constant = llvm::dyn_cast<ir::ConstantOp>(op)) {
      values[result] = emit(Opcode::Constant, type, Space::Uniform, {}, -1,
                            rounded(constant.getValue().convertToDouble(), result.getType()));
      return "";
    }
    if (llvm::isa<ir::BroadcastOp>(op)) {
      values[result] = values.lookup(op.getOperand(0));
      return "";
    }
    if (auto iota = llvm::dyn_cast<ir::IotaOp>(op)) {
      const int extent = rowExtentOf(iota);
      if (extent && iota.getPeriod())
        return fmt::format("{} counts rows with a period; kernels do so with columns", described(result));
      bool isColumn =
          iota.getDim() + 1 == static_cast<uint64_t>(shapeOf(result).size()) && !shapeOf(result).back().isOne();
      int index = !extent && isColumn ? emit(Opcode::ColumnIndex, DType::I64, Space::Column, {}, -1,
                                             static_cast<double>(iota.getPeriod().value_or(0)))
                                      : indexOf(extent);
      values[result] =
          type == DType::I64 ? index : emit(Opcode::Cast, type, program.instructions[index].space, {index});
      return "";
    }
    if (auto random = llvm::dyn_cast<ir::RandomOp>(op))
      return randomized(random);
    if (std::optional<Opcode> opcode = reduction(op)) {
      if (classify(shapeOf(op.getOperand(0))) != Space::Element)
        return misfit(op.getOperand(0));
      int reduced = values.lookup(op.getOperand(0));
      if (std::optional<int> picked = *opcode == Opcode::ReduceSum ? pick(reduced, type) : std::nullopt)
        values[result] = *picked;
      else
        values[result] = emit(*opcode, type, Space::Row, {spread(reduced, Space::Element)});
      return "";
    }
    if (auto pick = llvm::dyn_cast<ir::PickOp>(op))
      return picked(pick, type);
    if (auto sum = llvm::dyn_cast<ir::CumsumOp>(op)) {
      if (classify(shapeOf(result)) != Space::Element)
        return misfit(result);
      if (program.columns > kMaxCumsumColumns)
        return fmt::format("{} has {} columns; a kernel adds up one behind the other at most {}", described(result),
                           program.columns, kMaxCumsumColumns);
      const int summed = spread(values.lookup(sum.getOperand()), Space::Element);
      values[result] = emit(Opcode::Cumsum, type, Space::Element, {summed}, -1, sum.getReverse());
      return "";
    }
    std::optional<Opcode> opcode = elementwise(op);
    if (!opcode)
      return fmt::format("{} does not work row by row", described(result));
    SmallVector<int, 3> inputs;
    Space joined = Space::Uniform;
    for (Value operand : op.getOperands()) {
      inputs.push_back(values.lookup(operand));
      joined = join(joined, program.instructions[inputs.back()].space);
    }
    if (auto compare = llvm::dyn_cast<ir::CompareOp>(op); compare && compare.getPredicate().starts_with("g"))
      std::swap(inputs[0], inputs[1]);
    if (*opcode == Opcode::Cast) {
      DType from = program.instructions[inputs[0]].type;
      if (from == type || (type == DType::F32 && classOf(from) == ValueClass::Real)) {
        values[result] = inputs[0];
        return "";
      }
    }
    values[result] = emit(*opcode, type, joined, inputs);
    return "";
  }

  std::string output(Value value, int position) {
    DType dtype = *dtypeOf(value.getType());
    // An argument's name stays the input's.
    std::string name = function && producer(value) ? ir::nodeName(value.getLoc()).str() : "";
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
    carry(shape);
    int operand =
        addOperand(name, space == Space::Element ? OperandKind::Tile : OperandKind::Row, dtype, true, position);
    emit(Opcode::Store, dtype, space, {spread(values.lookup(value), space)}, operand);
    return "";
  }

  const llvm::SmallBitVector& strided;
  llvm::DenseMap<Value, int> values; // instruction
  llvm::DenseMap<int, int> indices;  // row extents, a bit for each, to the load of the index along them
  llvm::DenseMap<std::pair<Value, int>, int> rowNumbers; // of gathers: an index's operand, by kind
  llvm::DenseMap<Value, int> sums;                       // of sum_rows and its casts: the instruction that is summed
};

} // namespace

static std::string lower(const Computation& computation, mlir::func::FuncOp function,
                         const llvm::SmallBitVector& strided, LoweredFunction& lowered) {
  LoweredFunction result;
  std::string reason = Lowering(computation, function, strided, result).run();
  if (reason.empty())
    lowered = std::move(result);
  return reason;
}

std::string lowerToRowProgram(mlir::func::FuncOp function, const llvm::SmallBitVector& strided,
                              LoweredFunction& lowered) {
  mlir::Block& body = function.getBody().front();
  SmallVector<Operation*> ops;
  for (Operation& op : body.without_terminator())
    ops.push_back(&op);
  SmallVector<Value> operands(function.getArguments()), results(body.getTerminator()->getOperands());
  return lower({ops, operands, results}, function, strided, lowered);
}

std::string lowerToRowProgram(const Computation& computation, const llvm::SmallBitVector& strided,
                              LoweredFunction& lowered) {
  return lower(computation, {}, strided, lowered);
}

} // namespace cermet
