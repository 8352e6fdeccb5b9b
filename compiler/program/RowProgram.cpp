#include "compiler/program/RowProgram.h"
#include "runtime/abi/RowArguments.h"
#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <set>

namespace cermet {
namespace {

constexpr std::array kSpaces{"element", "row", "column", "uniform"};
// What an instruction takes and gives. Same: all inputs and the result are of one class, one of `classes`.
enum class Classes { Reals, Integers, Numbers, Any, Comparison, Selection, Conversion, Picking, None };
struct OpcodeTraits {
  const char* name;
  int inputs;
  Classes classes;
};
constexpr std::array kOpcodes{
    OpcodeTraits{"load", 0, Classes::None},
    OpcodeTraits{"constant", 0, Classes::None},
    OpcodeTraits{"column_index", 0, Classes::None},
    OpcodeTraits{"cast", 1, Classes::Conversion},
    OpcodeTraits{"add", 2, Classes::Numbers},
    OpcodeTraits{"sub", 2, Classes::Numbers},
    OpcodeTraits{"mul", 2, Classes::Numbers},
    OpcodeTraits{"neg", 1, Classes::Numbers},
    OpcodeTraits{"abs", 1, Classes::Numbers},
    OpcodeTraits{"max", 2, Classes::Any},
    OpcodeTraits{"min", 2, Classes::Any},
    OpcodeTraits{"div", 2, Classes::Reals},
    OpcodeTraits{"pow", 2, Classes::Reals},
    OpcodeTraits{"exp", 1, Classes::Reals},
    OpcodeTraits{"log", 1, Classes::Reals},
    OpcodeTraits{"sqrt", 1, Classes::Reals},
    OpcodeTraits{"rsqrt", 1, Classes::Reals},
    OpcodeTraits{"tanh", 1, Classes::Reals},
    OpcodeTraits{"erf", 1, Classes::Reals},
    OpcodeTraits{"relu", 1, Classes::Reals},
    OpcodeTraits{"sigmoid", 1, Classes::Reals},
    OpcodeTraits{"softplus", 1, Classes::Reals},
    OpcodeTraits{"silu", 1, Classes::Reals},
    OpcodeTraits{"gelu", 1, Classes::Reals},
    OpcodeTraits{"gelu_tanh", 1, Classes::Reals},
    OpcodeTraits{"equal", 2, Classes::Comparison},
    OpcodeTraits{"not_equal", 2, Classes::Comparison},
    OpcodeTraits{"less", 2, Classes::Comparison},
    OpcodeTraits{"less_equal", 2, Classes::Comparison},
    OpcodeTraits{"select", 3, Classes::Selection},
    OpcodeTraits{"random_key", 2, Classes::Integers},
    OpcodeTraits{"random_bits", 2, Classes::Integers},
    OpcodeTraits{"reduce_sum", 1, Classes::Reals},
    OpcodeTraits{"reduce_max", 1, Classes::Reals},
    OpcodeTraits{"reduce_min", 1, Classes::Reals},
    OpcodeTraits{"cumsum", 1, Classes::Numbers},
    OpcodeTraits{"pick", 2, Classes::Picking},
    OpcodeTraits{"store", 1, Classes::Any},
    OpcodeTraits{"accumulate_rows", 1, Classes::Reals},
};
static_assert(kOpcodes.size() == static_cast<size_t>(Opcode::AccumulateRows) + 1);

const OpcodeTraits& traits(Opcode opcode) {
  return kOpcodes.at(static_cast<size_t>(opcode));
}

Space spaceOf(OperandKind kind) {
  constexpr Space spaces[] = {Space::Element, Space::Row,     Space::Column, Space::Uniform,
                              Space::Row,     Space::Element, Space::Uniform};
  return spaces[static_cast<int>(kind)];
}

// Whether a value of `from` is one of `to` read at every index: a Row value is the same along a row's elements.
bool spreads(Space from, Space to) {
  return from == to || to == Space::Element || from == Space::Uniform;
}

const char* name(ValueClass valueClass) {
  return valueClass == ValueClass::Real ? "real" : valueClass == ValueClass::Integer ? "integer" : "bool";
}

std::string checkClasses(const RowProgram& program, const Instruction& op) {
  auto inputClass = [&](int i) { return classOf(program.instructions[op.inputs[i]].type); };
  const ValueClass result = classOf(op.type);
  auto wrong = [&](const char* expected) { return fmt::format("{} takes {}", cermet::name(op.opcode), expected); };
  for (int i = 0; i < inputCount(op.opcode); ++i) {
    const ValueClass given = inputClass(i);
    switch (traits(op.opcode).classes) {
    case Classes::Reals:
      if (given != ValueClass::Real || result != ValueClass::Real)
        return wrong("reals and gives one");
      break;
    case Classes::Integers:
      if (given != ValueClass::Integer || result != ValueClass::Integer)
        return wrong("integers and gives one");
      break;
    case Classes::Numbers:
      if (given != result || result == ValueClass::Bool)
        return wrong("numbers of the result's class");
      break;
    case Classes::Any:
      if (given != result)
        return fmt::format("{} of a {} to a {}", cermet::name(op.opcode), name(given), name(result));
      break;
    case Classes::Comparison:
      if (result != ValueClass::Bool || given != inputClass(0))
        return wrong("two values of one class and gives a bool");
      break;
    case Classes::Selection:
      if (given != (i == 0 ? ValueClass::Bool : result))
        return wrong("a bool and two values of the result's class");
      break;
    case Classes::Picking:
      if (given != (i == 0 ? ValueClass::Real : ValueClass::Integer) || result != ValueClass::Real)
        return wrong("a real and an integer and gives a real");
      break;
    case Classes::Conversion:
    case Classes::None:
      break;
    }
  }
  return "";
}

std::string checkInstruction(const RowProgram& program, size_t index) {
  const Instruction& op = program.instructions[index];
  int stage = 0;
  for (int i = 0; i < inputCount(op.opcode); ++i) {
    if (op.inputs[i] < 0 || op.inputs[i] >= static_cast<int>(index))
      return fmt::format("input %{} is not an earlier value", op.inputs[i]);
    const Instruction& input = program.instructions[op.inputs[i]];
    if (input.opcode == Opcode::Store || input.opcode == Opcode::AccumulateRows)
      return fmt::format("input %{} is a store, which has no value", op.inputs[i]);
    stage = std::max(stage, input.stage + isReduction(input.opcode));
    bool sums = isReduction(op.opcode) || op.opcode == Opcode::AccumulateRows || op.opcode == Opcode::Cumsum ||
                (op.opcode == Opcode::Pick && i == 0);
    if (sums && input.space != Space::Element)
      return fmt::format("{} takes an element value, %{} is {}", name(op.opcode), op.inputs[i], name(input.space));
    if (!sums && !spreads(input.space, op.space))
      return fmt::format("a {} result cannot read %{}, which is {}", name(op.space), op.inputs[i], name(input.space));
    if (op.opcode == Opcode::Store && input.space != op.space)
      return fmt::format("store of %{}, which is {}, to {}", op.inputs[i], name(input.space), name(op.space));
  }
  if (op.stage != stage)
    return fmt::format("stage is {}, expected {} (the reductions on its longest path)", op.stage, stage);
  if (std::string reason = checkClasses(program, op); !reason.empty())
    return reason;
  if (op.opcode == Opcode::Constant && op.space != Space::Uniform)
    return "a constant is uniform";
  if (op.opcode == Opcode::ColumnIndex && (op.space != Space::Column || classOf(op.type) != ValueClass::Integer))
    return "a column index is an integer, a column value";
  if (op.opcode == Opcode::ColumnIndex && (op.constant < 0 || op.constant != std::trunc(op.constant)))
    return fmt::format("a column index with the period {}, expected a whole number", op.constant);
  if ((isReduction(op.opcode) || op.opcode == Opcode::Pick) && op.space != Space::Row)
    return fmt::format("{} gives a row value", name(op.opcode));
  if (op.opcode == Opcode::Cumsum && op.space != Space::Element)
    return "cumsum gives an element value";
  if (op.opcode == Opcode::Cumsum && op.constant != 0 && op.constant != 1)
    return fmt::format("a cumsum of the direction {}, expected 0 or 1", op.constant);
  if (op.opcode == Opcode::Pick && op.constant != 0 && !std::isnan(op.constant))
    return fmt::format("a pick that gives {} where no column has the number, expected 0 or nan", op.constant);
  if (op.opcode == Opcode::Pick && program.instructions[op.inputs[1]].stage > 0)
    return fmt::format("the column of a pick, %{}, is one that a reduction decides", op.inputs[1]);
  if (!usesOperand(op.opcode))
    return "";
  if (op.operand < 0 || op.operand >= static_cast<int>(program.operands.size()))
    return fmt::format("operand {} does not exist", op.operand);
  const Operand& operand = program.operands[op.operand];
  if (operand.isOutput != (op.opcode != Opcode::Load))
    return fmt::format("{} of {}, which is an {}", name(op.opcode), operand.name,
                       operand.isOutput ? "output" : "input");
  if (operand.kind == OperandKind::List)
    return fmt::format("{} of {}, a list, which gathered inputs alone read", name(op.opcode), operand.name);
  if (op.type != loadedType(operand))
    return fmt::format("type is {}, expected {} (of {})", name(op.type), name(loadedType(operand)), operand.name);
  if (op.opcode == Opcode::AccumulateRows && operand.kind != OperandKind::Column)
    return fmt::format("accumulate_rows to {}, which is {}; expected a column output", operand.name,
                       name(operand.kind));
  if (op.space != spaceOf(operand.kind))
    return fmt::format("space is {}, expected {} (of {})", name(op.space), name(spaceOf(operand.kind)), operand.name);
  if (op.opcode == Opcode::Store && operand.kind != OperandKind::Tile && operand.kind != OperandKind::Row)
    return fmt::format("store to {}, which is {}; expected a tile or row output", operand.name, name(operand.kind));
  return "";
}

bool isIntegerInput(const Operand& operand, OperandKind kind) {
  return operand.kind == kind && !operand.isOutput && classOf(operand.dtype) == ValueClass::Integer;
}

std::string checkGathered(const RowProgram& program, const Operand& operand) {
  const bool isGathered = operand.kind == OperandKind::Gathered;
  if (isGathered != (operand.rowsFrom >= 0) || (isGathered && operand.isOutput))
    return fmt::format("operand {} is {}{}; a gathered input has its rows' numbers from another operand, no other has",
                       operand.name, name(operand.kind), operand.rowsFrom < 0 ? " without rows" : "");
  if (!isGathered)
    return operand.kind == OperandKind::List && operand.isOutput ? fmt::format("list {} is an output", operand.name)
                                                                 : "";
  const Operand& numbers = program.operands[operand.rowsFrom];
  const bool isSum = operand.from >= 0;
  if (!isIntegerInput(numbers, isSum ? OperandKind::List : OperandKind::Row))
    return fmt::format("the rows of {} are those of {}, which is no {} of integers", operand.name, numbers.name,
                       isSum ? "list" : "row input");
  if (!isSum)
    return operand.to >= 0 || operand.sums >= 0 || operand.isWide
               ? fmt::format("rows of {} are no sums, which alone end, are wide or have sums of parts", operand.name)
               : "";
  if (classOf(operand.dtype) != ValueClass::Real)
    return fmt::format("rows of {} are added, which is {}; expected reals", operand.name, name(operand.dtype));
  if (operand.sums >= 0 &&
      (program.operands[operand.sums].kind != OperandKind::List || program.operands[operand.sums].dtype != DType::F32))
    return fmt::format("the sums of {} are {}, which is no list of f32", operand.name,
                       program.operands[operand.sums].name);
  for (int bound : {operand.from, operand.to})
    if (bound < 0 || !isIntegerInput(program.operands[bound], OperandKind::Row))
      return fmt::format("the rows of {} are bounded by {}, which is no row input of integers", operand.name,
                         bound < 0 ? "nothing" : program.operands[bound].name);
  return "";
}

} // namespace

std::string check(const RowProgram& program) {
  if (program.columns < 1)
    return fmt::format("columns is {}, expected at least 1", program.columns);
  if (program.operands.empty() || program.operands.size() > kMaxOperands)
    return fmt::format("{} operands, expected 1 to {}", program.operands.size(), kMaxOperands);
  std::set<std::string> seen;
  bool outputs = false;
  for (const Operand& operand : program.operands) {
    if (!seen.insert(operand.name).second)
      return fmt::format("operand {} is declared twice", operand.name);
    if (outputs && !operand.isOutput)
      return fmt::format("input {} stands after an output", operand.name);
    outputs |= operand.isOutput;
    bool isColumns = operand.kind == OperandKind::Tile || operand.kind == OperandKind::Column ||
                     operand.kind == OperandKind::Gathered;
    if (operand.isStrided && (operand.isOutput || !isColumns))
      return fmt::format("operand {} is strided; only a tile, column or gathered input is", operand.name);
    if (operand.map.isMapped() && (operand.isOutput || operand.isStrided ||
                                   (operand.kind != OperandKind::Tile && operand.kind != OperandKind::Column)))
      return fmt::format("operand {} has columns of its own; only a tile or column input that is not strided has",
                         operand.name);
    if (operand.of >= 0) {
      const Operand& whole = program.operands[operand.of];
      if (whole.kind != operand.kind || whole.dtype != operand.dtype || whole.isOutput || whole.map.isMapped() ||
          operand.map.width != program.columns)
        return fmt::format("operand {} has the columns of {}, which is no such input", operand.name, whole.name);
    }
    if (operand.kind == OperandKind::Index && (operand.isOutput || operand.dtype != DType::I64))
      return fmt::format("index operand {} is no i64 input", operand.name);
    if (std::string reason = checkGathered(program, operand); !reason.empty())
      return reason;
  }
  if (!outputs)
    return "no output operand";
  std::vector<int> writes(program.operands.size());
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    if (std::string reason = checkInstruction(program, i); !reason.empty())
      return fmt::format("instruction {}: {}", i, reason);
    if (const Instruction& op = program.instructions[i]; op.operand >= 0 && op.opcode != Opcode::Load)
      ++writes[op.operand];
  }
  for (size_t i = 0; i < writes.size(); ++i)
    if (program.operands[i].isOutput && writes[i] != 1)
      return fmt::format("output {} is written {} times, expected once", program.operands[i].name, writes[i]);
  return checkCumsums(program);
}

