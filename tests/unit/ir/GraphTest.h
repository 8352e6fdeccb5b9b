// What the suites of this folder share: a context, parsing that must succeed, fresh random tensors, runs of the
// interpreter that must succeed. A failure prints the seed; CERMET_SEED repeats it.
#pragma once
#include "ir/meaning/Interpreter.h"
#include "ir/text/Text.h"
#include "mlir/IR/MLIRContext.h"
#include <gtest/gtest.h>
#include <random>

namespace cermet::ir {

class GraphTest : public testing::Test {
protected:
  GraphTest();

  // "func.func @f(...) ..." as a graph.
  mlir::OwningOpRef<mlir::ModuleOp> parse(const std::string& function);
  // The error of a text that must not parse, "" (and a failure) if it does.
  std::string parseError(const std::string& text);

  // Uniform numbers in a range.
  Array random(llvm::ArrayRef<int64_t> shape, double lowest = -2, double highest = 2);
  // Random tensors for every argument of the graph's function; each symbol is 3.
  std::vector<Array> randomInputs(mlir::ModuleOp graph, double lowest = -2, double highest = 2);
  std::vector<Array> run(mlir::ModuleOp graph, llvm::ArrayRef<Array> inputs, bool honourCasts);

  mlir::MLIRContext context;
  unsigned seed;
  std::mt19937_64 generator;

private:
  testing::ScopedTrace trace;
};

// |a - b| / |b| over all elements, in the Euclidean norm.
double relativeError(const Array& a, const Array& b);

// The same shape and numbers, NaN equal to NaN and 0 not to -0.
bool sameBits(const Array& a, const Array& b);

// The text of a graph around a function.
std::string graphText(const std::string& function);

} // namespace cermet::ir
