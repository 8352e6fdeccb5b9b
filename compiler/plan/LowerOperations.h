// What the dialect's types and operations are called in a row program.
#pragma once
#include "compiler/program/RowProgram.h"
#include "mlir/IR/Operation.h"
#include <optional>

namespace cermet {

std::optional<DType> dtypeOf(mlir::Type type); // of a number, or of a tensor's elements
// The opcode of an operation that works element by element. `gt` and `ge` are `lt` and `le` with their operands
// exchanged.
std::optional<Opcode> elementwise(mlir::Operation& op);
// The opcode of a reduction over the last dimension.
std::optional<Opcode> reduction(mlir::Operation& op);

} // namespace cermet
