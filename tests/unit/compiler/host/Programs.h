// Row programs written by hand, as lowering would make them.
#pragma once
#include "compiler/program/RowProgram.h"

namespace cermet::test {

// The element types that kernels take, of one class.
std::vector<DType> kernelTypes(ValueClass);

// Appends instructions and keeps spaces and stages right. A value is its instruction's index.
class ProgramBuilder {
public:
  ProgramBuilder(std::string name, int64_t columns) : program{std::move(name), columns, {}, {}} {}

  int load(const std::string& name, OperandKind kind, DType dtype, bool isStrided = false);
  // Rows of `name` by the numbers of `numbers`, a row operand that it declares too.
  int gather(const std::string& name, DType dtype, const std::string& numbers, DType type, bool isStrided = false);
  int constant(double value, DType type = DType::F32);
  int columnIndex(DType type);
  int compute(Opcode opcode, int a, int b = -1, DType type = DType::F32);
  int compute(Opcode opcode, DType type, const std::vector<int>& inputs);
  int reduce(Opcode opcode, int value, DType type = DType::F32);
  int pick(int value, int column, DType type = DType::F32, double missing = 0);
  int cumsum(int value, bool isReverse, DType type);
  int sum(int value) { return reduce(Opcode::ReduceSum, value); }
  int spread(int value, Space space); // the same number at every place of a wider space
  void store(const std::string& name, OperandKind kind, DType dtype, int value); // a column: summed over rows

  RowProgram program;

private:
  int append(Instruction instruction);
};

RowProgram rmsNorm(int64_t columns, DType dtype);          // x, weight -> y, rstd; Llama's roundings
RowProgram rmsNormBackward(int64_t columns, DType dtype);  // x, weight, rstd, dy -> dx, dweight
RowProgram addRmsNorm(int64_t columns, DType dtype);       // x, residual, weight -> sum, y
RowProgram siluGlu(int64_t columns, DType dtype);          // gate, up -> y
RowProgram siluGluBackward(int64_t columns, DType dtype);  // gate, up, dy -> dgate, dup
RowProgram softmaxSquares(int64_t columns, DType dtype);   // p = softmax(x): p / sum p^2, and sum p^2
RowProgram embeddingNorm(int64_t columns, DType dtype);    // table, ids, weight -> y, and the scaled rows
RowProgram geluGlu(int64_t columns, DType dtype);          // gate, up -> y
RowProgram causalLogSoftmax(int64_t columns, DType dtype); // x, temperature [columns], query -> y, and the largest
RowProgram everyFunction(int64_t columns, DType dtype);    // x, y -> the mean of all functions of reals
RowProgram unary(int64_t columns, Opcode opcode, DType from, DType to); // y = opcode(x), rounded once

} // namespace cermet::test
