// Random programs over every opcode and type: each instruction within its bound, exact ones equal, levels alike.
#include "tests/unit/compiler/host/HostKernel.h"
#include "tests/unit/compiler/host/RandomProgram.h"
#include <chrono>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>

namespace cermet::test {
namespace {

// What HostTarget.h promises of an f32 result, in units in the last place.
Number bound(Opcode opcode) {
  switch (opcode) {
  case Opcode::Exp:
    return 1;
  case Opcode::Rsqrt:
    return 1.51L;
  case Opcode::Sigmoid:
  case Opcode::Silu:
    return 3;
  default:
    return 0.501L;
  }
}

bool isWithin(Number have, Number truth, DType type, Number error) {
  constexpr Number largest = std::numeric_limits<float>::max();
  if (isSame(have, roundTo(truth, type)))
    return true;
  const Number most = type == DType::F16 ? 65504 : type == DType::F8E5M2 ? 61440 : largest;
  if (std::isinf(have) && std::fabs(truth) > most * (1 - 0x1p-12L) && std::signbit(have) == std::signbit(truth))
    return true;
  if (type != DType::F32)
    error += 0.501L * unitInLastPlace(truth, type);
  return std::fabs(have - truth) <= error;
}

// Holds each instruction to what the kernel itself had as its inputs.
class Checker {
public:
  Checker(const RandomProgram& random, const Arguments& arguments) : random(random), arguments(arguments) {}

  void check() const {
    const RowProgram& program = random.program;
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      if (random.place[i] < 0 || program.instructions[i].opcode == Opcode::Load)
        continue;
      const bool isWide = program.operands[random.place[i]].kind == OperandKind::Tile;
      for (int64_t row = 0; row < arguments.rows(); ++row)
        for (int64_t column = 0; column < (isWide ? program.columns : 1); ++column)
          if (!checkValue(i, row, column))
            return;
    }
  }

private:
  Number at(int instruction, int64_t row, int64_t column) const {
    const int operand = random.place[instruction];
    return arguments.at(operand, row, arguments.width(operand) == 1 ? 0 : column);
  }

  bool checkValue(size_t i, int64_t row, int64_t column) const {
    const Instruction& instruction = random.program.instructions[i];
    const Number have = at(static_cast<int>(i), row, column);
    std::array<Number, 3> inputs{};
    for (int k = 0; k < inputCount(instruction.opcode); ++k)
      inputs[k] = at(instruction.inputs[k], row, column);
    Number want = instruction.opcode == Opcode::ColumnIndex ? roundTo(column, instruction.type)
                  : isReduction(instruction.opcode)         ? 0
                  : instruction.opcode == Opcode::Cumsum    ? 0
                  : instruction.opcode == Opcode::Pick      ? picked(instruction, row)
                                                            : evaluateInstruction(instruction, inputs);
    bool isRight;
    if (isReduction(instruction.opcode)) {
      isRight = checkReduction(instruction, row, have, want);
    } else if (instruction.opcode == Opcode::Cumsum) {
      isRight = checkCumsum(instruction, row, column, have, want);
    } else if (isExact(instruction.opcode)) {
      isRight = isSame(have, want);
    } else {
      Number truth = compute(instruction, inputs);
      Number error = bound(instruction.opcode) * unitInLastPlace(truth, DType::F32);
      if (instruction.opcode == Opcode::Silu)
        error += std::fabs(inputs[0]) * 0x1p-149L;
      isRight = isWithin(have, truth, instruction.type, error);
    }
    if (!isRight)
      ADD_FAILURE() << name(instruction.opcode) << " of " << inputs[0] << ", " << inputs[1] << ", " << inputs[2]
                    << " is " << have << ", expected " << want << "; %" << i << " at row " << row << ", column "
                    << column << "\n"
                    << print(random.program);
    return isRight;
  }

  Number picked(const Instruction& instruction, int64_t row) const {
    const Number column = at(instruction.inputs[1], row, 0);
    const bool exists = column >= 0 && column < random.program.columns;
    return exists ? roundTo(at(instruction.inputs[0], row, static_cast<int64_t>(column)), instruction.type) : 0;
  }

