// Plan: the compiler's answer to a graph (docs/plan-format.md) as a struct. parsePlan() accepts only what a launch can
// run without looking again: every index is in range, every dtype known, every operand's dimensions fit the row space
// of its step, every view is one of its source where the sizes are known. Immutable afterwards.
#pragma once
#include "runtime/abi/Limits.h"
#include "runtime/abi/OperandKind.h"
#include "runtime/abi/RowArguments.h"
#include "runtime/abi/Skeleton.h"
#include "runtime/support/Status.h"
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cermet {

constexpr int kMaxRank = CERMET_MAX_RANK;

// A size that is known, or a symbol's index where it is not.
struct Dimension {
  int64_t size = 0; // -1: symbolic
  int symbol = -1;

  bool symbolic() const { return symbol >= 0; }
  bool operator==(const Dimension&) const = default;
};

enum class ValueKind { Input, Output, Buffer, View };

struct PlanValue {
  std::string name;
  ValueKind kind = ValueKind::Buffer;
  cermet_dtype dtype = CERMET_F32;
  int rank = 0;
  std::array<Dimension, kMaxRank> dims{};
};

enum class ViewKind { Slice, Transpose, Reshape, Broadcast };

// How the last values of a plan, which have no memory of their own, are read from another.
struct PlanView {
  ViewKind kind = ViewKind::Slice;
  int source = 0;                             // a value before the view
  int root = 0;                               // the input, output or buffer that the memory is of
  bool repeats = false;                       // it is a broadcast or a view of one
  std::array<int64_t, kMaxRank> starts{};     // Slice
  std::array<int8_t, kMaxRank> permutation{}; // Transpose: the source's dimension that each dimension is
};

struct PlanOperand {
  int value = 0; // -1: Index, which has none
  OperandKind kind = OperandKind::Tile;
  bool output = false;
  bool strided = false; // Tile, Column: the last dimension may have any stride
  int8_t stepDim = -1;  // the value's dimension whose stride is from one column to the next; -1: 1
  int8_t rowsFrom = -1; // Gathered: the operand, a Row of integers or a List, that has the numbers of the value's rows
  // Gathered by a List: Rows of integers, where each row's numbers begin and end in it; a List of sums of its parts.
  int8_t from = -1, to = -1, sums = -1;
  bool isTable = false; // List: of rows, not of their numbers
  // For Tile, Row and Index: the value's dimension that moves with each dimension of the step's row space, or -1
  // (repeats). An index has 0 for each that it counts along.
  std::array<int8_t, kMaxRank> axis{};

  bool walksRows() const { return kind == OperandKind::Tile || kind == OperandKind::Row || kind == OperandKind::Index; }
  // Its columns are moved as vectors where they are aligned.
  bool movesVectors() const {
    return !strided &&
           (kind == OperandKind::Tile || kind == OperandKind::Column || kind == OperandKind::Gathered || isTable);
  }
};

enum class StepKind { Kernel, External };

// A row program of a kernel, over rows of its own.
struct PlanProgram {
  Skeleton skeleton = Skeleton::Flat;
  int64_t columns = 0;
  int rowsPerBlock = 1, vector = 1, blocksPerSm = 0, accumulators = 0;
  std::vector<PlanOperand> operands;
  int rowRank = 0;
  std::array<Dimension, kMaxRank> rowSpace{}; // the first rowRank; outermost first
  int leading = -1; // of the operands that walk rows, the one in whose memory order rows are walked; -1: any order
};

struct PlanStep {
  StepKind kind = StepKind::Kernel;
  std::string name; // of the kernel, or the external operation
  // Kernel
  std::string spec;
  int threads = 0, sharedBytes = 0;
  std::string vectorEntry, scalarEntry, foldEntry;
  std::vector<PlanProgram> programs; // up to kMaxPrograms, side by side; alone where one accumulates or is persistent
  // External: values
  std::vector<int> externalOperands, externalResults;
};

struct Plan {
  std::string name;
  std::string target;
  std::vector<std::string> symbols;
  std::vector<PlanValue> values; // inputs, outputs, buffers, views
  std::vector<PlanView> views;   // of the last values
  int inputs = 0, outputs = 0;
  std::vector<PlanStep> steps;
  std::string json;

  std::vector<std::string> specs() const; // of its kernels, in the order of its steps
  int firstView() const { return static_cast<int>(values.size() - views.size()); }
  const PlanView* view(int value) const { return value < firstView() ? nullptr : &views[value - firstView()]; }
  int root(int value) const { return value < firstView() ? value : view(value)->root; }
};

// The message says where the text is wrong.
Result<Plan> parsePlan(std::string json);

} // namespace cermet