std::string checkCumsums(const RowProgram& program) {
  if (!program.hasCumsums())
    return "";
  std::vector<char> depends(program.instructions.size(), false); // an element, on a cumulative sum
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& op = program.instructions[i];
    const bool isOfSums = inputCount(op.opcode) > 0 && depends[op.inputs[0]];
    if (op.opcode == Opcode::Cumsum && isOfSums)
      return "a cumulative sum of what another one gives, which is a walk of its own";
    if (op.opcode == Opcode::Cumsum && (op.constant != 0) != program.runsBackward())
      return "cumulative sums in both directions, which are two walks";
    if (op.opcode == Opcode::Pick && isOfSums)
      return "a pick of a cumulative sum, which is made where the row is walked";
    depends[i] = op.opcode == Opcode::Cumsum;
    for (int k = 0; op.space == Space::Element && k < inputCount(op.opcode); ++k)
      depends[i] |= depends[op.inputs[k]];
  }
  return "";
}

bool usesOperand(Opcode op) {
  return op == Opcode::Load || op == Opcode::Store || op == Opcode::AccumulateRows;
}
const char* name(Space space) {
  return kSpaces.at(static_cast<size_t>(space));
}
const char* name(Opcode opcode) {
  return traits(opcode).name;
}
int inputCount(Opcode opcode) {
  return traits(opcode).inputs;
}
bool isIndex(const Instruction& instruction) {
  return instruction.opcode == Opcode::Pick && std::isnan(instruction.constant);
}
bool isReduction(Opcode opcode) {
  return opcode == Opcode::ReduceSum || opcode == Opcode::ReduceMax || opcode == Opcode::ReduceMin;
}
int RowProgram::stages() const {
  int last = 0;
  for (const Instruction& op : instructions)
    last = std::max(last, op.stage);
  return last + 1;
}

