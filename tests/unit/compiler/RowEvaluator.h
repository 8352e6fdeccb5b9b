// The oracle of row programs: one row at a time, one number at a time, each instruction's result rounded or wrapped to
// its type. Reals are computed in float64, integers of every type are exact, and sums are float64, so they have no
// order.
#pragma once
#include "compiler/program/RowProgram.h"
#include <array>
#include <vector>

namespace cermet::test {

using Number = long double; // 64 significant bits: any integer or real

// How a computed real gets its 16-bit type: as kernels do it, or as the interpreter of graphs does.
enum class Rounding { ThroughF32, Once };

Number nearest(Number value, DType dtype);         // rounded once; integers toward zero and wrapped
Number roundTo(Number value, DType dtype);         // reals through f32
Number unitInLastPlace(Number value, DType dtype); // of a real type
bool isSame(Number a, Number b);                   // equal, or both NaN

// An instruction of numbers (no memory, no reduction) before it is rounded: what is true of its inputs.
Number compute(const Instruction& instruction, const std::array<Number, 3>& inputs);
// And after. `from`: the first input's type.
Number evaluate(const Instruction& instruction, const std::array<Number, 3>& inputs, DType from,
                Rounding rounding = Rounding::ThroughF32);

using Row = std::vector<Number>; // of one operand: `columns` numbers, or one; of an index operand, the index

// The arrays of one row by operand: inputs are read, tile and row outputs are filled. `sums`, by operand, grows by what
// the row adds to a column output.
void evaluateRow(const RowProgram& program, std::vector<Row>& operands, std::vector<Row>& sums,
                 Rounding rounding = Rounding::ThroughF32);

} // namespace cermet::test
