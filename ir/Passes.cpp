#include "ir/Passes.h"
#include "ir/transforms/Columns.h"
#include "ir/transforms/Decompose.h"
#include "ir/gradient/Gradient.h"
#include "ir/transforms/Parts.h"
#include "ir/transforms/Reshapes.h"
#include "ir/text/Text.h"
#include "ir/transforms/Transposes.h"
#include "mlir/Pass/Pass.h"

using namespace mlir;

namespace cermet::ir {

namespace {

struct CheckPass : PassWrapper<CheckPass, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(CheckPass)
  StringRef getArgument() const override { return "cermet-check"; }
  StringRef getDescription() const override { return "Verify that the module is a graph"; }
  void runOnOperation() override {
    if (failed(verifyGraph(getOperation())))
      signalPassFailure();
  }
};

struct DecomposePass : PassWrapper<DecomposePass, OperationPass<func::FuncOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(DecomposePass)
  StringRef getArgument() const override { return "cermet-decompose"; }
  StringRef getDescription() const override { return "Replace fused operations by what they stand for"; }
  void runOnOperation() override { decomposeFused(getOperation()); }
};

struct SinkReshapesPass : PassWrapper<SinkReshapesPass, OperationPass<func::FuncOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(SinkReshapesPass)
  StringRef getArgument() const override { return "cermet-sink-reshapes"; }
  StringRef getDescription() const override { return "Move reshapes to the end of what a kernel computes"; }
  void runOnOperation() override { sinkReshapes(getOperation()); }
};

struct ComputePartsApartPass : PassWrapper<ComputePartsApartPass, OperationPass<func::FuncOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ComputePartsApartPass)
  StringRef getArgument() const override { return "cermet-compute-parts-apart"; }
  StringRef getDescription() const override { return "Compute what is read in parts in these parts"; }
  void runOnOperation() override { computePartsApart(getOperation()); }
};

struct ReadColumnsPass : PassWrapper<ReadColumnsPass, OperationPass<func::FuncOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ReadColumnsPass)
  StringRef getArgument() const override { return "cermet-read-columns"; }
  StringRef getDescription() const override { return "Read a row's columns in place of slices and concats of it"; }
  void runOnOperation() override {
    readColumnsInPlace(getOperation());
    simplify(getOperation());
  }
};

struct HoistTransposesPass : PassWrapper<HoistTransposesPass, OperationPass<func::FuncOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(HoistTransposesPass)
  StringRef getArgument() const override { return "cermet-hoist-transposes"; }
  StringRef getDescription() const override { return "Move transposes to what a kernel reads"; }
  void runOnOperation() override { hoistTransposes(getOperation()); }
};

struct DifferentiatePass : PassWrapper<DifferentiatePass, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(DifferentiatePass)
  StringRef getArgument() const override { return "cermet-differentiate"; }
  StringRef getDescription() const override {
    return "Replace the graph's function by its forward and its backward with respect to all float inputs";
  }
  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (failed(verifyGraph(module)))
      return signalPassFailure();
    SmallVector<bool> wanted;
    for (Type type : graphFunction(module).getArgumentTypes()) {
      auto tensor = dyn_cast<RankedTensorType>(type);
      wanted.push_back(tensor && isa<FloatType>(tensor.getElementType()));
    }
    Gradient gradient;
    std::string error;
    if (!differentiate(module, wanted, gradient, error)) {
      module.emitError() << error;
      return signalPassFailure();
    }
    graphFunction(module).erase();
    for (ModuleOp part : {*gradient.forward, *gradient.backward}) {
      func::FuncOp function = graphFunction(part);
      function->remove();
      module.push_back(function);
    }
  }
};

} // namespace

void registerPasses() {
  PassRegistration<CheckPass>();
  PassRegistration<DecomposePass>();
  PassRegistration<SinkReshapesPass>();
  PassRegistration<ComputePartsApartPass>();
  PassRegistration<ReadColumnsPass>();
  PassRegistration<HoistTransposesPass>();
  PassRegistration<DifferentiatePass>();
}

} // namespace cermet::ir
