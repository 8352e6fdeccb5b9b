// The oracle of the host target's tests: a row program evaluated one row at a time in float64, each instruction's
// result rounded to its type. Sums are float64, so they have no order.
#pragma once
#include "compiler/RowProgram.h"
#include <vector>

namespace cermet::test {

double roundTo(double value, DType dtype); // nearest even, through f32
double unitInLastPlace(double value, DType dtype);

using Row = std::vector<double>; // of one operand: `columns` numbers, or one

// The arrays of one row by operand: inputs are read, tile and row outputs are filled. `sums`, by operand, grows by what
// the row adds to a column output.
void evaluateRow(const RowProgram& program, std::vector<Row>& operands, std::vector<Row>& sums);

} // namespace cermet::test
