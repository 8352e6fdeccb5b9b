#include "tests/unit/compiler/RowEvaluator.h"
#include <cmath>

namespace cermet::tests {
namespace {

double apply(Opcode opcode, double a, double b) {
  switch (opcode) {
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

// To nearest, ties to even: 24, 8 or 11 significant bits, subnormals below the smallest exponent.
double rounded(double value, DType type) {
  if (!std::isfinite(value) || value == 0)
    return value;
  int digits = type == DType::F32 ? 24 : type == DType::BF16 ? 8 : 11;
  int smallest = type == DType::F16 ? -14 : -126;
  int largest = type == DType::F16 ? 15 : 127;
  double unit = std::ldexp(1.0, std::max(std::ilogb(value), smallest) - digits + 1);
  double result = std::nearbyint(value / unit) * unit;
  return std::fabs(result) >= std::ldexp(1.0, largest + 1) ? std::copysign(INFINITY, result) : result;
}

void evaluate(const RowProgram& program, int64_t rows, OperandData& data) {
  int64_t columns = program.columns;
  for (size_t i = 0; i < program.operands.size(); ++i)
    if (const Operand& operand = program.operands[i]; operand.isOutput) {
      int64_t count = operand.kind == OperandKind::Tile  ? rows * columns
                      : operand.kind == OperandKind::Row ? rows
                                                         : columns;
      data[i].assign(count, operand.kind == OperandKind::Column ? 0 : NAN);
    }
  for (int64_t row = 0; row < rows; ++row) {
    // Every value as one per column; a row value repeats.
    std::vector<std::vector<double>> values(program.instructions.size());
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      const Instruction& op = program.instructions[i];
      auto input = [&](int k) -> std::vector<double>& { return values[op.inputs[k]]; };
      std::vector<double>& result = values[i];
      result.resize(columns);
      if (op.opcode == Opcode::ReduceSum) {
        double sum = 0;
        for (double value : input(0))
          sum += value;
        result.assign(columns, rounded(sum, op.type));
        continue;
      }
      for (int64_t column = 0; column < columns; ++column) {
        auto place = [&](const Operand& operand) {
          return operand.kind == OperandKind::Tile     ? row * columns + column
                 : operand.kind == OperandKind::Row    ? row
                 : operand.kind == OperandKind::Column ? column
                                                       : 0;
        };
        if (op.opcode == Opcode::Load)
          result[column] = data[op.operand][place(program.operands[op.operand])];
        else if (op.opcode == Opcode::Constant)
          result[column] = rounded(op.constant, op.type);
        else if (op.opcode == Opcode::Store)
          data[op.operand][place(program.operands[op.operand])] = rounded(input(0)[column], op.type);
        else if (op.opcode == Opcode::AccumulateRows)
          data[op.operand][column] += input(0)[column];
        else
          result[column] =
              rounded(apply(op.opcode, input(0)[column], op.inputs[1] < 0 ? 0 : input(1)[column]), op.type);
      }
    }
  }
  for (size_t i = 0; i < program.operands.size(); ++i)
    if (program.operands[i].isOutput && program.operands[i].kind == OperandKind::Column)
      for (double& sum : data[i])
        sum = rounded(rounded(sum, DType::F32), program.operands[i].dtype);
}

} // namespace cermet::tests
