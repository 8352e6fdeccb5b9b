#include "compiler/cuda/Values.h"
#include "runtime/abi/Rounding.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <fmt/format.h>

namespace cermet {
namespace {

std::string literal(double value) {
  const float rounded = static_cast<float>(value);
  if (!std::isfinite(rounded))
    return fmt::format("float_from_bits({:#x}u)", std::bit_cast<uint32_t>(rounded));
  return fmt::format("{:a}f", rounded);
}

std::string constantText(const Instruction& instruction) {
  switch (classOf(instruction.type)) {
  case ValueClass::Real:
    return literal(roundTo(codeOf(instruction.type), instruction.constant));
  case ValueClass::Bool:
    return instruction.constant != 0 ? "true" : "false";
  case ValueClass::Integer:
    break;
  }
  // The smallest has no literal of its own.
  if (instruction.constant <= -0x1p63)
    return "(-9223372036854775807ll - 1)";
  return fmt::format("{}ll", static_cast<int64_t>(std::min(instruction.constant, 0x1.fffffffffffffp62)));
}

} // namespace

const char* deviceType(DType type) {
  return type == DType::F32 ? "float" : name(type);
}

const char* valueType(DType type) {
  constexpr const char* names[] = {"float", "i64", "bool"};
  return names[static_cast<int>(classOf(type))];
}

ProgramValues::ProgramValues(const RowProgram& program, bool runs, int vector)
    : program(program), vector(vector), stored(program.instructions.size()), levels(program.instructions.size()) {
  const auto isWide = [&](int operand) { return operand >= 0 && program.operands[operand].dtype == DType::F32; };
  for (size_t i = 0; i < program.operands.size(); ++i)
    hasWideTiles |= isTile(i) && isWide(static_cast<int>(i));
  for (size_t i = program.instructions.size(); i-- > 0;) {
    const Instruction& instruction = program.instructions[i];
    if (isWide(instruction.operand) && program.operands[instruction.operand].isOutput)
      stored[i] = true;
    for (int input : instruction.inputs)
      if (input >= 0 && stored[i])
        stored[input] = true;
  }
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    for (int input : program.instructions[i].inputs)
      if (input >= 0)
        levels[i] = std::max(levels[i], levels[input] + (isReduction(input) ? 1 : 0));
    if (const int maximum = runs ? maximumBelow(program.instructions[i]) : -1; maximum >= 0) {
      levels[i] = levels[maximum];
      pairs.push_back({maximum, static_cast<int>(i)});
    }
    if (isReduction(i))
      stages = std::max(stages, levels[i] + 2);
  }
}

// The maximum whose distance to each element is the exponent of what is summed; -1 where that is something else.
int ProgramValues::maximumBelow(const Instruction& sum) const {
  const auto& all = program.instructions;
  if (sum.opcode != Opcode::ReduceSum || sum.type != DType::F32)
    return -1;
  const Instruction& exponential = all[sum.inputs[0]];
  if (exponential.opcode != Opcode::Exp || exponential.type != DType::F32)
    return -1;
  const Instruction& difference = all[exponential.inputs[0]];
  if (difference.opcode != Opcode::Sub || difference.type != DType::F32)
    return -1;
  const int maximum = difference.inputs[1];
  const bool isPair = all[maximum].opcode == Opcode::ReduceMax && all[maximum].type == DType::F32 &&
                      all[maximum].inputs[0] == difference.inputs[0];
  const auto isOf = [&](const Running& pair) { return pair.maximum == maximum; };
  return isPair && std::none_of(pairs.begin(), pairs.end(), isOf) ? maximum : -1;
}

bool ProgramValues::inRow(size_t i) const {
  const Instruction& instruction = program.instructions[i];
  return instruction.space == Space::Row || (instruction.space == Space::Uniform && instruction.opcode == Opcode::Load);
}

std::string ProgramValues::field(int operand) const {
  return fmt::format("{}_{}", program.operands[operand].name, operand);
}

void ProgramValues::need(int index, Needed& needed) const {
  if (index < 0 || inRow(index) || needed[index])
    return;
  needed[index] = true;
  if (program.instructions[index].opcode == Opcode::Cumsum) // the element has it
    return;
  for (int input : program.instructions[index].inputs)
    need(input, needed);
}

