// cermet-opt: runs passes on graph text, for tests and for looking. `cermet-opt --help` lists them; plain MLIR options
// apply (-split-input-file, -verify-diagnostics, -mlir-print-ir-after-all, ...). A text has the limits of a graph's.
#include "frontends/tools/StandardStreams.h"
#include "ir/dialect/Ops.h"
#include "ir/Passes.h"
#include "ir/text/Scan.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Support/FileUtilities.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Transforms/Passes.h"
#include "patterns/Passes.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/ToolOutputFile.h"
#include "llvm/Support/raw_ostream.h"
#include <unistd.h>

// Whether all that was written arrived. LLVM's own answer to an error that nobody looks at is to end the process.
static bool arrived(llvm::raw_fd_ostream& stream, llvm::StringRef name) {
  stream.flush();
  if (!stream.has_error())
    return true;
  llvm::errs() << "cermet-opt: " << name << " cannot be written: " << stream.error().message() << '\n';
  stream.clear_error();
  return false;
}

static int run(const mlir::MlirOptMainConfig& config, llvm::StringRef inputName, llvm::StringRef outputName,
               mlir::DialectRegistry& dialects) {
  std::string error;
  auto input = mlir::openInputFile(inputName, &error);
  if (input)
    error = cermet::ir::scanText(input->getBuffer());
  auto output = error.empty() ? mlir::openOutputFile(outputName, &error) : nullptr;
  if (!output) {
    llvm::errs() << "cermet-opt: " << error << '\n';
    return EXIT_FAILURE;
  }
  const bool passed = succeeded(mlir::MlirOptMain(output->os(), std::move(input), dialects, config));
  if (!arrived(output->os(), outputName == "-" ? "standard output" : outputName) || !passed)
    return EXIT_FAILURE; // a file of which only a part is there is removed
  output->keep();
  return EXIT_SUCCESS;
}

int main(int argc, char** argv) {
  cermet::tools::openStandardStreams();
  llvm::InitLLVM signals(argc, argv);
  mlir::DialectRegistry dialects;
  dialects.insert<cermet::ir::CermetDialect, mlir::func::FuncDialect>();
  mlir::registerCanonicalizerPass();
  mlir::registerCSEPass();
  cermet::ir::registerPasses();
  cermet::registerPatternPasses();
  // --help and its like print and end the process: registered after both streams are made, this runs before they are
  // gone.
  llvm::outs();
  llvm::errs();
  std::atexit([] {
    if (!arrived(llvm::outs(), "standard output"))
      _exit(EXIT_FAILURE);
  });
  auto [input, output] = mlir::registerAndParseCLIOptions(argc, argv, "Cermet's passes\n", dialects);
  const auto config = mlir::MlirOptMainConfig::createFromCLOptions();
  if (config.shouldShowDialects() || config.shouldListPasses()) // prints lists, reads and writes no file
    return mlir::asMainReturnCode(mlir::MlirOptMain(argc, argv, input, output, dialects));
  return run(config, input, output, dialects);
}
