#include "patterns/Passes.h"
#include "ir/dialect/Ops.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"
#include "patterns/Registry.h"
#include "patterns/matching/Raise.h"

using namespace mlir;

namespace cermet {
namespace {

struct RaisePass : PassWrapper<RaisePass, OperationPass<func::FuncOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(RaisePass)

  llvm::StringRef getArgument() const override { return "cermet-raise"; }
  llvm::StringRef getDescription() const override {
    return "Rewrite the sequences that the registry's finders match into named operations; report near misses as "
           "remarks";
  }
  void runOnOperation() override {
    for (const NearMiss& miss : raise(getOperation(), fusions()).nearMisses)
      emitRemark(miss.location) << "near miss of " << miss.pattern << " at " << miss.at << ": " << miss.condition;
  }
};

} // namespace

void registerPatternPasses() {
  PassRegistration<RaisePass>();
}

} // namespace cermet
