// How a host kernel walks and touches memory: loops, steps of 16 columns, loads, stores, and the sum of a step's lanes.
#pragma once
#include "compiler/HostTargetMath.h"
#include "mlir/IR/BuiltinTypes.h"

namespace cermet {

using Values = llvm::SmallVector<mlir::Value>;

// 16 columns from `column` on; with a mask, the first few of them.
struct ColumnStep {
  mlir::Value column;
  mlir::Value mask; // null: all lanes
};

class HostColumns {
public:
  static constexpr int64_t kLanes = 16, kSums = 4;

  HostColumns(mlir::ImplicitLocOpBuilder& builder, HostMath& math, int64_t columns);

  mlir::Type real() const { return builder.getF32Type(); }
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
  // The sums over all columns of the values that `body` gives for a step, one vector each, starting from zeros. Steps
  // take turns in kSums sums, which end in a tree: shorter chains of additions are both faster and more accurate.
  Values columnSums(size_t count, llvm::function_ref<Values(const ColumnStep&)> body);

  mlir::Value element(mlir::Value base, mlir::Value offset, DType dtype); // address; `offset` in elements
  // One element at `base`, or, with a step, its columns; as f32.
  mlir::Value load(mlir::Value base, DType dtype, const ColumnStep* step);
  void store(mlir::Value value, mlir::Value base, DType dtype, bool isExact, const ColumnStep* step);

  mlir::Value splat(mlir::Value scalar);
  mlir::Value zeros();
  mlir::Value sumOfLanes(mlir::Value vector); // by a fixed tree

private:
  mlir::Value raggedMask();

  mlir::ImplicitLocOpBuilder& builder;
  HostMath& math;
  int64_t columns;
};

} // namespace cermet
