#include "compiler/plan/NormalForm.h"
#include "compiler/plan/Lower.h"
#include "compiler/plan/StepFunction.h"
#include "compiler/plan/StoredValues.h"
#include "compiler/program/ColumnMap.h"
#include "ir/dialect/Ops.h"
#include "ir/transforms/Columns.h"
#include "ir/transforms/Decompose.h"
#include "ir/transforms/Parts.h"
#include "ir/transforms/Reshapes.h"
#include "ir/transforms/Transposes.h"

using namespace mlir;

namespace cermet {

void normalize(func::FuncOp function, llvm::function_ref<void(Operation*)> mark) {
  function.walk([](ir::DecomposableOpInterface op) { op->setLoc(partOf(op->getName().stripDialect(), op->getLoc())); });
  ir::decomposeFused(function, hasKernelTypes);
  if (mark)
    for (Operation& op : function.getBody().front().without_terminator())
      mark(&op);
  ir::simplify(function);
  ir::hoistTransposes(function);
  ir::readColumnsInPlace(function, [](Value stored, ArrayRef<int64_t> columns) {
    const int64_t width = ir::typeOf(stored).getShape().back();
    return hasUnitStride(stored) && columnMapOf(columns.vec(), width).has_value();
  });
  ir::simplify(function);
  ir::computePartsApart(function);
  ir::sinkReshapes(function);
  ir::simplify(function);
}

} // namespace cermet
