// What messages and answers call an operation or a value: the `loc("...")` that the frontend gave it. Result i of an
// operation with several is `name#i`. Where the text gives no name, the place is named instead: `rsqrt at line 8`.
#pragma once
#include "mlir/IR/Operation.h"
#include <string>

namespace cermet {

std::string nameOf(mlir::Operation* op);
std::string nameOf(mlir::Value value);
bool hasName(mlir::Operation* op); // given by the frontend

// The location of an operation that stands for values of several: it keeps the name of each.
mlir::Location locationOf(llvm::ArrayRef<mlir::Value> results);

} // namespace cermet
