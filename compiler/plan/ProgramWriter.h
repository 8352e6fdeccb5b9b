// A row program while it is written: each instruction is there once, and no two operands have one name.
#pragma once
#include "compiler/program/RowProgram.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/DenseMap.h"
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace cermet {

// A name of letters, digits and underscores.
std::string identifier(std::string name);

class ProgramWriter {
public:
  // `positions`: for each operand, LoweredFunction's.
  ProgramWriter(RowProgram& program, std::vector<int>& positions) : program(program), positions(positions) {}

  // The number of an instruction, new or known.
  int emit(Opcode opcode, DType type, Space space, llvm::ArrayRef<int> inputs, int operand = -1, double constant = 0);
  // A value in another space.
  int spread(int value, Space space);
  int addOperand(std::string name, OperandKind kind, DType dtype, bool isOutput, int position, bool isStrided = false);
  // A sum of which all but one column is 0, that with a given number: select(column == number, value, 0), or its
  // negation. Where the others are what is picked of zeros at that number, the sum is NaN if no column has it.
  std::optional<int> pick(int summed, DType type);
  // What nothing stored needs any more leaves the program.
  void dropDead();

  RowProgram& program;
  std::vector<int>& positions;

private:
  bool isZero(int value) const;

  using InstructionKey = std::tuple<uint64_t, uint64_t, uint64_t, uint64_t>;

  llvm::DenseMap<InstructionKey, int> emitted;
  std::set<std::string> names;
};

} // namespace cermet