bool RowProgram::accumulates() const {
  return std::any_of(instructions.begin(), instructions.end(),
                     [](const Instruction& op) { return op.opcode == Opcode::AccumulateRows; });
}

std::vector<int> RowProgram::summedOverRows() const {
  std::vector<int> values;
  for (const Instruction& op : instructions)
    if (op.opcode == Opcode::AccumulateRows && std::find(values.begin(), values.end(), op.inputs[0]) == values.end())
      values.push_back(op.inputs[0]);
  return values;
}

bool RowProgram::reduces() const {
  return hasCumsums() || std::any_of(instructions.begin(), instructions.end(), [](const Instruction& op) {
           return isReduction(op.opcode) || op.opcode == Opcode::Pick;
         });
}

bool RowProgram::hasCumsums() const {
  return std::any_of(instructions.begin(), instructions.end(),
                     [](const Instruction& op) { return op.opcode == Opcode::Cumsum; });
}

bool RowProgram::runsBackward() const {
  const auto first = std::find_if(instructions.begin(), instructions.end(),
                                  [](const Instruction& op) { return op.opcode == Opcode::Cumsum; });
  return first != instructions.end() && first->constant != 0;
}

static bool isTile(const Operand& operand) {
  return operand.kind == OperandKind::Tile || operand.kind == OperandKind::Gathered;
}

int64_t RowProgram::rowBytes() const {
  int64_t bytes = 0;
  for (const Operand& operand : operands)
    if (isTile(operand) && !operand.isOutput)
      bytes += byteSize(operand.dtype) * columns;
  return bytes;
}

int64_t RowProgram::walkedBytes() const {
  const int last = stages() - 1;
  int64_t bytes = 0;
  for (int stage = 0; stage <= last; ++stage) {
    std::vector<char> isNeeded(instructions.size(), false);
    for (size_t i = instructions.size(); i-- > 0;) {
      const Instruction& op = instructions[i];
      const bool isStored =
          (op.opcode == Opcode::Store && op.space == Space::Element) || op.opcode == Opcode::AccumulateRows;
      const bool isDone = isStored ? stage == last : isReduction(op.opcode) && op.stage == stage;
      if (!isDone && (!isNeeded[i] || op.space == Space::Row)) // a row's values are known by then
        continue;
      if (op.operand >= 0 && isTile(operands[op.operand]))
        bytes += byteSize(op.type) * columns;
      for (int input : op.inputs)
        if (input >= 0)
          isNeeded[input] = true;
    }
  }
  return bytes;
}

} // namespace cermet
