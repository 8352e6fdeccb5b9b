// A row program: what one kernel does to every row, free of MLIR, CUDA and LLVM. It is the hand-over between lowering
// (a region of the dialect) and code generation (CUDA C++ or the host target), and the first part of a KernelSpec's
// canonical text.
//
// The iteration space is up to four run-time row extents by `columns` (static). Instructions are SSA in execution order.
// Each value lives in one space: an Element has a value per row and column, a Row value one per row, a Column value one
// per column, a Uniform one per kernel. An instruction computes in f32 (f64 operands are not lowered yet) and rounds its
// result to `type`. A reduction ends a stage: instructions that depend on it belong to a later stage, and every stage may
// read the same tile operands again.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace cermet {

enum class DType { F32, BF16, F16 };
enum class OperandKind { Tile, Row, Column, Scalar }; // [rows..., columns], [rows..., 1], [columns], [1]
enum class Space { Element, Row, Column, Uniform };

struct Operand {
  std::string name; // from the graph, made unique and a C identifier
  OperandKind kind;
  DType dtype;
  bool isOutput = false;
};

enum class Opcode {
  Load,          // operand -> value, widened to f32
  Constant,      // `constant`
  Cast,          // round to `type`
  Add, Sub, Mul, Div,
  Neg, Exp, Rsqrt, Sigmoid, Silu,
  ReduceSum,     // Element -> Row
  Store,         // value -> Tile or Row output operand, rounded to its dtype
  AccumulateRows // Element value summed over all rows -> Column output operand (deterministic, f32, rounded once)
};

struct Instruction {
  Opcode opcode;
  DType type = DType::F32;   // result's rounding
  Space space = Space::Uniform;
  int stage = 0;             // number of reductions that lie before it on its longest path
  int inputs[2] = {-1, -1};  // indices of earlier instructions
  int operand = -1;          // Load, Store, AccumulateRows
  double constant = 0;       // Constant
};

struct RowProgram {
  std::string name; // a C identifier, e.g. "add_rms_norm_backward"
  int64_t columns = 0;
  std::vector<Operand> operands; // inputs first, then outputs, in the region's order
  std::vector<Instruction> instructions;

  int stages() const;          // 1 + the largest stage
  bool accumulates() const;    // has AccumulateRows
  bool reduces() const;        // has a reduction along columns
};

const char* name(DType);
const char* name(OperandKind);
const char* name(Space);
const char* name(Opcode);
int byteSize(DType);

// Canonical text, one instruction a line; and its inverse. parse returns an empty string on success, else what is wrong.
std::string print(const RowProgram&);
std::string parse(const std::string& text, RowProgram& program);

} // namespace cermet
