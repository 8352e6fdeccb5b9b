// A row program: what one kernel does to every row, free of MLIR, CUDA and LLVM. It is the hand-over between lowering
// (a region of the dialect) and code generation (CUDA C++ or the host target), and the first part of a KernelSpec's
// canonical text.
//
// The iteration space is up to four run-time row extents by `columns` (static). Instructions are SSA in execution
// order. Each value lives in one space: an Element has a value per row and column, a Row value one per row, a Column
// value one per column, a Uniform one per kernel. A reduction ends a stage: instructions that depend on it belong to a
// later stage, and every stage may read the same tile operands again.
//
// Values are of three classes, by their type: reals (f32, bf16, f16, f8e4m3, f8e5m2) are computed in f32 and rounded to
// the type, as roundTo does it (runtime/abi/Rounding.h); integers are computed in 64 bits and wrapped to the type;
// booleans are true or false. A bool in memory is a byte, not 0 for true.
#pragma once
#include "compiler/program/ColumnMap.h"
#include "runtime/abi/ElementType.h"
#include "runtime/abi/OperandKind.h"
#include <cstdint>
#include <string>
#include <vector>

namespace cermet {

// The element types that kernels take (runtime/abi/ElementType.h), by their codes.
#define DTYPE_1(code) code = CERMET_##code,
#define DTYPE_0(code)
#define DTYPE(code, name, graph, array, bytes, format, kernels) DTYPE_##kernels(code)
enum class DType { CERMET_ELEMENT_TYPES(DTYPE) };
#undef DTYPE
#undef DTYPE_0
#undef DTYPE_1

enum class Space { Element, Row, Column, Uniform };

struct Operand {
  std::string name; // from the graph, made unique and a C identifier
  OperandKind kind;
  DType dtype;
  bool isOutput = false;
  bool isStrided = false; // an input's columns are RowOperand::step elements apart, not 1: moved one at a time
  int rowsFrom = -1;      // Gathered: the operand that has the rows' numbers, a Row input of integers or a List
  // Gathered by a List: each row is a sum of rows. Row inputs of integers say where in the list their numbers begin and
  // end; a List of f32 may have the sums of whole parts; a wide sum is loaded as f32, others are rounded to `dtype`.
  int from = -1, to = -1, sums = -1;
  bool isWide = false;
  ColumnMap map{}; // an input's, Tile or Column: which of its columns is read at each of the program's
  int of = -1;     // mapped: the operand that has the same tensor's columns in their own order, if any
};

enum class Opcode {
  Load,        // operand -> value
  Constant,    // `constant`, a number of `type`
  ColumnIndex, // the column's number, where `constant` is not 0 its remainder by that; an integer, Column space
  Cast,        // to `type`: rounds a real; real to integer toward zero and wrapped; to bool, not 0; bool to 0 or 1
  // Of reals or integers (both inputs and the result are of one class)
  Add,
  Sub,
  Mul,
  Neg,
  Abs,
  Max,
  Min, // of reals: NaN if one is NaN; of bools: or, and
  // Of reals
  Div,
  Pow,
  Exp,
  Log,
  Sqrt,
  Rsqrt,
  Tanh,
  Erf,
  Relu,
  Sigmoid,
  Softplus,
  Silu,
  Gelu,
  GeluTanh,
  // Two values of one class -> bool. With NaN all are false but NotEqual.
  Equal,
  NotEqual,
  Less,
  LessEqual,
  Select, // bool, two values of the result's type
  // Of integers (runtime/abi/Random.h)
  RandomKey,  // a seed, a row's number
  RandomBits, // a row's key, a column's number
  ReduceSum,
  ReduceMax,
  ReduceMin,     // real Element -> Row; the last two: NaN if one is NaN
  Cumsum,        // Element -> Element: the sum of the columns up to each and itself; where `constant` is 1, of those
                 // from it on. Ends no stage: who reads it walks over the row in its direction
  Pick,          // real Element value and an integer, Row or Uniform -> Row: the value at the column of that number,
                 // `constant` (0 or NaN) where no column has it. It reads one column and ends no stage; no reduction
                 // decides the number
  Store,         // value -> Tile or Row output operand, rounded to its dtype
  AccumulateRows // real Element value summed over all rows -> Column output operand (deterministic, f32, rounded once)
};

struct Instruction {
  Opcode opcode;
  DType type = DType::F32; // result's rounding
  Space space = Space::Uniform;
  int stage = 0;                // number of reductions that lie before it on its longest path
  int inputs[3] = {-1, -1, -1}; // indices of earlier instructions
  int operand = -1;             // Load, Store, AccumulateRows
  double constant = 0;          // Constant, ColumnIndex, Cumsum, Pick
};

struct RowProgram {
  std::string name; // a C identifier, e.g. "add_rms_norm_backward"
  int64_t columns = 0;
  std::vector<Operand> operands; // inputs first, then outputs, in the region's order
  std::vector<Instruction> instructions;

  int stages() const;       // 1 + the largest stage
  bool accumulates() const; // has AccumulateRows
  // The values that it sums over rows, each once: outputs may round one sum to several types.
  std::vector<int> summedOverRows() const;
  bool reduces() const; // has a reduction along columns or a cumulative sum, or picks one
  bool hasCumsums() const;
  bool runsBackward() const; // its cumulative sums are of the columns from each on
  int64_t rowBytes() const;  // of one row's inputs, for each of its columns
  // Bytes of a row that a kernel moves which keeps none of it: a stage reads the inputs that it needs.
  int64_t walkedBytes() const;
};

// Whether a number that no column has is an error: a pick that gives NaN there.
bool isIndex(const Instruction&);

inline cermet_dtype codeOf(DType type) {
  return static_cast<cermet_dtype>(type);
}
inline std::optional<DType> kernelType(std::optional<cermet_dtype> code) {
  return code && kElementTypes[*code].isInKernels ? std::optional(static_cast<DType>(*code)) : std::nullopt;
}
inline const ElementType& traitsOf(DType type) {
  return kElementTypes[codeOf(type)];
}
inline ValueClass classOf(DType type) {
  return traitsOf(type).format.valueClass;
}
inline int byteSize(DType type) {
  return elementBytes(codeOf(type));
}
inline const char* name(DType type) {
  return elementName(codeOf(type));
}
// What a load of the operand is.
inline DType loadedType(const Operand& operand) {
  return operand.isWide ? DType::F32 : operand.dtype;
}
bool isReduction(Opcode);
int inputCount(Opcode);

const char* name(Space);
const char* name(Opcode);
bool usesOperand(Opcode); // a load, a store or a sum over rows

// "" where a program is one, else what is wrong.
std::string check(const RowProgram&);
// The part of it that is about cumulative sums: one walk over a row makes them, so they have one direction, are of no
// other's columns, and no column of them is picked.
std::string checkCumsums(const RowProgram&);

// Canonical text, one instruction a line; and its inverse. parse returns an empty string on success, else what is
// wrong.
std::string print(const RowProgram&);
std::string parse(const std::string& text, RowProgram& program);

} // namespace cermet
