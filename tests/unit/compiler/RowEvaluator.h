// A row program, run as its header defines it: one number at a time, rounded after every instruction. Sums are exact
// enough to be the interpreter's. The other half of the check that lowering keeps a graph's meaning.
#pragma once
#include "compiler/RowProgram.h"
#include <vector>

namespace cermet::tests {

// Per operand: its numbers, dense: rows x columns (tile), rows (row), columns (column), one (scalar).
using OperandData = std::vector<std::vector<double>>;

// Reads the inputs of `data` and fills its outputs.
void evaluate(const RowProgram& program, int64_t rows, OperandData& data);

double rounded(double value, DType type);

} // namespace cermet::tests
