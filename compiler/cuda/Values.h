// The values of a row program as CUDA C++ expressions. A value lives where it is cheapest: per-row values in the Row
// struct, element and column values recomputed from the packed inputs wherever a stage needs them, constants in place.
#pragma once
#include "compiler/program/KernelSpec.h"
#include <algorithm>
#include <vector>

namespace cermet {

const char* deviceType(DType type); // in memory
const char* valueType(DType type);  // in registers

class ProgramValues {
public:
  using Needed = std::vector<bool>; // by instruction

  // `runs`: whether a maximum and the sum of exponentials below it are found in one pass. `vector`: how many elements a
  // vector has, or 1.
  ProgramValues(const RowProgram& program, bool runs, int vector);

  // How many reductions lie before an instruction on its longest path.
  int level(size_t instruction) const { return levels[instruction]; }
  int stageCount() const { return stages; }
  // A row's maximum of x and its sum of exp(x - maximum) in one pass: what is summed is below the largest x so far, and
  // the sum shrinks by as much as that grows. The sum is of its maximum's level then.
  struct Running {
    int maximum, sum; // instructions
  };
  bool isRunningMaximum(int instruction) const {
    return std::ranges::any_of(pairs, [&](const Running& pair) { return pair.maximum == instruction; });
  }
  int maximumOf(int sum) const { // -1 where that is no running sum
    const auto pair = std::ranges::find(pairs, sum, &Running::sum);
    return pair == pairs.end() ? -1 : pair->maximum;
  }
  int sumOf(int maximum) const { return std::ranges::find(pairs, maximum, &Running::maximum)->sum; }
  // Whether a fast function's error is lost: in the rounding of all that is stored of it, or of all tiles.
  bool isFast(int instruction) const { return !hasWideTiles || !stored[instruction]; }
  // exp in f32, or what is near enough for this sum.
  const char* exponential(int sum) const { return isFast(sum) ? "fast_exp" : "exact_exp"; }
  bool isReduction(size_t instruction) const { return cermet::isReduction(program.instructions[instruction].opcode); }
  // Kept in the Row struct rather than recomputed.
  bool inRow(size_t instruction) const;
  // Whether an operand has a number for each row and column.
  bool isTile(size_t operand) const {
    return program.operands[operand].kind == OperandKind::Tile ||
           program.operands[operand].kind == OperandKind::Gathered;
  }
  // An operand's field in the structs that hold one member for each operand.
  std::string field(int operand) const;

  // Marks what must be computed locally for a value; stops at values that the Row struct holds.
  void need(int instruction, Needed& needed) const;
  std::string use(int instruction) const;
  // The value of an instruction that is no load, reduction or store, rounded or wrapped to its type.
  std::string rounded(int instruction) const;
  // The statements of the values needed in a stage. One in `kept`, by its place there, is taken from what an earlier
  // stage computed, or kept for a later one where `stage` is its first.
  struct Keeping {
    std::vector<int> kept;   // instructions
    std::vector<int> stages; // in which they are computed
    // Of an instruction: its place among them, or how many there are where it is none.
    size_t placeOf(int index) const { return std::ranges::find(kept, index) - kept.begin(); }
    bool keeps(int index) const { return placeOf(index) < kept.size(); }
  };
  std::string statements(const Needed& needed, const char* indent) const;
  std::string statements(const Needed& needed, const char* indent, const Keeping& keeping, int stage) const;
  // The same of two neighbouring elements at once, each value in the form that `pairType` says; in the scope of their
  // names `element` holds pairs too.
  std::string pairStatements(const Needed& needed, const char* indent, const Keeping& keeping, int stage) const;
  // A float of sixteen bits: two are a word, which arithmetic takes as it is.
  bool isPair(int instruction) const;
  // Whether two of them are added or multiplied in one instruction.
  bool isPairArithmetic(int instruction) const;
  // The value of one of the two elements, in f32, as an integer or a boolean.
  ProgramValues ofLane(int lane) const {
    ProgramValues result = *this;
    result.lane = lane;
    return result;
  }
  // Whether computing it again costs more than a register.
  bool isExpensive(int instruction) const;

  // What memory holds as a value, and a value as what memory holds.
  static std::string fromMemory(DType type, const std::string& packed);
  static std::string toMemory(DType type, const std::string& value);

private:
  std::string expression(int instruction) const;
  std::string conversion(DType from, DType to, const std::string& value) const;
  bool isExact(const Instruction& instruction) const;
  bool isRoundedByStores(int instruction) const;
  bool isVectorWide(const Instruction& comparison) const;
  std::string columnComparison(const Instruction& instruction, const char* sign) const;
  std::string pairExpression(int instruction) const;
  std::string pairDeclaration(int instruction) const;
  int maximumBelow(const Instruction& sum) const;
  bool isRandom(int comparison) const;

  const RowProgram& program;
  int vector;
  int lane = -1;             // of two elements, while these are written
  bool hasWideTiles = false; // of f32
  std::vector<bool> stored;  // of each instruction, whether something is that is made of it and stored in f32
  std::vector<int> levels;
  std::vector<Running> pairs;
  int stages = 1;
};

} // namespace cermet