  Number evaluateInstruction(const Instruction& instruction, const std::array<Number, 3>& inputs) const {
    const int first = instruction.inputs[0];
    return evaluate(instruction, inputs, first < 0 ? instruction.type : random.program.instructions[first].type);
  }

  bool checkReduction(const Instruction& instruction, int64_t row, Number have, Number& want) const {
    Number size = 0;
    for (int64_t column = 0; column < random.program.columns; ++column) {
      Number value = at(instruction.inputs[0], row, column);
      size += std::fabs(value);
      want = column == 0                               ? value
             : instruction.opcode == Opcode::ReduceSum ? want + value
             : std::isnan(want) || std::isnan(value)   ? NAN
             : instruction.opcode == Opcode::ReduceMax ? std::max(want, value)
                                                       : std::min(want, value);
    }
    if (instruction.opcode != Opcode::ReduceSum)
      return isSame(have, roundTo(want, instruction.type));
    if (std::isfinite(size) && size > std::numeric_limits<float>::max())
      return true; // in another order it may overflow
    return isWithin(have, want, instruction.type, 1e-6L * size);
  }

  // Added in f64, integers exactly.
  bool checkCumsum(const Instruction& instruction, int64_t row, int64_t column, Number have, Number& want) const {
    const bool isReal = classOf(instruction.type) == ValueClass::Real, isReverse = instruction.constant != 0;
    Number size = 0;
    for (int64_t at = isReverse ? column : 0; at < (isReverse ? random.program.columns : column + 1); ++at) {
      const Number value = this->at(instruction.inputs[0], row, at);
      size += std::fabs(value);
      want = isReal ? want + value : nearest(want + value, instruction.type);
    }
    return isReal ? isWithin(have, want, instruction.type, 0.501L * unitInLastPlace(want, DType::F32) + 0x1p-45L * size)
                  : have == want;
  }

  const RandomProgram& random;
  const Arguments& arguments;
};

std::vector<int64_t> someExtents(std::mt19937& random) {
  return random() % 2 ? std::vector<int64_t>{7} : std::vector<int64_t>{2, 3};
}

// Sixty programs, or ten and what a quarter of a minute has room for: every run has others.
class Trials {
public:
  bool isAnother(int count) const {
    return count < 10 || (count < 60 && std::chrono::steady_clock::now() - began < std::chrono::seconds(15));
  }

private:
  const std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
};

constexpr int64_t kWidths[] = {1, 5, 16, 23, 64, 77, 150};

TEST(RandomPrograms, EachInstructionIsWithinItsBoundOnEveryLevel) {
  std::mt19937 random = freshRandom();
  Trials trials;
  for (int count = 0; trials.isAnother(count); ++count) {
    RandomProgram one = everyValueStored(random, kWidths[random() % std::size(kWidths)]);
    Arguments arguments(one.program, someExtents(random), random);
    if (count % 2)
      arguments.addExtremes(random);
    std::vector<Arguments> results;
    for (const std::string& target : HostKernel::targets()) {
      results.push_back(arguments);
      HostKernel(one.program, target).run(results.back(), 2);
    }
    Checker(one, results[0]).check();
    for (const Arguments& result : results)
      for (size_t i = 0; i < result.arrays.size(); ++i)
        EXPECT_TRUE(result.arrays[i].hasSameNumbers(results[0].arrays[i]))
            << one.program.operands[i].name << " differs between levels\n"
            << print(one.program);
    if (HasFailure())
      return;
  }
}

TEST(RandomPrograms, ExactOperationsAreEqualOnEveryLevel) {
  std::mt19937 random = freshRandom();
  Trials trials;
  for (int count = 0; trials.isAnother(count); ++count) {
    RowProgram program = exactProgram(random, kWidths[random() % std::size(kWidths)]);
    Arguments arguments(program, someExtents(random), random);
    if (count % 2)
      arguments.addExtremes(random);
    for (const std::string& target : HostKernel::targets()) {
      Arguments copy = arguments;
      expectExact(HostKernel(program, target), copy, 2);
      if (HasFailure())
        return;
    }
  }
}

} // namespace
} // namespace cermet::test
