// The functor of one program as CUDA C++: constants, structs, and the straight-line code of every stage.
#pragma once
#include "compiler/EmitCudaValues.h"
#include <algorithm>

namespace cermet {

class ProgramText {
public:
  explicit ProgramText(const KernelSpec& spec) : spec(spec), program(spec.program), values(spec.program) {
    chooseKept();
  }

  std::string text();

private:
  using Needed = ProgramValues::Needed;

  std::string field(int operand) const { return values.field(operand); }
  const char* deviceTypeOf(int operand) const { return deviceType(program.operands[operand].dtype); }
  std::vector<int> operands(OperandKind kind, bool output) const {
    std::vector<int> result;
    for (size_t i = 0; i < program.operands.size(); ++i)
      if (program.operands[i].kind == kind && program.operands[i].isOutput == output)
        result.push_back(i);
    return result;
  }
  // A number for each row and column.
  std::vector<int> tileInputs() const {
    std::vector<int> result;
    for (size_t i = 0; i < program.operands.size(); ++i)
      if (values.isTile(i) && !program.operands[i].isOutput)
        result.push_back(i);
    return result;
  }
  std::vector<int> packedInputs() const {
    std::vector<int> result = tileInputs();
    const std::vector<int> columns = operands(OperandKind::Column, false);
    result.insert(result.end(), columns.begin(), columns.end());
    return result;
  }
  std::vector<int> reductionsOf(int stage) const {
    std::vector<int> result;
    for (size_t i = 0; i < program.instructions.size(); ++i)
      if (values.isReduction(i) && values.level(i) == stage)
        result.push_back(i);
    return result;
  }
  bool hasOffset(const Operand& operand) const {
    return operand.kind != OperandKind::Column && operand.kind != OperandKind::Scalar;
  }
  bool readsColumnIndex() const {
    return std::any_of(program.instructions.begin(), program.instructions.end(),
                       [](const Instruction& it) { return it.opcode == Opcode::ColumnIndex; });
  }
  // A sum over rows that is stored in f32 shows what thousands of additions lose; one rounded to sixteen bits does not.
  bool compensated() const {
    const std::vector<int> columns = operands(OperandKind::Column, true);
    return std::any_of(columns.begin(), columns.end(), [&](int i) { return program.operands[i].dtype == DType::F32; });
  }
  // Column outputs in the order of their operands; an accumulator is numbered by that.
  int accumulatorOf(int operand) const {
    const std::vector<int> columns = operands(OperandKind::Column, true);
    return std::find(columns.begin(), columns.end(), operand) - columns.begin();
  }

  void chooseKept();
  Needed neededBy(int stage) const; // the last stage's is what is stored

  void line(const std::string& content) { out += content + "\n"; }
  std::string rowStart(int operand) const;
  // What a gathered operand has in the rows of no number.
  std::string missing(int operand) const {
    const DType dtype = program.operands[operand].dtype;
    const char* values[] = {"float_from_bits(0x7fc00000u)", "0", "false"};
    return ProgramValues::toMemory(dtype, values[static_cast<int>(classOf(dtype))]);
  }
  void constants();
  void storage();
  void loads();
  void staging();
  void elements();
  std::string rowValues(int level) const;
  void arithmetic();
  void reductions();
  void stores();

  const KernelSpec& spec;
  const RowProgram& program;
  const ProgramValues values;
  ProgramValues::Keeping keeping;
  std::string out;
};

} // namespace cermet
