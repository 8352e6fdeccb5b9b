#include "tests/unit/compiler/host/Programs.h"
#include <algorithm>

namespace cermet::test {

std::vector<DType> kernelTypes(ValueClass valueClass) {
  std::vector<DType> result;
  for (const ElementType& element : kElementTypes)
    if (element.format.valueClass == valueClass && element.isInKernels)
      result.push_back(static_cast<DType>(element.code));
  return result;
}

int ProgramBuilder::append(Instruction instruction) {
  for (int input : instruction.inputs) {
    if (input < 0)
      continue;
    const Instruction& before = program.instructions[input];
    instruction.stage = std::max(instruction.stage, before.stage + isReduction(before.opcode));
  }
  program.instructions.push_back(instruction);
  return static_cast<int>(program.instructions.size()) - 1;
}

static Space spaceOf(OperandKind kind) {
  constexpr Space spaces[] = {Space::Element, Space::Row, Space::Column, Space::Uniform, Space::Row, Space::Element};
  return spaces[static_cast<int>(kind)];
}

int ProgramBuilder::load(const std::string& name, OperandKind kind, DType dtype, bool isStrided) {
  program.operands.push_back({name, kind, dtype, false, isStrided});
  return append({.opcode = Opcode::Load,
                 .type = dtype,
                 .space = spaceOf(kind),
                 .operand = static_cast<int>(program.operands.size()) - 1});
}

int ProgramBuilder::gather(const std::string& name, DType dtype, const std::string& numbers, DType type,
                           bool isStrided) {
  program.operands.push_back({numbers, OperandKind::Row, type});
  const int value = load(name, OperandKind::Gathered, dtype, isStrided);
  program.operands.back().rowsFrom = static_cast<int>(program.operands.size()) - 2;
  return value;
}

int ProgramBuilder::constant(double value, DType type) {
  return append({.opcode = Opcode::Constant, .type = type, .constant = value});
}

int ProgramBuilder::columnIndex(DType type) {
  return append({.opcode = Opcode::ColumnIndex, .type = type, .space = Space::Column});
}

int ProgramBuilder::compute(Opcode opcode, int a, int b, DType type) {
  return compute(opcode, type, b < 0 ? std::vector{a} : std::vector{a, b});
}

int ProgramBuilder::compute(Opcode opcode, DType type, const std::vector<int>& inputs) {
  Instruction instruction{.opcode = opcode, .type = type};
  for (size_t i = 0; i < inputs.size(); ++i) {
    Space space = program.instructions[inputs[i]].space, before = instruction.space;
    instruction.inputs[i] = inputs[i];
    instruction.space = before == space || space == Space::Uniform ? before
                        : before == Space::Uniform                 ? space
                                                                   : Space::Element;
  }
  return append(instruction);
}

int ProgramBuilder::reduce(Opcode opcode, int value, DType type) {
  return append({.opcode = opcode, .type = type, .space = Space::Row, .inputs = {value, -1, -1}});
}

int ProgramBuilder::pick(int value, int column, DType type, double missing) {
  return append(
      {.opcode = Opcode::Pick, .type = type, .space = Space::Row, .inputs = {value, column, -1}, .constant = missing});
}

int ProgramBuilder::cumsum(int value, bool isReverse, DType type) {
  return append({.opcode = Opcode::Cumsum,
                 .type = type,
                 .space = Space::Element,
                 .inputs = {value, -1, -1},
                 .constant = double(isReverse)});
}

int ProgramBuilder::spread(int value, Space space) {
  return append(
      {.opcode = Opcode::Cast, .type = program.instructions[value].type, .space = space, .inputs = {value, -1, -1}});
}

void ProgramBuilder::store(const std::string& name, OperandKind kind, DType dtype, int value) {
  program.operands.push_back({name, kind, dtype, true});
  append({.opcode = kind == OperandKind::Column ? Opcode::AccumulateRows : Opcode::Store,
          .type = dtype,
          .space = spaceOf(kind),
          .inputs = {value, -1, -1},
          .operand = static_cast<int>(program.operands.size()) - 1});
}

namespace {

constexpr OperandKind tile = OperandKind::Tile, row = OperandKind::Row, column = OperandKind::Column;
using enum Opcode;

int reciprocalRoot(ProgramBuilder& p, int x) {
  int sum = p.sum(p.compute(Mul, x, x));
  int mean = p.compute(Div, sum, p.constant(p.program.columns));
  return p.compute(Rsqrt, p.compute(Add, mean, p.constant(1e-5)));
}

int scaled(ProgramBuilder& p, int x, int rstd, int weight, DType dtype) {
  int normal = p.compute(Cast, p.compute(Mul, x, rstd), -1, dtype);
  return p.compute(Mul, weight, normal, dtype);
}

} // namespace

RowProgram rmsNorm(int64_t columns, DType dtype) {
  ProgramBuilder p("rms_norm", columns);
  int x = p.load("x", tile, dtype), weight = p.load("weight", column, dtype);
  int rstd = reciprocalRoot(p, x);
  p.store("y", tile, dtype, scaled(p, x, rstd, weight, dtype));
  p.store("rstd", row, DType::F32, rstd);
  return p.program;
}

RowProgram rmsNormBackward(int64_t columns, DType dtype) {
  ProgramBuilder p("rms_norm_backward", columns);
  int x = p.load("x", tile, dtype), weight = p.load("weight", column, dtype);
  int rstd = p.load("rstd", row, DType::F32), dy = p.load("dy", tile, dtype);
  int normal = p.compute(Mul, x, rstd), weighted = p.compute(Mul, dy, weight);
  int mean = p.compute(Mul, p.sum(p.compute(Mul, weighted, normal)), p.constant(1.0 / columns));
  int dx = p.compute(Mul, p.compute(Sub, weighted, p.compute(Mul, normal, mean)), rstd);
  p.store("dx", tile, dtype, dx);
  p.store("dweight", column, dtype, p.compute(Mul, dy, normal));
  return p.program;
}

RowProgram addRmsNorm(int64_t columns, DType dtype) {
  ProgramBuilder p("add_rms_norm", columns);
  int x = p.load("x", tile, dtype), residual = p.load("residual", tile, dtype);
  int weight = p.load("weight", column, dtype);
  int sum = p.compute(Add, x, residual, dtype);
  p.store("sum", tile, dtype, sum);
  p.store("y", tile, dtype, scaled(p, sum, reciprocalRoot(p, sum), weight, dtype));
  return p.program;
}

RowProgram siluGlu(int64_t columns, DType dtype) {
  ProgramBuilder p("glu", columns);
  int gate = p.load("gate", tile, dtype), up = p.load("up", tile, dtype);
  p.store("y", tile, dtype, p.compute(Mul, p.compute(Silu, gate, -1, dtype), up, dtype));
  return p.program;
}

RowProgram siluGluBackward(int64_t columns, DType dtype) {
  ProgramBuilder p("glu_backward", columns);
  int gate = p.load("gate", tile, dtype), up = p.load("up", tile, dtype), dy = p.load("dy", tile, dtype);
  int sigmoid = p.compute(Sigmoid, gate), one = p.constant(1);
  int slope = p.compute(Mul, sigmoid, p.compute(Add, one, p.compute(Mul, gate, p.compute(Sub, one, sigmoid))));
  p.store("dgate", tile, dtype, p.compute(Mul, p.compute(Mul, dy, up), slope));
  p.store("dup", tile, dtype, p.compute(Mul, dy, p.compute(Silu, gate)));
  return p.program;
}

RowProgram softmaxSquares(int64_t columns, DType dtype) {
  ProgramBuilder p("softmax_squares", columns);
  int x = p.load("x", tile, dtype);
  int e = p.compute(Exp, x);
  int share = p.compute(Div, e, p.sum(e));
  int squares = p.sum(p.compute(Mul, share, share));
  p.store("y", tile, dtype, p.compute(Div, share, squares));
  p.store("squares", row, DType::F32, squares);
  return p.program;
}

RowProgram embeddingNorm(int64_t columns, DType dtype) {
  ProgramBuilder p("embedding_norm", columns);
  int row = p.gather("table", dtype, "ids", DType::I64), weight = p.load("weight", column, dtype);
  int x = p.compute(Mul, row, p.constant(9.75), dtype);
  p.store("x", tile, dtype, x);
  p.store("y", tile, dtype, scaled(p, x, reciprocalRoot(p, x), weight, dtype));
  return p.program;
}

RowProgram geluGlu(int64_t columns, DType dtype) {
  ProgramBuilder p("gelu_glu", columns);
  int gate = p.load("gate", tile, dtype), up = p.load("up", tile, dtype);
  p.store("y", tile, dtype, p.compute(Mul, p.compute(Gelu, gate, -1, dtype), up, dtype));
  return p.program;
}

// log(softmax(x / 2)) over the columns up to the row's query, and a large negative number behind it.
RowProgram causalLogSoftmax(int64_t columns, DType dtype) {
  ProgramBuilder p("causal_log_softmax", columns);
  int x = p.load("x", tile, dtype, true), query = p.load("query", OperandKind::Index, DType::I64);
  int isVisible = p.compute(LessEqual, p.columnIndex(DType::I32), query, DType::I1);
  int scores = p.compute(Select, DType::F32, {isVisible, p.compute(Mul, x, p.constant(0.5)), p.constant(-1e4)});
  int largest = p.reduce(ReduceMax, scores);
  int shifted = p.compute(Sub, scores, largest);
  int rest = p.compute(Log, p.sum(p.compute(Exp, shifted)));
  p.store("y", tile, dtype, p.compute(Sub, shifted, rest));
  p.store("largest", row, DType::F32, largest);
  p.store("visible", tile, DType::I1, isVisible);
  return p.program;
}

RowProgram everyFunction(int64_t columns, DType dtype) {
  ProgramBuilder p("every_function", columns);
  int x = p.load("x", tile, dtype), y = p.load("y", tile, dtype);
  int size = p.compute(Max, p.compute(Abs, x), p.constant(0.01));
  int sum = p.compute(Pow, size, y);
  for (Opcode opcode : {Exp, Tanh, Erf, Relu, Sigmoid, Softplus, Silu, Gelu, GeluTanh})
    sum = p.compute(Add, sum, p.compute(opcode, x));
  for (Opcode opcode : {Log, Sqrt, Rsqrt})
    sum = p.compute(Add, sum, p.compute(opcode, size));
  p.store("sum", tile, dtype, sum);
  p.store("total", row, DType::F32, p.compute(Div, p.sum(sum), p.constant(columns)));
  return p.program;
}

RowProgram unary(int64_t columns, Opcode opcode, DType from, DType to) {
  ProgramBuilder p("unary", columns);
  int x = p.load("x", tile, from);
  p.store("y", tile, to, p.compute(opcode, x, -1, to));
  return p.program;
}

} // namespace cermet::test
