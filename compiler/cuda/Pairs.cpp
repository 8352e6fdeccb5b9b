// Two neighbouring elements at once: floats of sixteen bits stay in the words that memory has them in, and are added
// and multiplied there with one rounding; what is computed in f32, integers and booleans are two values.
#include "compiler/cuda/Values.h"
#include <fmt/format.h>

namespace cermet {

bool ProgramValues::isPair(int index) const {
  const Instruction& instruction = program.instructions[index];
  return (instruction.type == DType::BF16 || instruction.type == DType::F16) && !inRow(index) &&
         instruction.opcode != Opcode::Constant;
}

bool ProgramValues::isPairArithmetic(int index) const {
  const Instruction& instruction = program.instructions[index];
  const auto isSame = [&](int input) {
    const Instruction& given = program.instructions[input];
    return given.type == instruction.type && (isPair(input) || given.opcode == Opcode::Constant);
  };
  switch (instruction.opcode) {
  case Opcode::Add:
  case Opcode::Sub:
  case Opcode::Mul:
    return isPair(index) && isSame(instruction.inputs[0]) && isSame(instruction.inputs[1]);
  default:
    return false;
  }
}

std::string ProgramValues::pairDeclaration(int index) const {
  const Instruction& instruction = program.instructions[index];
  if (isPair(index))
    return fmt::format("Pair<{}> v{}", deviceType(instruction.type), index);
  return fmt::format("{} v{}{}", valueType(instruction.type), index, isVectorWide(instruction) ? "" : "[2]");
}

std::string ProgramValues::pairExpression(int index) const {
  const Instruction& instruction = program.instructions[index];
  const ProgramValues low = ofLane(0), high = ofLane(1);
  if (!isPair(index))
    return isVectorWide(instruction) ? low.rounded(index)
                                     : fmt::format("{{{}, {}}}", low.rounded(index), high.rounded(index));
  const auto isSame = [&](int input) { return isPair(input) && program.instructions[input].type == instruction.type; };
  const auto input = [&](int n) { return fmt::format("v{}", instruction.inputs[n]); };
  const auto either = [&](int n) {
    return program.instructions[instruction.inputs[n]].opcode == Opcode::Constant
               ? fmt::format("pair_of<{0}>({1}, {1})", deviceType(instruction.type), use(instruction.inputs[n]))
               : input(n);
  };
  if (instruction.opcode == Opcode::Load)
    return fmt::format("element.{}", field(instruction.operand));
  if (isPairArithmetic(index)) {
    const char sign = instruction.opcode == Opcode::Add ? '+' : instruction.opcode == Opcode::Sub ? '-' : '*';
    return fmt::format("{} {} {}", either(0), sign, either(1));
  }
  if (instruction.opcode == Opcode::Neg && isSame(instruction.inputs[0]))
    return "-" + input(0);
  if (instruction.opcode == Opcode::Abs && isSame(instruction.inputs[0]))
    return fmt::format("absolute({})", input(0));
  if (instruction.opcode == Opcode::Select && isSame(instruction.inputs[1]) && isSame(instruction.inputs[2])) {
    const int condition = instruction.inputs[0];
    return inRow(condition) || isVectorWide(program.instructions[condition])
               ? fmt::format("{} ? {} : {}", low.use(condition), input(1), input(2))
               : fmt::format("chosen({}, {}, {}, {})", low.use(condition), high.use(condition), input(1), input(2));
  }
  return fmt::format("pair_of<{}>({}, {})", deviceType(instruction.type), low.expression(index),
                     high.expression(index));
}

std::string ProgramValues::pairStatements(const Needed& needed, const char* indent, const Keeping& keeping,
                                          int stage) const {
  std::string result;
  for (size_t i = 0; i < needed.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (!needed[i] || instruction.opcode == Opcode::Constant)
      continue;
    const size_t place = keeping.placeOf(i);
    if (!keeping.keeps(i) || keeping.stages[place] >= stage) {
      result += fmt::format("{}const {} = {};\n", indent, pairDeclaration(i), pairExpression(i));
      continue;
    }
    // What an earlier stage computed.
    result += fmt::format("{}{};\n{}if constexpr (Kept::kIsUsed) {{\n", indent, pairDeclaration(i), indent);
    const std::string kept = fmt::format("kept.at[{}][keptSlot", place);
    result += isPair(i) ? fmt::format("{}  v{} = pair_of<{}>({}], {} + 1]);\n", indent, i, deviceType(instruction.type),
                                      kept, kept)
                        : fmt::format("{0}  v{1}[0] = {2}];\n{0}  v{1}[1] = {2} + 1];\n", indent, i, kept);
    result += fmt::format("{}}} else {{\n", indent);
    result += isPair(i) ? fmt::format("{}  v{} = {};\n", indent, i, pairExpression(i))
                        : fmt::format("{0}  v{1}[0] = {2};\n{0}  v{1}[1] = {3};\n", indent, i, ofLane(0).rounded(i),
                                      ofLane(1).rounded(i));
    result += fmt::format("{}}}\n", indent);
  }
  return result;
}

} // namespace cermet
