#include "compiler/plan/ProgramWriter.h"
#include "llvm/ADT/StringExtras.h"
#include <bit>
#include <fmt/format.h>

namespace cermet {

std::string identifier(std::string name) {
  for (char& c : name)
    if (!llvm::isAlnum(c) && c != '_')
      c = '_';
  return name.empty() || llvm::isDigit(name[0]) ? fmt::format("_{}", name) : name;
}

int ProgramWriter::emit(Opcode opcode, DType type, Space space, llvm::ArrayRef<int> inputs, int operand,
                        double constant) {
  Instruction op{opcode, type, space, 0, {-1, -1, -1}, operand, constant};
  for (size_t i = 0; i < inputs.size(); ++i) {
    op.inputs[i] = inputs[i];
    const Instruction& input = program.instructions[inputs[i]];
    op.stage = std::max(op.stage, input.stage + isReduction(input.opcode));
  }
  // Broadcasts and widening casts leave no instruction, so equal ones can meet only here.
  auto number = [](int input) { return uint64_t(uint32_t(input)); };
  const InstructionKey key{
      (uint64_t(opcode) << 48) | (uint64_t(type) << 40) | (uint64_t(space) << 32) | number(operand),
      (number(op.inputs[0]) << 32) | number(op.inputs[1]), number(op.inputs[2]), std::bit_cast<uint64_t>(constant)};
  auto [known, isNew] = emitted.try_emplace(key, static_cast<int>(program.instructions.size()));
  if (isNew)
    program.instructions.push_back(op);
  return known->second;
}

int ProgramWriter::spread(int value, Space space) {
  const Instruction& op = program.instructions[value];
  return op.space == space ? value : emit(Opcode::Cast, op.type, space, {value});
}

int ProgramWriter::addOperand(std::string name, OperandKind kind, DType dtype, bool isOutput, int position,
                              bool isStrided) {
  name = identifier(std::move(name));
  std::string unique = name;
  for (int i = 1; !names.insert(unique).second; ++i)
    unique = fmt::format("{}_{}", name, i);
  isStrided &= kind == OperandKind::Tile || kind == OperandKind::Column || kind == OperandKind::Gathered;
  program.operands.push_back({unique, kind, dtype, isOutput, isStrided});
  positions.push_back(position);
  return static_cast<int>(program.operands.size()) - 1;
}

std::optional<int> ProgramWriter::pick(int summed, DType type) {
  const auto& all = program.instructions;
  bool isNegated = false;
  for (; all[summed].opcode == Opcode::Neg && all[summed].type == type; isNegated = !isNegated)
    summed = all[summed].inputs[0];
  const Instruction selection = all[summed];
  if (selection.opcode != Opcode::Select || classOf(type) != ValueClass::Real)
    return std::nullopt;
  const Instruction& condition = all[selection.inputs[0]];
  if (condition.opcode != Opcode::Equal && condition.opcode != Opcode::NotEqual)
    return std::nullopt;
  const bool isSwapped = condition.opcode == Opcode::NotEqual;
  int value = selection.inputs[isSwapped ? 2 : 1];
  const int other = selection.inputs[isSwapped ? 1 : 2];
  if (!isZero(other) || all[value].type != type)
    return std::nullopt;
  const double missing = all[other].opcode == Opcode::Pick ? all[other].constant : 0;
  for (int side : {0, 1}) {
    const Instruction& index = all[condition.inputs[side]];
    const int number = condition.inputs[1 - side];
    const bool isOneEach =
        all[number].stage == 0 && (all[number].space == Space::Row || all[number].space == Space::Uniform);
    const bool isSameNumber = all[other].opcode != Opcode::Pick || all[other].inputs[1] == number;
    if (index.opcode == Opcode::ColumnIndex && index.constant == 0 && isOneEach && isSameNumber) {
      if (isNegated)
        value = emit(Opcode::Neg, type, all[value].space, {value});
      return emit(Opcode::Pick, type, Space::Row, {spread(value, Space::Element), number}, -1, missing);
    }
  }
  return std::nullopt;
}

// Whether a value is 0, or picked of zeros.
bool ProgramWriter::isZero(int value) const {
  const auto& all = program.instructions;
  if (all[value].opcode == Opcode::Pick)
    value = all[value].inputs[0];
  while (all[value].opcode == Opcode::Cast)
    value = all[value].inputs[0];
  return all[value].opcode == Opcode::Constant && all[value].constant == 0;
}

void ProgramWriter::dropDead() {
  std::vector<Instruction>& all = program.instructions;
  std::vector<char> isNeeded(all.size(), false);
  for (size_t i = all.size(); i-- > 0;) {
    isNeeded[i] |= all[i].opcode == Opcode::Store || all[i].opcode == Opcode::AccumulateRows;
    for (int input : all[i].inputs)
      if (isNeeded[i] && input >= 0)
        isNeeded[input] = true;
  }
  std::vector<int> place(all.size());
  int kept = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!isNeeded[i])
      continue;
    for (int& input : all[i].inputs)
      if (input >= 0)
        input = place[input];
    place[i] = kept;
    all[kept++] = all[i];
  }
  all.resize(kept);
}

} // namespace cermet
