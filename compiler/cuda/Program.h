// The functor of one program as CUDA C++: constants, structs, and the straight-line code of every stage.
#pragma once
#include "compiler/cuda/Values.h"
#include <algorithm>
#include <functional>

namespace cermet {

class ProgramText {
public:
  explicit ProgramText(const ScheduledProgram& spec)
      : spec(spec), program(spec.program), values(spec.program, !keeps(), spec.schedule.vector) {
    chooseKept();
  }

  std::string text(const std::string& structName);

private:
  using Needed = ProgramValues::Needed;

  std::string field(int operand) const { return values.field(operand); }
  const char* deviceTypeOf(int operand) const { return deviceType(loadedType(program.operands[operand])); }
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
  // The cumulative sums that a stage reads, those of reals or of integers.
  std::vector<int> cumsumsOf(int stage, bool integers) const;
  std::vector<int> cumsums() const {
    std::vector<int> result;
    for (size_t i = 0; i < program.instructions.size(); ++i)
      if (program.instructions[i].opcode == Opcode::Cumsum)
        result.push_back(i);
    return result;
  }
  // Whether a stage finds a running maximum and its sum.
  bool runsIn(int stage) const {
    return std::ranges::any_of(reductionsOf(stage), [&](int it) { return values.isRunningMaximum(it); });
  }
  // Whether the last stage takes two elements at once.
  bool pairs() const;
  bool isPairOperand(int operand) const {
    const DType dtype = loadedType(program.operands[operand]);
    return dtype == DType::BF16 || dtype == DType::F16;
  }
  // Whether persistent groups that cannot stage rows in shared memory keep the next one in registers.
  bool asksAhead() const {
    const auto isMapped = [](const Operand& operand) { return operand.map.isMapped(); };
    return program.accumulates() && spec.schedule.stages == 0 && std::ranges::any_of(program.operands, isMapped);
  }
  // Whether a tile's elements are rounded when a vector of them is stored.
  bool isRealTile(int operand) const {
    return classOf(program.operands[operand].dtype) == ValueClass::Real && !(pairs() && isPairOperand(operand));
  }
  bool hasOffset(const Operand& operand) const {
    return operand.kind != OperandKind::Column && operand.kind != OperandKind::Scalar &&
           operand.kind != OperandKind::List;
  }
  // The numbers of columns whose inputs a row keeps, to pick values there.
  std::vector<int> pickedColumns() const {
    std::vector<int> result;
    for (const Instruction& it : program.instructions)
      if (it.opcode == Opcode::Pick && std::find(result.begin(), result.end(), it.inputs[1]) == result.end())
        result.push_back(it.inputs[1]);
    return result;
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
  // Whether a thread of the vector entry has the columns of a mapped input among those that it keeps of the tensor: in
  // another of its vectors, or in another place of the same one.
  bool isLocal(int operand) const;
  std::string localRead(int operand, const std::function<std::string(const std::string&, bool)>& read) const;
  std::string localValue(int operand) const; // the function that gives an element of it
  std::string localPair(int operand) const;  // the same of two neighbours
  // Accumulators are numbered by the values that they sum.
  int accumulatorOf(int value) const {
    const std::vector<int> values = program.summedOverRows();
    return std::find(values.begin(), values.end(), value) - values.begin();
  }

  // Whether a thread keeps expensive values of its part of a row for a later stage.
  bool keeps() const;
  void chooseKept();
  Needed neededBy(int stage) const; // the last stage's is what is stored
  Needed summedBy(int stage) const; // what its cumulative sums are of

  void line(const std::string& content) { out += content + "\n"; }
  std::string rowStart(int operand) const;
  std::string gatheredLoad(int operand) const;
  // Whether the skeleton may turn a tile, and where in shared memory it has it.
  bool isTurned(int operand) const {
    return spec.schedule.skeleton == Skeleton::Turned && program.operands[operand].kind == OperandKind::Tile &&
           program.operands[operand].isStrided;
  }
  std::string turnedBefore(int operand) const;
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
  void turning();
  void elements();
  void elementPairs();
  std::string rowValues(int level) const;
  std::string rowValue(int instruction) const;
  std::string pickedLoads(int number) const;
  std::string raise(int stage) const;
  void arithmetic();
  void reductions();
  void sums();
  void stores();
  // What tells whether the program multiplies a tensor by 1 in its own memory.
  void unchanged();
  std::string elementStores(const ProgramValues& values, int lane) const;
  void emitPair();

  const ScheduledProgram& spec;
  const RowProgram& program;
  const ProgramValues values;
  ProgramValues::Keeping keeping;
  std::string out;
};

} // namespace cermet
