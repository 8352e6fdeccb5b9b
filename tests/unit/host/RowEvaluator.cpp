#include "tests/unit/host/RowEvaluator.h"
#include <cmath>
#include <limits>

namespace cermet::test {
namespace {

struct Format {
  int fraction, lowest; // bits behind the point, exponent of the smallest normal number
  double largest;
};

Format formatOf(DType dtype) {
  switch (dtype) {
  case DType::F32:
    return {23, -126, std::numeric_limits<float>::max()};
  case DType::BF16:
    return {7, -126, 0x1.fep127};
  case DType::F16:
    return {10, -14, 65504.0};
  }
  return {};
}

double roundOnce(double value, Format format) {
  if (!std::isfinite(value) || value == 0)
    return value;
  double unit = std::ldexp(1.0, std::max(std::ilogb(value), format.lowest) - format.fraction);
  double rounded = std::nearbyint(value / unit) * unit;
  return std::abs(rounded) > format.largest ? std::copysign(HUGE_VAL, value) : std::copysign(rounded, value);
}

double compute(const Instruction& instruction, double a, double b) {
  switch (instruction.opcode) {
  case Opcode::Constant:
    return instruction.constant;
  case Opcode::Cast:
    return a;
  case Opcode::Add:
    return a + b;
  case Opcode::Sub:
    return a - b;
  case Opcode::Mul:
    return a * b;
  case Opcode::Div:
    return a / b;
  case Opcode::Neg:
    return -a;
  case Opcode::Exp:
    return std::exp(a);
  case Opcode::Rsqrt:
    return 1 / std::sqrt(a);
  case Opcode::Sigmoid:
    return 1 / (1 + std::exp(-a));
  case Opcode::Silu:
    return a / (1 + std::exp(-a));
  default:
    return NAN;
  }
}

} // namespace

double roundTo(double value, DType dtype) {
  value = roundOnce(value, formatOf(DType::F32));
  return dtype == DType::F32 ? value : roundOnce(value, formatOf(dtype));
}

double unitInLastPlace(double value, DType dtype) {
  Format format = formatOf(dtype);
  int exponent = value == 0 || !std::isfinite(value) ? format.lowest : std::max(std::ilogb(value), format.lowest);
  return std::ldexp(1.0, exponent - format.fraction);
}

void evaluateRow(const RowProgram& program, std::vector<Row>& operands, std::vector<Row>& sums) {
  std::vector<Row> values(program.instructions.size());
  auto at = [](const Row& row, size_t column) { return row.size() == 1 ? row[0] : row[column]; };
  for (size_t i = 0; i < values.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    bool isWide = instruction.space == Space::Element || instruction.space == Space::Column;
    Row& result = values[i];
    result.resize(isWide ? program.columns : 1);
    const Row none{0.0};
    const Row& a = instruction.inputs[0] < 0 ? none : values[instruction.inputs[0]];
    const Row& b = instruction.inputs[1] < 0 ? none : values[instruction.inputs[1]];
    switch (instruction.opcode) {
    case Opcode::Load:
      result = operands[instruction.operand];
      break;
    case Opcode::Store:
      for (size_t c = 0; c < result.size(); ++c)
        operands[instruction.operand][c] = roundTo(at(a, c), instruction.type);
      break;
    case Opcode::AccumulateRows:
      for (size_t c = 0; c < result.size(); ++c)
        sums[instruction.operand][c] += at(a, c);
      break;
    case Opcode::ReduceSum: {
      double sum = 0;
      for (int64_t c = 0; c < program.columns; ++c)
        sum += at(a, c);
      result[0] = roundTo(sum, instruction.type);
      break;
    }
    default:
      for (size_t c = 0; c < result.size(); ++c)
        result[c] = roundTo(compute(instruction, at(a, c), at(b, c)), instruction.type);
    }
  }
}

} // namespace cermet::test
