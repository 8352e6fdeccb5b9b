#include "compiler/host/HostTarget.h"
#include "compiler/host/Linker.h"
#include "compiler/host/Module.h"
#include "compiler/host/Object.h"
#include "compiler/program/Target.h"
// The conversions' headers only declare Pass.
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "runtime/abi/Targets.h"
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/DiagnosticPrinter.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Transforms/Utils/Cloning.h>

namespace cermet {
namespace {

template <typename Printable> std::string textOf(const Printable& printable) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  stream << printable;
  return text;
}

mlir::DialectRegistry translations() {
  mlir::DialectRegistry dialects;
  mlir::registerBuiltinDialectTranslation(dialects);
  mlir::registerLLVMDialectTranslation(dialects);
  return dialects;
}

// Without a handler LLVM prints errors and ends the process.
struct ErrorCollector final : llvm::DiagnosticHandler {
  explicit ErrorCollector(std::string& error) : error(error) {}
  bool handleDiagnostics(const llvm::DiagnosticInfo& info) override {
    if (info.getSeverity() == llvm::DS_Error) {
      llvm::raw_string_ostream stream(error);
      llvm::DiagnosticPrinterRawOStream printer(stream);
      stream << (error.empty() ? "host target: " : "\n");
      info.print(printer);
    }
    return true;
  }
  std::string& error;
};

// One compilation's contexts, and the module as it goes through them.
struct HostBuild {
  HostBuild(const KernelSpec& spec, std::string& error)
      : spec(spec), error(error), context(translations(), mlir::MLIRContext::Threading::DISABLED) {
    context.loadDialect<mlir::arith::ArithDialect, mlir::LLVM::LLVMDialect, mlir::scf::SCFDialect>();
    llvmContext.setDiagnosticHandler(std::make_unique<ErrorCollector>(error));
  }

  // Spec to the LLVM module that the optimiser gets. `text`, unless null, receives the MLIR on the way.
  bool lower(std::string* text);

  const KernelSpec& spec;
  std::string& error;
  std::unique_ptr<llvm::TargetMachine> machine;
  mlir::MLIRContext context;
  llvm::LLVMContext llvmContext;
  std::unique_ptr<llvm::Module> module;
};

bool HostBuild::lower(std::string* text) {
  error.clear();
  if (!isHostTarget(spec.target)) {
    error = fmt::format("target '{}' is no host target; expected one of {}", spec.target, fmt::join(kHostTargets, " "));
    return false;
  }
  std::string level = spec.target.substr(spec.target.find(':') + 1);
  machine = hostMachine(level, error);
  if (!machine)
    return false;
  mlir::ScopedDiagnosticHandler diagnostics(&context, [&](mlir::Diagnostic& diagnostic) {
    error += fmt::format("{}{}", error.empty() ? "host target: " : "\n", diagnostic.str());
  });
  auto rows = hostModule(spec, hostEntries(spec), context, level != "x86-64-v2");
  if (text)
    *text = textOf(*rows);
  mlir::PassManager passes(&context);
  passes.addPass(mlir::createSCFToControlFlowPass());
  passes.addPass(mlir::createArithToLLVMConversionPass());
  passes.addPass(mlir::createConvertControlFlowToLLVMPass());
  if (mlir::failed(passes.run(*rows)))
    return false;
  module = mlir::translateModuleToLLVMIR(*rows, llvmContext, spec.name());
  if (!module)
    return false;
  prepareHostModule(*module, *machine);
  return true;
}

} // namespace

HostEntries hostEntries(const KernelSpec& spec) {
  return {spec.name() + "_host", spec.folds() ? spec.name() + "_fold" : ""};
}

std::string hostKernelSource(const KernelSpec& spec, std::string& error) {
  HostBuild build(spec, error);
  if (!build.lower(nullptr))
    return "";
  std::string title = "; " + print(spec);
  for (size_t at = 0; (at = title.find('\n', at)) != std::string::npos && at + 1 < title.size();)
    title.insert(++at, "; ");
  return title + textOf(*build.module);
}

bool buildHostKernel(const KernelSpec& spec, const Dump& dump, std::string& image, std::string& error) {
  HostBuild build(spec, error);
  std::string stem = dump.enabled() ? dumpStem(spec.name(), print(spec)) : "";
  std::string rows, object;
  if (!build.lower(dump.enabled() ? &rows : nullptr))
    return false;
  optimizeHostModule(*build.module, *build.machine);
  if (dump.enabled()) {
    std::string assembly, ignored;
    emitHostCode(*llvm::CloneModule(*build.module), *build.machine, /*assembly=*/true, assembly, ignored);
    dump.write(stem, "mlir", rows);
    dump.write(stem, "opt.ll", textOf(*build.module));
    dump.write(stem, "s", assembly);
  }
  return emitHostCode(*build.module, *build.machine, /*assembly=*/false, object, error) && error.empty() &&
         linkHostObject(object, image, error);
}

} // namespace cermet
