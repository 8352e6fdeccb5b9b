#include "tests/unit/compiler/RowEvaluator.h"
#include "runtime/abi/Random.h"
#include <array>
#include <cmath>
#include <limits>

namespace cermet::test {
namespace {

struct Format {
  int fraction, lowest; // bits behind the point, exponent of the smallest normal number
  Number largest;
  bool saturates = false; // has no infinity: what is larger than the largest becomes that
};

Format formatOf(DType dtype) {
  return dtype == DType::BF16     ? Format{7, -126, 0x1.fep127L}
         : dtype == DType::F16    ? Format{10, -14, 65504.0L}
         : dtype == DType::F8E4M3 ? Format{3, -6, 448.0L, true}
         : dtype == DType::F8E5M2 ? Format{2, -14, 57344.0L}
                                  : Format{23, -126, std::numeric_limits<float>::max()};
}

constexpr int kDigits = std::numeric_limits<Number>::digits;

// Powers of two between the last bit of the smallest number of any format and the sums that round its largest.
class Powers {
public:
  Powers() {
    for (size_t index = 0; index < powers.size(); ++index)
      powers[index] = std::ldexp(1.0L, kFirst + static_cast<int>(index));
  }
  Number of(int exponent) const { return powers[static_cast<size_t>(exponent - kFirst)]; }

private:
  static constexpr int kFirst = -150;
  std::array<Number, 130 + kDigits - kFirst> powers;
};
const Powers kPowers;

Number wrap(uint64_t bits, DType dtype) {
  const int unused = 64 - 8 * byteSize(dtype);
  const uint64_t high = bits << unused;
  return traitsOf(dtype).format.isSigned ? Number(static_cast<int64_t>(high) >> unused) : Number(high >> unused);
}

uint64_t bitsOf(Number whole) {
  return whole < 0 ? 0 - static_cast<uint64_t>(-whole) : static_cast<uint64_t>(whole);
}

Number integerOf(Opcode opcode, Number a, Number b, DType dtype) {
  switch (opcode) {
  case Opcode::Add:
    return wrap(bitsOf(a) + bitsOf(b), dtype);
  case Opcode::Sub:
    return wrap(bitsOf(a) - bitsOf(b), dtype);
  case Opcode::Mul:
    return wrap(bitsOf(a) * bitsOf(b), dtype);
  case Opcode::Neg:
    return wrap(0 - bitsOf(a), dtype);
  case Opcode::Abs:
    return wrap(bitsOf(std::fabs(a)), dtype);
  case Opcode::Max:
    return wrap(bitsOf(std::fmax(a, b)), dtype);
  case Opcode::Min:
    return wrap(bitsOf(std::fmin(a, b)), dtype);
  case Opcode::RandomKey:
    return wrap(randomKey(bitsOf(a), bitsOf(b)), dtype);
  case Opcode::RandomBits:
    return wrap(randomBits(bitsOf(a), static_cast<uint32_t>(bitsOf(b))), dtype);
  default:
    return NAN;
  }
}

double larger(double a, double b) {
  return a > b || std::isnan(a) ? a : b;
}
double smaller(double a, double b) {
  return a < b || std::isnan(a) ? a : b;
}

double realOf(Opcode opcode, double a, double b) {
  constexpr double root = 0.7978845608028653559; // of 2 / pi
  switch (opcode) {
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
  case Opcode::Abs:
    return std::fabs(a);
  case Opcode::Max:
    return larger(a, b);
  case Opcode::Min:
    return smaller(a, b);
  case Opcode::Pow:
    return std::pow(a, b);
  case Opcode::Exp:
    return std::exp(a);
  case Opcode::Log:
    return std::log(a);
  case Opcode::Sqrt:
    return std::sqrt(a);
  case Opcode::Rsqrt:
    return 1 / std::sqrt(a);
  case Opcode::Tanh:
    return std::tanh(a);
  case Opcode::Erf:
    return std::erf(a);
  case Opcode::Relu:
    return larger(a, 0);
  case Opcode::Sigmoid:
    return 1 / (1 + std::exp(-a));
  case Opcode::Softplus:
    return larger(a, 0) + std::log1p(std::exp(-std::fabs(a)));
  case Opcode::Silu:
    return a / (1 + std::exp(-a));
  case Opcode::Gelu: // as x / 2 * (1 + erf(x / sqrt 2)) it would cancel far below 0
    return 0.5 * a * std::erfc(-a * M_SQRT1_2);
  case Opcode::GeluTanh: // the same of x / 2 * (1 + tanh u)
    return a / (1 + std::exp(-2 * root * (a + 0.044715 * a * a * a)));
  default:
    return NAN;
  }
}

} // namespace

Number nearest(Number value, DType dtype) {
  if (dtype == DType::I1)
    return value != 0;
  if (classOf(dtype) == ValueClass::Integer)
    return std::isfinite(value) ? wrap(bitsOf(std::fmod(std::trunc(value), 0x1p64L)), dtype) : 0;
  if (std::isnan(value) || value == 0)
    return value;
  const Format format = formatOf(dtype);
  if (std::isinf(value))
    return format.saturates ? std::copysign(format.largest, value) : value;
  const Number magnitude = std::fabs(value);
  Number rounded = HUGE_VALL;
  if (magnitude < 2 * format.largest) { // a sum of which the last bit is the format's is rounded there
    const Number large = kPowers.of(std::max(std::ilogb(magnitude), format.lowest) - format.fraction + kDigits - 1);
    rounded = (magnitude + large) - large;
  }
  if (rounded > format.largest)
    rounded = format.saturates ? format.largest : HUGE_VALL;
  return std::copysign(rounded, value);
}

Number roundTo(Number value, DType dtype) {
  return nearest(classOf(dtype) == ValueClass::Real ? nearest(value, DType::F32) : value, dtype);
}

Number unitInLastPlace(Number value, DType dtype) {
  Format format = formatOf(dtype);
  int exponent = value == 0 || !std::isfinite(value) ? format.lowest : std::max(std::ilogb(value), format.lowest);
  return std::ldexp(1.0L, exponent - format.fraction);
}

bool isSame(Number a, Number b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

Number compute(const Instruction& instruction, const std::array<Number, 3>& inputs) {
  const auto [a, b, c] = inputs;
  switch (instruction.opcode) {
  case Opcode::Constant:
    return instruction.constant;
  case Opcode::Cast:
    return a;
  case Opcode::Equal:
    return a == b;
  case Opcode::NotEqual:
    return a != b;
  case Opcode::Less:
    return a < b;
  case Opcode::LessEqual:
    return a <= b;
  case Opcode::Select:
    return a != 0 ? b : c;
  default:
    break;
  }
  if (classOf(instruction.type) == ValueClass::Integer)
    return integerOf(instruction.opcode, a, b, instruction.type);
  if (classOf(instruction.type) == ValueClass::Bool) // max is or, min is and
    return instruction.opcode == Opcode::Max ? a != 0 || b != 0 : a != 0 && b != 0;
  return realOf(instruction.opcode, a, b);
}

Number evaluate(const Instruction& instruction, const std::array<Number, 3>& inputs, DType from, Rounding rounding) {
  Number value = compute(instruction, inputs);
  if (instruction.opcode != Opcode::Cast && instruction.opcode != Opcode::Constant && rounding == Rounding::ThroughF32)
    return roundTo(value, instruction.type);
  // An i64 on its way to bf16 is an f64, which is where those of more than 53 bits are rounded first.
  const bool isWide = from == DType::I64 && instruction.type == DType::BF16;
  return nearest(isWide ? Number(static_cast<double>(value)) : value, instruction.type);
}

void evaluateRow(const RowProgram& program, std::vector<Row>& operands, std::vector<Row>& sums, Rounding rounding) {
  std::vector<Row> values(program.instructions.size());
  auto at = [](const Row& row, size_t column) { return row.size() == 1 ? row[0] : row[column]; };
  for (size_t i = 0; i < values.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    bool isWide = instruction.space == Space::Element || instruction.space == Space::Column;
    Row& result = values[i];
    result.resize(isWide ? program.columns : 1);
    const Row none{0.0};
    auto input = [&](int k) -> const Row& {
      return k < inputCount(instruction.opcode) ? values[instruction.inputs[k]] : none;
    };
    const Row &a = input(0), &b = input(1), &c = input(2);
    switch (instruction.opcode) {
    case Opcode::Load:
      result = operands[instruction.operand];
      if (const ColumnMap& map = program.operands[instruction.operand].map; map.isMapped()) {
        result.resize(program.columns);
        for (size_t column = 0; column < result.size(); ++column)
          result[column] = operands[instruction.operand][map.at(column)];
      }
      break;
    case Opcode::ColumnIndex:
      for (size_t column = 0; column < result.size(); ++column)
        result[column] =
            roundTo(instruction.constant == 0 ? column : column % int64_t(instruction.constant), instruction.type);
      break;
    case Opcode::Store:
      for (size_t column = 0; column < result.size(); ++column)
        operands[instruction.operand][column] = nearest(at(a, column), instruction.type);
      break;
    case Opcode::AccumulateRows:
      for (size_t column = 0; column < result.size(); ++column)
        sums[instruction.operand][column] =
            static_cast<double>(sums[instruction.operand][column]) + static_cast<double>(at(a, column));
      break;
    case Opcode::ReduceSum:
    case Opcode::ReduceMax:
    case Opcode::ReduceMin: {
      double total = at(a, 0);
      for (int64_t column = 1; column < program.columns; ++column)
        total = instruction.opcode == Opcode::ReduceSum   ? total + static_cast<double>(at(a, column))
                : instruction.opcode == Opcode::ReduceMax ? larger(total, at(a, column))
                                                          : smaller(total, at(a, column));
      result[0] = rounding == Rounding::Once ? nearest(total, instruction.type) : roundTo(total, instruction.type);
      break;
    }
    case Opcode::Cumsum: {
      const bool isReal = classOf(instruction.type) == ValueClass::Real;
      double sum = 0;
      uint64_t whole = 0;
      for (int64_t turn = 0; turn < program.columns; ++turn) {
        const int64_t column = instruction.constant != 0 ? program.columns - 1 - turn : turn;
        const Number term = at(a, column);
        if (isReal)
          sum += static_cast<double>(term);
        else
          whole += bitsOf(term);
        result[column] = !isReal                      ? wrap(whole, instruction.type)
                         : rounding == Rounding::Once ? nearest(sum, instruction.type)
                                                      : roundTo(sum, instruction.type);
      }
      break;
    }
    case Opcode::Pick:
      result[0] = b[0] >= 0 && b[0] < program.columns ? at(a, static_cast<size_t>(b[0]))
                                                      : static_cast<Number>(instruction.constant);
      result[0] =
          rounding == Rounding::Once ? nearest(result[0], instruction.type) : roundTo(result[0], instruction.type);
      break;
    default: {
      const int first = instruction.inputs[0];
      const DType from = first < 0 ? instruction.type : program.instructions[first].type;
      for (size_t column = 0; column < result.size(); ++column)
        result[column] = evaluate(instruction, {at(a, column), at(b, column), at(c, column)}, from, rounding);
    }
    }
  }
}

} // namespace cermet::test
