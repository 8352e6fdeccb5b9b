#include "tests/unit/host/Programs.h"
#include <algorithm>

namespace cermet::test {

int ProgramBuilder::append(Instruction instruction) {
  for (int input : instruction.inputs) {
    if (input < 0)
      continue;
    const Instruction& before = program.instructions[input];
    instruction.stage = std::max(instruction.stage, before.stage + (before.opcode == Opcode::ReduceSum));
  }
  program.instructions.push_back(instruction);
  return static_cast<int>(program.instructions.size()) - 1;
}

static Space spaceOf(OperandKind kind) {
  switch (kind) {
  case OperandKind::Tile:
    return Space::Element;
  case OperandKind::Row:
    return Space::Row;
  case OperandKind::Column:
    return Space::Column;
  case OperandKind::Scalar:
    return Space::Uniform;
  }
  return Space::Uniform;
}

int ProgramBuilder::load(const std::string& name, OperandKind kind, DType dtype) {
  program.operands.push_back({name, kind, dtype, false});
  return append({.opcode = Opcode::Load,
                 .type = dtype,
                 .space = spaceOf(kind),
                 .operand = static_cast<int>(program.operands.size()) - 1});
}

int ProgramBuilder::constant(double value) {
  return append({.opcode = Opcode::Constant, .constant = value});
}

int ProgramBuilder::compute(Opcode opcode, int a, int b, DType type) {
  Space left = program.instructions[a].space, right = b < 0 ? left : program.instructions[b].space;
  Space space = left == right ? left : left == Space::Uniform ? right : right == Space::Uniform ? left : Space::Element;
  return append({.opcode = opcode, .type = type, .space = space, .inputs = {a, b}});
}

int ProgramBuilder::sum(int value) {
  return append({.opcode = Opcode::ReduceSum, .space = Space::Row, .inputs = {value, -1}});
}

int ProgramBuilder::spread(int value, Space space) {
  return append({.opcode = Opcode::Cast, .space = space, .inputs = {value, -1}});
}

void ProgramBuilder::store(const std::string& name, OperandKind kind, DType dtype, int value) {
  program.operands.push_back({name, kind, dtype, true});
  append({.opcode = kind == OperandKind::Column ? Opcode::AccumulateRows : Opcode::Store,
          .type = dtype,
          .space = spaceOf(kind),
          .inputs = {value, -1},
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

RowProgram unary(int64_t columns, Opcode opcode, DType from, DType to) {
  ProgramBuilder p("unary", columns);
  int x = p.load("x", tile, from);
  p.store("y", tile, to, p.compute(opcode, x, -1, to));
  return p.program;
}

} // namespace cermet::test
