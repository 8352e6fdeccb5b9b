#include "compiler/RowProgram.h"
#include "compiler/TextLines.h"
#include "runtime/RowArguments.h"
#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <set>

namespace cermet {
namespace {

constexpr std::array kDTypes{"f32", "bf16", "f16"};
constexpr std::array kOperandKinds{"tile", "row", "column", "scalar"};
constexpr std::array kSpaces{"element", "row", "column", "uniform"};
constexpr std::array kOpcodes{"load",    "constant", "cast",       "add",   "sub",
                              "mul",     "div",      "neg",        "exp",   "rsqrt",
                              "sigmoid", "silu",     "reduce_sum", "store", "accumulate_rows"};

template <typename Enum, size_t n>
bool find(const std::array<const char*, n>& names, std::string_view text, Enum& value) {
  auto at = std::find(names.begin(), names.end(), text);
  value = static_cast<Enum>(at - names.begin());
  return at != names.end();
}

bool isIdentifier(std::string_view text) {
  auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !text.empty() && letter(text[0]) &&
         std::all_of(text.begin(), text.end(), [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

bool usesOperand(Opcode op) {
  return op == Opcode::Load || op == Opcode::Store || op == Opcode::AccumulateRows;
}

int inputCount(Opcode op) {
  switch (op) {
  case Opcode::Load:
  case Opcode::Constant:
    return 0;
  case Opcode::Add:
  case Opcode::Sub:
  case Opcode::Mul:
  case Opcode::Div:
    return 2;
  default:
    return 1;
  }
}

Space spaceOf(OperandKind kind) {
  constexpr Space spaces[] = {Space::Element, Space::Row, Space::Column, Space::Uniform};
  return spaces[static_cast<int>(kind)];
}

// Whether a value of `from` is one of `to` read at every index: a Row value is the same along a row's elements.
bool spreads(Space from, Space to) {
  return from == to || to == Space::Element || from == Space::Uniform;
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
    stage = std::max(stage, input.stage + (input.opcode == Opcode::ReduceSum));
    bool sums = op.opcode == Opcode::ReduceSum || op.opcode == Opcode::AccumulateRows;
    if (sums && input.space != Space::Element)
      return fmt::format("{} takes an element value, %{} is {}", name(op.opcode), op.inputs[i], name(input.space));
    if (!sums && !spreads(input.space, op.space))
      return fmt::format("a {} result cannot read %{}, which is {}", name(op.space), op.inputs[i], name(input.space));
    if (op.opcode == Opcode::Store && input.space != op.space)
      return fmt::format("store of %{}, which is {}, to {}", op.inputs[i], name(input.space), name(op.space));
  }
  if (op.stage != stage)
    return fmt::format("stage is {}, expected {} (the reductions on its longest path)", op.stage, stage);
  if (op.opcode == Opcode::Constant && op.space != Space::Uniform)
    return "a constant is uniform";
  if (op.opcode == Opcode::ReduceSum && op.space != Space::Row)
    return "reduce_sum gives a row value";
  if (!usesOperand(op.opcode))
    return "";
  if (op.operand < 0 || op.operand >= static_cast<int>(program.operands.size()))
    return fmt::format("operand {} does not exist", op.operand);
  const Operand& operand = program.operands[op.operand];
  if (operand.isOutput != (op.opcode != Opcode::Load))
    return fmt::format("{} of {}, which is an {}", name(op.opcode), operand.name,
                       operand.isOutput ? "output" : "input");
  if (op.type != operand.dtype)
    return fmt::format("type is {}, expected {} (of {})", name(op.type), name(operand.dtype), operand.name);
  if (op.opcode == Opcode::AccumulateRows && operand.kind != OperandKind::Column)
    return fmt::format("accumulate_rows to {}, which is {}; expected a column output", operand.name,
                       name(operand.kind));
  if (op.space != spaceOf(operand.kind))
    return fmt::format("space is {}, expected {} (of {})", name(op.space), name(spaceOf(operand.kind)), operand.name);
  if (op.opcode == Opcode::Store && operand.kind != OperandKind::Tile && operand.kind != OperandKind::Row)
    return fmt::format("store to {}, which is {}; expected a tile or row output", operand.name, name(operand.kind));
  return "";
}

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
  return "";
}

} // namespace

const char* name(DType type) {
  return kDTypes.at(static_cast<size_t>(type));
}
const char* name(OperandKind kind) {
  return kOperandKinds.at(static_cast<size_t>(kind));
}
const char* name(Space space) {
  return kSpaces.at(static_cast<size_t>(space));
}
const char* name(Opcode opcode) {
  return kOpcodes.at(static_cast<size_t>(opcode));
}
int byteSize(DType type) {
  return type == DType::F32 ? 4 : 2;
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

bool RowProgram::reduces() const {
  return std::any_of(instructions.begin(), instructions.end(),
                     [](const Instruction& op) { return op.opcode == Opcode::ReduceSum; });
}

std::string print(const RowProgram& program) {
  std::string text = fmt::format("program {} {}\n", program.name, program.columns);
  for (const Operand& operand : program.operands)
    text += fmt::format("{} {} {} {}\n", operand.isOutput ? "out" : "in", operand.name, name(operand.kind),
                        name(operand.dtype));
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& op = program.instructions[i];
    text += fmt::format("%{} = {}", i, name(op.opcode));
    for (int k = 0; k < inputCount(op.opcode); ++k)
      text += fmt::format(" %{}", op.inputs[k]);
    if (usesOperand(op.opcode))
      text += " " + program.operands.at(op.operand).name;
    if (op.opcode == Opcode::Constant)
      text += " " + exactText(op.constant);
    text += fmt::format(" : {} {} {}\n", name(op.type), name(op.space), op.stage);
  }
  return text;
}

std::string parse(const std::string& text, RowProgram& program) {
  TextLines lines(text);
  RowProgram result;
  auto failed = [&](std::string_view what) { return fmt::format("line {}: {}", lines.number(), what); };
  if (!lines.next() || lines.count() != 3 || lines.word(0) != "program" || !isIdentifier(lines.word(1)) ||
      !lines.integer(2, result.columns))
    return failed("expected `program <name> <columns>`");
  result.name = lines.word(1);
  bool more = lines.next();
  for (; more && (lines.word(0) == "in" || lines.word(0) == "out"); more = lines.next()) {
    Operand operand;
    operand.isOutput = lines.word(0) == "out";
    operand.name = lines.word(1);
    if (lines.count() != 4 || !isIdentifier(operand.name) || !find(kOperandKinds, lines.word(2), operand.kind) ||
        !find(kDTypes, lines.word(3), operand.dtype))
      return failed("expected `in|out <name> tile|row|column|scalar f32|bf16|f16`");
    result.operands.push_back(operand);
  }
  for (; more; more = lines.next()) {
    Instruction op;
    int64_t number = 0;
    if (!lines.reference(0, number) || number != static_cast<int64_t>(result.instructions.size()) ||
        lines.word(1) != "=" || !find(kOpcodes, lines.word(2), op.opcode))
      return failed(fmt::format("expected `%{} = <opcode> ...`", result.instructions.size()));
    size_t at = 3;
    for (int k = 0; k < inputCount(op.opcode); ++k, ++at) {
      if (!lines.reference(at, number) || number > INT32_MAX)
        return failed(fmt::format("{} takes {} values", name(op.opcode), inputCount(op.opcode)));
      op.inputs[k] = static_cast<int>(number);
    }
    if (usesOperand(op.opcode)) {
      auto found = std::find_if(result.operands.begin(), result.operands.end(),
                                [&](const Operand& operand) { return operand.name == lines.word(at); });
      if (found == result.operands.end())
        return failed(fmt::format("no operand is called `{}`", lines.word(at)));
      op.operand = static_cast<int>(found - result.operands.begin());
      ++at;
    }
    if (op.opcode == Opcode::Constant && !lines.real(at++, op.constant))
      return failed("expected a number");
    int64_t stage = 0;
    if (lines.count() != at + 4 || lines.word(at) != ":" || !find(kDTypes, lines.word(at + 1), op.type) ||
        !find(kSpaces, lines.word(at + 2), op.space) || !lines.integer(at + 3, stage) || stage > INT32_MAX)
      return failed("expected `: <type> <space> <stage>` at the end");
    op.stage = static_cast<int>(stage);
    result.instructions.push_back(op);
  }
  if (std::string reason = check(result); !reason.empty())
    return fmt::format("program {}: {}", result.name, reason);
  program = std::move(result);
  return "";
}

} // namespace cermet
