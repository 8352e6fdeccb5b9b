// The functions of the text tests in tests/lit/patterns, as graphs to run: a form that is added there is run here.
#pragma once
#include "ir/meaning/Interpreter.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include <ostream>
#include <random>
#include <string>
#include <vector>

namespace cermet {

struct Form {
  std::string file, function;
};
inline void PrintTo(const Form& form, std::ostream* out) { *out << form.file << ".mlir @" << form.function; }

// Those that the interpreter can run: all without opaque operations.
std::vector<Form> forms();
// A form as a graph of its own; null if it is not there. The context has the graph's dialects.
mlir::OwningOpRef<mlir::ModuleOp> graphOf(const Form& form, mlir::MLIRContext& context);

// Normal numbers of one random magnitude for each argument; each symbol has a random size of 1 to 5.
std::vector<ir::Array> randomInputs(mlir::func::FuncOp function, std::mt19937_64& random);

// A fresh seed, or CERMET_SEED's, which a failure prints.
unsigned seedOfRun();

// Fails the running test unless both graphs compute the same bits of it.
void expectSameBits(mlir::ModuleOp expected, mlir::ModuleOp actual, llvm::ArrayRef<ir::Array> inputs);

} // namespace cermet