std::string ProgramValues::use(int index) const {
  const Instruction& instruction = program.instructions[index];
  if (instruction.opcode == Opcode::Constant)
    return constantText(instruction);
  if (inRow(index))
    return fmt::format("row.v{}", index);
  if (lane < 0 || isVectorWide(instruction))
    return fmt::format("v{}", index);
  return isPair(index) ? fmt::format("{}(v{})", lane == 0 ? "low" : "high", index)
                       : fmt::format("v{}[{}]", index, lane);
}

std::string ProgramValues::fromMemory(DType type, const std::string& packed) {
  constexpr const char* readers[] = {"to_float", "to_integer", "to_bool"};
  return fmt::format("{}({})", readers[static_cast<int>(classOf(type))], packed);
}

std::string ProgramValues::toMemory(DType type, const std::string& value) {
  constexpr const char* writers[] = {"from_float", "from_integer", "from_bool"};
  return fmt::format("{}<{}>({})", writers[static_cast<int>(classOf(type))], deviceType(type), value);
}

std::string ProgramValues::conversion(DType from, DType to, const std::string& value) const {
  const ValueClass source = classOf(from), target = classOf(to);
  if (source == target)
    return value;
  if (target == ValueClass::Bool)
    return fmt::format("{} != 0", value);
  if (source == ValueClass::Bool)
    return target == ValueClass::Real ? fmt::format("({} ? 1.0f : 0.0f)", value) : fmt::format("i64({})", value);
  if (target == ValueClass::Integer)
    return fmt::format("real_to_integer({})", value);
  return to == DType::F32 ? fmt::format("float({})", value) : fmt::format("integer_to_sticky({})", value);
}

// Whether a vector's columns all compare alike with a number: none of them is beyond the first.
bool ProgramValues::isVectorWide(const Instruction& comparison) const {
  if ((comparison.opcode != Opcode::Less && comparison.opcode != Opcode::LessEqual) || program.columns % vector != 0)
    return false;
  const Instruction* sides[] = {&program.instructions[comparison.inputs[0]],
                                &program.instructions[comparison.inputs[1]]};
  const bool isLeft = sides[0]->opcode == Opcode::ColumnIndex;
  const Instruction &index = *sides[isLeft ? 0 : 1], &number = *sides[isLeft ? 1 : 0];
  if (index.opcode != Opcode::ColumnIndex || index.constant != 0 || index.type != DType::I64 ||
      number.opcode != Opcode::Constant || classOf(number.type) != ValueClass::Integer)
    return false;
  // What divides the columns is the first number of the right part.
  const bool isOfRight = isLeft != (comparison.opcode == Opcode::LessEqual);
  const double first = number.constant + (isOfRight ? 0 : 1);
  return std::abs(first) < 0x1p31 && static_cast<int64_t>(first) % vector == 0;
}

// The column's number beside one that all columns have: in 32 bits. Empty where it is another comparison.
std::string ProgramValues::columnComparison(const Instruction& instruction, const char* sign) const {
  for (int side : {0, 1}) {
    const Instruction& index = program.instructions[instruction.inputs[side]];
    const Instruction& number = program.instructions[instruction.inputs[1 - side]];
    if (index.opcode != Opcode::ColumnIndex || index.constant != 0 || index.type != DType::I64 ||
        (number.space != Space::Row && number.space != Space::Uniform))
      continue;
    std::string column = "element.first", other;
    if (isVectorWide(instruction)) {
      other = fmt::format("{}", static_cast<int64_t>(number.constant));
    } else {
      // Beside the lane, so that what is left is the same for a vector.
      column = lane > 0 ? fmt::format("element.lane + {}", lane) : "element.lane";
      other = fmt::format("nearest_column<kColumns>({}) - element.first", use(instruction.inputs[1 - side]));
    }
    return side == 0 ? fmt::format("{} {} {}", column, sign, other) : fmt::format("{} {} {}", other, sign, column);
  }
  return "";
}

