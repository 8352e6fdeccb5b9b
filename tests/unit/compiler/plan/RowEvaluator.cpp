#include "tests/unit/compiler/plan/RowEvaluator.h"
#include "tests/unit/compiler/RowEvaluator.h"
#include <cmath>

namespace cermet::tests {

void evaluate(const RowProgram& program, int64_t rows, OperandData& data) {
  const size_t count = program.operands.size();
  std::vector<int64_t> width(count), moved(count); // a row's numbers, and those from one row to the next
  std::vector<test::Row> sums(count);
  for (size_t i = 0; i < count; ++i) {
    const Operand& operand = program.operands[i];
    const bool isColumns = operand.kind == OperandKind::Tile || operand.kind == OperandKind::Column ||
                           operand.kind == OperandKind::Gathered;
    const bool isShared = operand.kind == OperandKind::Column || operand.kind == OperandKind::Scalar;
    width[i] = operand.map.isMapped() ? operand.map.width : isColumns ? program.columns : 1;
    moved[i] = isShared ? 0 : width[i];
    sums[i].assign(width[i], 0);
    if (operand.isOutput)
      data[i].assign(isShared ? width[i] : rows * width[i], 0);
  }
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<test::Row> current(count);
    for (size_t i = 0; i < count; ++i) {
      const Operand& operand = program.operands[i];
      const int64_t rowsOfIt = static_cast<int64_t>(data[i].size()) / width[i];
      const double number = operand.rowsFrom < 0 ? static_cast<double>(row) : data[operand.rowsFrom][row];
      if (operand.rowsFrom >= 0 && !(number >= 0 && number < static_cast<double>(rowsOfIt))) {
        current[i].assign(width[i], classOf(operand.dtype) == ValueClass::Real ? NAN : 0);
        continue;
      }
      const double* first = data[i].data() + static_cast<int64_t>(number) * moved[i];
      current[i].assign(first, first + width[i]);
    }
    test::evaluateRow(program, current, sums, test::Rounding::Once);
    for (size_t i = 0; i < count; ++i)
      if (program.operands[i].isOutput)
        std::copy(current[i].begin(), current[i].end(), data[i].begin() + row * moved[i]);
  }
  for (size_t i = 0; i < count; ++i)
    if (program.operands[i].isOutput && program.operands[i].kind == OperandKind::Column)
      for (int64_t column = 0; column < width[i]; ++column)
        data[i][column] = test::roundTo(sums[i][column], program.operands[i].dtype);
}

} // namespace cermet::tests
