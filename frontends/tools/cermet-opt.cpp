// cermet-opt: runs passes on graph text, for tests and for looking. `cermet-opt --help` lists them; plain MLIR options
// apply (-split-input-file, -verify-diagnostics, -mlir-print-ir-after-all, ...).
#include "ir/Ops.h"
#include "ir/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Transforms/Passes.h"
#include "patterns/Passes.h"

int main(int argc, char** argv) {
  mlir::DialectRegistry dialects;
  dialects.insert<cermet::ir::CermetDialect, mlir::func::FuncDialect>();
  mlir::registerCanonicalizerPass();
  mlir::registerCSEPass();
  cermet::ir::registerPasses();
  cermet::registerPatternPasses();
  return mlir::asMainReturnCode(mlir::MlirOptMain(argc, argv, "Cermet's passes\n", dialects));
}