std::string ProgramValues::expression(int index) const {
  const Instruction& instruction = program.instructions[index];
  const auto a = [&] { return use(instruction.inputs[0]); };
  const auto b = [&] { return use(instruction.inputs[1]); };
  const auto infix = [&](const char* sign) { return fmt::format("{} {} {}", a(), sign, b()); };
  const ValueClass kind = classOf(instruction.type);
  // Integers wrap, which only unsigned ones may do in C++.
  const auto arithmetic = [&](const char* sign) {
    return kind == ValueClass::Real ? infix(sign) : fmt::format("i64(u64({}) {} u64({}))", a(), sign, b());
  };
  const auto compared = [&](const char* sign) {
    const std::string column = columnComparison(instruction, sign);
    return column.empty() ? infix(sign) : column;
  };
  const auto call = [&](const char* function) { return fmt::format("{}({})", function, a()); };
  const auto call2 = [&](const char* function) { return fmt::format("{}({}, {})", function, a(), b()); };
  const auto graded = [&](const char* function) {
    return fmt::format("{}_{}({})", isFast(index) ? "fast" : "exact", function, a());
  };
  switch (instruction.opcode) {
  case Opcode::Load:
    return lane < 0 ? fmt::format("element.{}", field(instruction.operand))
                    : fmt::format("element.{}[{}]", field(instruction.operand), lane);
  case Opcode::Constant:
    return use(index);
  case Opcode::ColumnIndex: {
    const std::string column = lane > 0 ? fmt::format("(element.column() + {})", lane) : "element.column()";
    return instruction.constant == 0 ? fmt::format("i64({})", column)
                                     : fmt::format("i64({} % {})", column, int64_t(instruction.constant));
  }
  case Opcode::Cast:
    return conversion(program.instructions[instruction.inputs[0]].type, instruction.type, a());
  case Opcode::Add:
    return arithmetic("+");
  case Opcode::Sub:
    return arithmetic("-");
  case Opcode::Mul:
    return arithmetic("*");
  case Opcode::Neg:
    return kind == ValueClass::Real ? call("-") : fmt::format("i64(u64(0) - u64({}))", a());
  case Opcode::Abs:
    return kind == ValueClass::Real ? call("absolute") : fmt::format("({0} < 0 ? i64(u64(0) - u64({0})) : {0})", a());
  case Opcode::Max:
  case Opcode::Min: {
    const bool isMax = instruction.opcode == Opcode::Max;
    if (kind == ValueClass::Real)
      return call2(isMax ? "maximum" : "minimum");
    if (kind == ValueClass::Bool)
      return infix(isMax ? "||" : "&&");
    return fmt::format("({0} {2} {1} ? {0} : {1})", a(), b(), isMax ? ">" : "<");
  }
  case Opcode::Div:
    if (!isFast(index) || instruction.space != Space::Element)
      return call2("exact_divide");
    return call2(inRow(instruction.inputs[1]) ? "fast_row_divide" : "fast_divide");
  case Opcode::Pow:
    return call2("power");
  case Opcode::Exp: {
    // Below a row's value, as where that is its maximum: what is too small to be normal counts for nothing beside it.
    const Instruction& exponent = program.instructions[instruction.inputs[0]];
    const bool isBelow = exponent.opcode == Opcode::Sub && inRow(exponent.inputs[1]);
    return isFast(index) && isBelow ? call("fast_exp_normal") : graded("exp");
  }
  case Opcode::Log:
    return call("logarithm");
  case Opcode::Sqrt:
    return call("square_root");
  case Opcode::Rsqrt:
    return call("inverse_sqrt");
  case Opcode::Tanh:
    return isFast(index) && instruction.type == DType::BF16 ? call("brief_tanh") : graded("tanh");
  case Opcode::Erf:
    return graded("erf");
  case Opcode::Relu:
    return call("relu");
  case Opcode::Sigmoid:
    return graded("sigmoid");
  case Opcode::Softplus:
    return graded("softplus");
  case Opcode::Silu:
    return graded("silu");
  case Opcode::Gelu:
    return graded("gelu");
  case Opcode::GeluTanh:
    return graded("gelu_tanh");
  case Opcode::Equal:
    return compared("==");
  case Opcode::NotEqual:
    return compared("!=");
  case Opcode::Less:
    return compared("<");
  case Opcode::LessEqual:
    return compared("<=");
  case Opcode::Select:
    return fmt::format("{} ? {} : {}", a(), b(), use(instruction.inputs[2]));
  case Opcode::RandomKey:
    return call2("random_key");
  case Opcode::RandomBits:
    return call2("random_bits");
  case Opcode::Cumsum:
    return fmt::format("element.sum{}", index);
  case Opcode::ReduceSum:
  case Opcode::ReduceMax:
  case Opcode::ReduceMin:
  case Opcode::Pick:
  case Opcode::Store:
  case Opcode::AccumulateRows:
    break;
  }
  return "";
}

