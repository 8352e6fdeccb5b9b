// The functions of one row program while they are written: what they have been given, and values so far.
#pragma once
#include "compiler/host/Columns.h"
#include "compiler/host/Operations.h"
#include "compiler/host/Program.h"
#include "runtime/abi/RowArguments.h"
#include <cstddef>

namespace cermet {

class HostProgram {
public:
  HostProgram(const RowProgram& program, mlir::ModuleOp module, bool hasF16C)
      : program(program), module(module), builder(module.getLoc(), module.getContext()), math(builder, hasF16C),
        columns(builder, math, program.columns, program.runsBackward()), operations(builder, math, module) {
    builder.setInsertionPointToEnd(module.getBody());
    i64 = builder.getI64Type();
    pointer = columns.pointer();
    for (size_t i = 0; i < program.operands.size(); ++i)
      if (program.operands[i].isOutput && program.operands[i].kind == OperandKind::Column)
        accumulators.push_back(i);
  }

  void emitMain(mlir::StringRef name, mlir::LLVM::Linkage linkage);
  void emitFold(mlir::StringRef name);

private:
  // A column step with the program's values in it, by instruction, filled on demand.
  struct Step : ColumnStep {
    Values values;
  };

  Values beginFunction(mlir::StringRef name, mlir::ArrayRef<mlir::Type> rest,
                       mlir::LLVM::Linkage linkage = mlir::LLVM::Linkage::External);
  mlir::Value loadArgument(mlir::Type type, size_t offset);
  Values partialsAt(mlir::Value row);

  void loadOperands();
  mlir::Value moved(size_t operand, mlir::Value from, mlir::Value offset);
  Place place(int operand) const {
    const Operand& which = program.operands[operand];
    return {base[operand], which.dtype, distance[operand], exists[operand],
            which.map.isMapped() ? &which.map : nullptr};
  }
  void gather(const Values& source);
  mlir::Value strideOf(size_t operand, int k);
  Place rowAt(size_t operand, mlir::Value source, mlir::Value number);
  mlir::Value sumRows(int operand, mlir::Value zero, llvm::function_ref<mlir::Value(const Place&)> load);
  void expect(mlir::Value isThere, mlir::Value number, mlir::Value bound, bool isColumn);

  void loadExtents();
  mlir::Value emitRun(mlir::Value row, mlir::Value end);
  void emitRowScalars(int stage);
  void beginSums(mlir::ArrayRef<size_t> needed);
  void emitColumns(int stage);
  mlir::Value valueOf(int instruction, Step* step);
  mlir::Value compute(const Instruction& instruction, Step* step);
  mlir::Value pick(const Instruction& instruction);
  mlir::Value valueAt(int instruction, mlir::Value column, Values& known);
  bool isExact(int instruction, DType dtype) const;

  const RowProgram& program;
  mlir::ModuleOp module;
  mlir::ImplicitLocOpBuilder builder;
  HostMath math;
  HostColumns columns;
  HostOperations operations;
  mlir::Type i64, pointer;
  mlir::SmallVector<size_t> accumulators; // operands, in order

  mlir::Value arguments;             // the function's RowArguments
  mlir::Value fault;                 // main's HostFault
  mlir::Value current;               // the row's number
  llvm::SmallDenseSet<int> expected; // numbers of columns that were asked for
  Values extents;
  Values base;         // by operand: its array, or the current row in it; an index operand's current number
  Values distance;     // by operand: between columns that are strided
  Values exists;       // by operand: of a gathered one, whether it has the current row
  Values begins, ends; // by operand: of one whose rows are added, where the current row's numbers lie in their list
  Values partials;     // by accumulator: a row of partial sums
  Values scalars;      // Uniform and Row values, by instruction
  llvm::SmallMapVector<int, mlir::Value, 2>
      sums; // of cumulative sums that the current walk makes: those of the steps before
};

} // namespace cermet
