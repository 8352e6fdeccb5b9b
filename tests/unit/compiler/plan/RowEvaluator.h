// A row program on dense arrays, computed and rounded as the graph interpreter does it: the other half of the check
// that lowering keeps a graph's meaning.
#pragma once
#include "compiler/program/RowProgram.h"
#include <vector>

namespace cermet::tests {

// Per operand: its numbers, dense: rows x columns (tile), rows (row, index), columns (column), one (scalar), any
// number of rows x columns (gathered).
using OperandData = std::vector<std::vector<double>>;

// Reads the inputs of `data` and fills its outputs.
void evaluate(const RowProgram& program, int64_t rows, OperandData& data);

} // namespace cermet::tests
