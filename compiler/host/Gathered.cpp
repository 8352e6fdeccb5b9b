// Rows that numbers say: which they are, whether they exist, and sums of them.
#include "compiler/host/ProgramBody.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace cermet {

// Notes a number that is none, if it is the first.
void HostProgram::expect(Value isThere, Value number, Value bound, bool isColumn) {
  auto at = [&](size_t offset) -> Value {
    return LLVM::GEPOp::create(builder, pointer, builder.getI8Type(), fault,
                               ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(offset)});
  };
  OpBuilder::InsertionGuard guard(builder);
  Value isMissing = arith::XOrIOp::create(builder, isThere, math.integer(builder.getI1Type(), 1));
  auto missing = scf::IfOp::create(builder, TypeRange(), isMissing, /*withElseRegion=*/false);
  builder.setInsertionPointToStart(missing.thenBlock());
  Value known = LLVM::LoadOp::create(builder, i64, at(offsetof(HostFault, row)), 8);
  Value isFirst = arith::CmpIOp::create(builder, arith::CmpIPredicate::slt, known, columns.index(0));
  auto first = scf::IfOp::create(builder, TypeRange(), isFirst, /*withElseRegion=*/false);
  builder.setInsertionPointToStart(first.thenBlock());
  LLVM::StoreOp::create(builder, current, at(offsetof(HostFault, row)), 8);
  LLVM::StoreOp::create(builder, number, at(offsetof(HostFault, number)), 8);
  LLVM::StoreOp::create(builder, bound, at(offsetof(HostFault, bound)), 8);
  LLVM::StoreOp::create(builder, columns.index(isColumn), at(offsetof(HostFault, isColumn)), 8);
}

// The row of a gathered operand, which begins at `source`, that has this number.
Place HostProgram::rowAt(size_t operand, Value source, Value number) {
  const Operand& which = program.operands[operand];
  Value rows = strideOf(operand, kGatheredRows);
  Value isThere = arith::CmpIOp::create(builder, arith::CmpIPredicate::ult, number, rows);
  expect(isThere, number, rows, /*isColumn=*/false);
  Value offset = columns.multiply(number, strideOf(operand, kGatheredStride));
  offset = arith::SelectOp::create(builder, isThere, offset, columns.index(0));
  return {columns.element(source, offset, which.dtype), which.dtype, distance[operand], isThere};
}

// The current row of each gathered operand, from the numbers that others have there, or which of a list are its own.
// `source`: where their rows begin.
void HostProgram::gather(const Values& source) {
  for (size_t i = 0; i < program.operands.size(); ++i) {
    const Operand& operand = program.operands[i];
    if (operand.kind != OperandKind::Gathered)
      continue;
    if (operand.from < 0) {
      const Place row = rowAt(i, source[i], columns.load(place(operand.rowsFrom), nullptr));
      base[i] = row.base;
      exists[i] = row.exists;
      continue;
    }
    Value begin = columns.load(place(operand.from), nullptr), end = columns.load(place(operand.to), nullptr);
    begins[i] = arith::MaxSIOp::create(builder, begin, columns.index(0));
    ends[i] = arith::MinSIOp::create(builder, end, strideOf(operand.rowsFrom, kGatheredRows));
  }
}

// The current row of an operand whose rows are added, in the order of the list; `load` reads one of them. Sums of parts
// are no faster for a thread that adds one row at a time.
Value HostProgram::sumRows(int index, Value zero, llvm::function_ref<Value(const Place&)> load) {
  const Operand& operand = program.operands[index];
  const DType number = program.operands[operand.rowsFrom].dtype;
  const Values sum = columns.loop(begins[index], ends[index], 1, {zero}, [&](Value i, const Values& current) {
    Value offset = columns.multiply(i, strideOf(operand.rowsFrom, kGatheredStride));
    Value at = columns.load({columns.element(base[operand.rowsFrom], offset, number), number, {}}, nullptr);
    return Values{arith::AddFOp::create(builder, current[0], load(rowAt(index, base[index], at)))};
  });
  return math.round(sum[0], loadedType(operand));
}

} // namespace cermet
