// Random row programs over every opcode, type, operand kind and space.
#pragma once
#include "compiler/program/RowProgram.h"
#include <random>

namespace cermet::test {

struct RandomProgram {
  RowProgram program;
  std::vector<int> place; // by instruction: the operand that holds its value, -1: none
};

// Every value is stored, as it is, so that each instruction can be held to its own bound, whatever its inputs became.
RandomProgram everyValueStored(std::mt19937& random, int64_t columns);
// Only operations with one right answer, most of their values kept in registers, so that the outputs must be equal.
RowProgram exactProgram(std::mt19937& random, int64_t columns);

bool isExact(Opcode opcode); // correctly rounded, or not rounded at all

} // namespace cermet::test
