// How a host kernel walks and touches memory: loops, steps of 16 columns, loads, stores, and reductions along a row.
#pragma once
#include "compiler/host/Math.h"
#include "mlir/IR/BuiltinTypes.h"

namespace cermet {

using Values = llvm::SmallVector<mlir::Value>;

// 16 columns from `column` on; with a mask, the first few of them.
struct ColumnStep {
  mlir::Value column;
  mlir::Value mask; // null: all lanes
};

// Where an operand's columns lie, or its one element.
struct Place {
  mlir::Value base;
  DType dtype;
  mlir::Value distance; // an input's: from one column to the next, in elements; null: 1
  mlir::Value exists{}; // an input's: false reads NaN (0 where the type is no real), not memory; null: true
  const ColumnMap* map = nullptr; // an input's: which of its columns is read; null: the program's own
};

class HostColumns {
public:
  static constexpr int64_t kLanes = 16, kSums = 4;

  // `runsBackward`: loops over columns begin with the last step.
  HostColumns(mlir::ImplicitLocOpBuilder& builder, HostMath& math, int64_t columns, bool runsBackward);

  mlir::Type pointer() const;
  mlir::VectorType lanes() const; // of f32

  mlir::Value index(int64_t value); // i64
  mlir::Value add(mlir::Value a, mlir::Value b);
  mlir::Value multiply(mlir::Value a, mlir::Value b);

  // Maps the carried values of one iteration to the next one's; answers the last ones.
  Values loop(mlir::Value from, mlir::Value to, int64_t step, const Values& initial,
              llvm::function_ref<Values(mlir::Value, const Values&)> body);
  // The same over all columns. A masked step's idle lanes load zeros and store nothing; `body` keeps them out of what
  // it carries.
  Values columnLoop(const Values& initial, llvm::function_ref<Values(const ColumnStep&, const Values&)> body);
  // Reduces over all columns the values that `body` gives for a step, one vector each for the reductions in `folds`.
  // Steps take turns in kSums vectors, which end in a tree, as their lanes do: shorter chains of additions are both
  // faster and more accurate. `body` maps what is `carried` to the next step's.
  Values columnFolds(llvm::ArrayRef<Opcode> folds, Values& carried, llvm::function_ref<Values(const ColumnStep&)> body);
  // The cumulative sums of a step's terms, as wide as `carry`, which is the sum of the steps before and becomes the
  // next step's.
  mlir::Value cumulate(mlir::Value terms, const ColumnStep& step, mlir::Value& carry);

  mlir::Value element(mlir::Value base, mlir::Value offset, DType dtype); // address; `offset` in elements
  // One element, or, with a step, its columns; of a place that may not exist the latter.
  mlir::Value load(const Place& place, const ColumnStep* step);
  mlir::Value loadAt(const Place& place, mlir::Value column); // one element, the one at `column`
  void store(mlir::Value value, const Place& place, bool isExact, const ColumnStep* step);

  mlir::Value splat(mlir::Value scalar);
  mlir::Value zeros();                         // of f32
  // Of the step's columns, their remainders where there is a period; i64.
  mlir::Value numbers(const ColumnStep& step, int64_t period = 0);

private:
  mlir::Value raggedMask();
  mlir::Value turned(mlir::Value column, int64_t last);
  int64_t width(const ColumnStep& step) const; // its lanes in use
  mlir::Value missing(DType dtype);            // for every lane
  mlir::Value mapped(const ColumnMap& map, mlir::Value column);
  mlir::Value loadLanes(const Place& place, const ColumnStep& step);
  void storeLanes(mlir::Value vector, const Place& place, const ColumnStep& step);
  mlir::Value identity(Opcode fold);
  mlir::Value combine(Opcode fold, mlir::Value a, mlir::Value b);
  mlir::Value foldLanes(Opcode fold, mlir::Value vector); // by a fixed tree

  mlir::ImplicitLocOpBuilder& builder;
  HostMath& math;
  int64_t columns;
  bool runsBackward;
};

} // namespace cermet