// Whether the result is a value of the instruction's type already.
bool ProgramValues::isExact(const Instruction& instruction) const {
  const auto isOfType = [&](int input) { return program.instructions[input].type == instruction.type; };
  switch (instruction.opcode) {
  case Opcode::Load:
  case Opcode::Constant:
    return true;
  case Opcode::Abs:
  case Opcode::Neg: // the smallest integer's wraps
    return classOf(instruction.type) == ValueClass::Real && isOfType(instruction.inputs[0]);
  case Opcode::Relu:
    return isOfType(instruction.inputs[0]);
  case Opcode::Max:
  case Opcode::Min:
    return isOfType(instruction.inputs[0]) && isOfType(instruction.inputs[1]);
  case Opcode::Select:
    return isOfType(instruction.inputs[1]) && isOfType(instruction.inputs[2]);
  case Opcode::Cast:
    return isOfType(instruction.inputs[0]) ||
           (classOf(program.instructions[instruction.inputs[0]].type) == ValueClass::Bool);
  default:
    return false;
  }
}

// Whether all that reads a real is stores of elements, which round to its type.
bool ProgramValues::isRoundedByStores(int index) const {
  if (classOf(program.instructions[index].type) != ValueClass::Real)
    return false;
  for (const Instruction& user : program.instructions)
    if (std::ranges::find(user.inputs, index) != std::end(user.inputs) &&
        (user.opcode != Opcode::Store || user.space != Space::Element || user.type != program.instructions[index].type))
      return false;
  return true;
}

std::string ProgramValues::rounded(int index) const {
  const Instruction& instruction = program.instructions[index];
  const std::string value = expression(index);
  if (instruction.type == DType::F32 || instruction.type == DType::I64 || instruction.type == DType::I1 ||
      isExact(instruction) || isRoundedByStores(index))
    return value;
  const bool isReal = classOf(instruction.type) == ValueClass::Real;
  return fmt::format("{}<{}>({})", isReal ? "round_to" : "wrap_to", deviceType(instruction.type), value);
}

bool ProgramValues::isExpensive(int index) const {
  const Instruction& instruction = program.instructions[index];
  if (instruction.space != Space::Element || classOf(instruction.type) != ValueClass::Real)
    return false;
  switch (instruction.opcode) {
  case Opcode::Div:
  case Opcode::Pow:
  case Opcode::Exp:
  case Opcode::Log:
  case Opcode::Sqrt:
  case Opcode::Rsqrt:
  case Opcode::Tanh:
  case Opcode::Erf:
  case Opcode::Sigmoid:
  case Opcode::Softplus:
  case Opcode::Silu:
  case Opcode::Gelu:
  case Opcode::GeluTanh:
    return true;
  case Opcode::Select:
    return isRandom(instruction.inputs[0]);
  default:
    return false;
  }
}

// Whether it compares a random number.
bool ProgramValues::isRandom(int comparison) const {
  const Instruction& instruction = program.instructions[comparison];
  return inputCount(instruction.opcode) == 2 && std::ranges::any_of(instruction.inputs, [&](int input) {
           return input >= 0 && program.instructions[input].opcode == Opcode::RandomBits;
         });
}

std::string ProgramValues::statements(const Needed& needed, const char* indent) const {
  return statements(needed, indent, {}, 0);
}

std::string ProgramValues::statements(const Needed& needed, const char* indent, const Keeping& keeping,
                                      int stage) const {
  std::string result;
  for (size_t i = 0; i < needed.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (!needed[i] || instruction.opcode == Opcode::Constant)
      continue;
    const size_t place = keeping.placeOf(i);
    if (keeping.keeps(i) && keeping.stages[place] < stage) {
      result +=
          fmt::format("{0}float v{1};\n{0}if constexpr (Kept::kIsUsed)\n{0}  v{1} = kept.at[{2}][keptSlot];\n{0}else\n"
                      "{0}  v{1} = {3};\n",
                      indent, i, place, rounded(i));
      continue;
    }
    result += fmt::format("{}const {} v{} = {};\n", indent, valueType(instruction.type), i, rounded(i));
    if (keeping.keeps(i))
      result += fmt::format("{0}if constexpr (Kept::kIsUsed)\n{0}  kept.at[{1}][keptSlot] = v{2};\n", indent, place, i);
  }
  return result;
}

} // namespace cermet
