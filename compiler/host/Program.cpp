#include "compiler/host/ProgramBody.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace cermet {
namespace {

bool isRowScalar(Space space) {
  return space == Space::Row || space == Space::Uniform;
}
// By its strides: an address, or an index operand's number.
bool movesWithRow(const Operand& operand) {
  return operand.kind == OperandKind::Tile || operand.kind == OperandKind::Row || operand.kind == OperandKind::Index;
}
size_t operandOffset(size_t operand) {
  return offsetof(RowArguments, operand) + operand * sizeof(RowOperand);
}

} // namespace

// A function of the RowArguments and of what else it takes, which is returned.
Values HostProgram::beginFunction(StringRef name, ArrayRef<Type> rest, LLVM::Linkage linkage) {
  SmallVector<Type> types{pointer};
  llvm::append_range(types, rest);
  auto type = LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(builder.getContext()), types);
  auto function = LLVM::LLVMFuncOp::create(builder, name, type, linkage);
  // Nothing that the kernel stores is part of its arguments, so their fields stay in registers.
  function.setArgAttr(0, LLVM::LLVMDialect::getNoAliasAttrName(), builder.getUnitAttr());
  function.setArgAttr(0, LLVM::LLVMDialect::getReadonlyAttrName(), builder.getUnitAttr());
  Block* entry = function.addEntryBlock(builder);
  builder.setInsertionPointToStart(entry);
  arguments = entry->getArgument(0);
  return Values(entry->getArguments().drop_front());
}

// Where each accumulator's partial row `row` starts.
Values HostProgram::partialsAt(Value row) {
  Value all = loadArgument(pointer, offsetof(RowArguments, partials));
  Value count = loadArgument(i64, offsetof(RowArguments, partialRows));
  Values starts;
  for (size_t i = 0; i < accumulators.size(); ++i) {
    Value number = columns.add(columns.multiply(columns.index(i), count), row);
    starts.push_back(columns.element(all, columns.multiply(number, columns.index(program.columns)), DType::F32));
  }
  return starts;
}

Value HostProgram::loadArgument(Type type, size_t offset) {
  Value at = LLVM::GEPOp::create(builder, pointer, builder.getI8Type(), arguments,
                                 ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(offset)});
  return LLVM::LoadOp::create(builder, type, at, 8);
}

// Whether the value is one of `dtype` already, so that rounding to it changes nothing.
bool HostProgram::isExact(int instruction, DType dtype) const {
  return dtype == DType::F32 || program.instructions[instruction].type == dtype;
}

Value HostProgram::valueOf(int instruction, Step* step) {
  const Instruction& definition = program.instructions[instruction];
  if (isRowScalar(definition.space)) {
    if (!step)
      return scalars[instruction];
    Value& value = step->values[instruction];
    return value ? value : value = columns.splat(scalars[instruction]);
  }
  Value& value = step->values[instruction];
  if (!value)
    value = compute(definition, step);
  return value;
}

Value HostProgram::compute(const Instruction& instruction, Step* step) {
  switch (instruction.opcode) {
  case Opcode::Load:
    if (program.operands[instruction.operand].kind == OperandKind::Index)
      return base[instruction.operand];
    if (program.operands[instruction.operand].from >= 0)
      return sumRows(instruction.operand, columns.zeros(), [&](const Place& row) { return columns.load(row, step); });
    return columns.load(place(instruction.operand), step);
  case Opcode::ColumnIndex:
    return math.round(columns.numbers(*step, static_cast<int64_t>(instruction.constant)), instruction.type);
  case Opcode::Cumsum: {
    Value& sum = sums.find(static_cast<int>(&instruction - program.instructions.data()))->second;
    return math.round(columns.cumulate(valueOf(instruction.inputs[0], step), *step, sum), instruction.type);
  }
  default:
    break;
  }
  Values inputs;
  SmallVector<DType> types;
  for (int i = 0; i < inputCount(instruction.opcode); ++i) {
    inputs.push_back(valueOf(instruction.inputs[i], step));
    types.push_back(program.instructions[instruction.inputs[i]].type);
  }
  return operations.compute(instruction, inputs, types);
}

// An element or column value at one column. `known`: by instruction, what was asked for there before.
Value HostProgram::valueAt(int index, Value column, Values& known) {
  const Instruction& instruction = program.instructions[index];
  if (isRowScalar(instruction.space))
    return scalars[index];
  if (known[index])
    return known[index];
  if (instruction.opcode == Opcode::Load && program.operands[instruction.operand].from >= 0)
    return known[index] = sumRows(instruction.operand, math.constant(builder.getF32Type(), 0),
                                  [&](const Place& row) { return columns.loadAt(row, column); });
  if (instruction.opcode == Opcode::Load)
    return known[index] = columns.loadAt(place(instruction.operand), column);
  if (instruction.opcode == Opcode::ColumnIndex) {
    const int64_t period = static_cast<int64_t>(instruction.constant);
    Value number = period == 0 ? column : arith::RemUIOp::create(builder, column, columns.index(period)).getResult();
    return known[index] = math.round(number, instruction.type);
  }
  Values inputs;
  SmallVector<DType> types;
  for (int i = 0; i < inputCount(instruction.opcode); ++i) {
    inputs.push_back(valueAt(instruction.inputs[i], column, known));
    types.push_back(program.instructions[instruction.inputs[i]].type);
  }
  return known[index] = operations.compute(instruction, inputs, types);
}

Value HostProgram::pick(const Instruction& instruction) {
  Value number = scalars[instruction.inputs[1]];
  Value exists = arith::CmpIOp::create(builder, arith::CmpIPredicate::ult, number, columns.index(program.columns));
  if (isIndex(instruction) && expected.insert(instruction.inputs[1]).second)
    expect(exists, number, columns.index(program.columns), /*isColumn=*/true);
  Value column = arith::SelectOp::create(builder, exists, number, columns.index(0));
  Values known(program.instructions.size());
  Value value = valueAt(instruction.inputs[0], column, known);
  Value missing = math.constant(builder.getF32Type(), static_cast<float>(instruction.constant));
  value = arith::SelectOp::create(builder, exists, value, missing);
  return math.round(value, instruction.type);
}

// Row values that the stage's reductions do not decide, and stores of such values.
void HostProgram::emitRowScalars(int stage) {
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (instruction.stage != stage || instruction.space != Space::Row || isReduction(instruction.opcode))
      continue;
    if (instruction.opcode != Opcode::Store) {
      scalars[i] = instruction.opcode == Opcode::Pick ? pick(instruction) : compute(instruction, nullptr);
      continue;
    }
    DType dtype = program.operands[instruction.operand].dtype;
    columns.store(valueOf(instruction.inputs[0], nullptr), place(instruction.operand),
                  isExact(instruction.inputs[0], dtype), nullptr);
  }
}

// Begins the cumulative sums that values of a walk need. Reals are added in f64.
void HostProgram::beginSums(ArrayRef<size_t> needed) {
  sums.clear();
  std::vector<char> isNeeded(program.instructions.size(), false);
  for (size_t i : needed)
    isNeeded[program.instructions[i].inputs[0]] = true;
  for (size_t i = isNeeded.size(); i-- > 0;) {
    const Instruction& instruction = program.instructions[i];
    if (!isNeeded[i] || isRowScalar(instruction.space))
      continue;
    for (int k = 0; k < inputCount(instruction.opcode); ++k)
      isNeeded[instruction.inputs[k]] = true;
    if (instruction.opcode == Opcode::Cumsum)
      sums[static_cast<int>(i)] = LLVM::ZeroOp::create(
          builder, classOf(instruction.type) == ValueClass::Real ? Type(builder.getF64Type()) : i64);
  }
}

// One pass over the columns: the stage's sums over rows and its reductions. The last one stores, as a GPU's does: until
// then a row's tiles are read again, and an output may lie where one of them does. So a step's values are all there
// before the first of them is stored.
void HostProgram::emitColumns(int stage) {
  SmallVector<size_t> reductions, effects;
  SmallVector<Opcode> folds;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    const bool isTile = instruction.opcode == Opcode::Store && instruction.space == Space::Element;
    if ((isTile ? program.stages() - 1 : instruction.stage) != stage)
      continue;
    if (isReduction(instruction.opcode)) {
      reductions.push_back(i);
      folds.push_back(instruction.opcode);
    }
    if (instruction.opcode == Opcode::AccumulateRows || isTile)
      effects.push_back(i);
  }
  if (reductions.empty() && effects.empty())
    return;

  auto visit = [&](const ColumnStep& at) {
    Step step{at, Values(program.instructions.size())};
    for (size_t i : effects)
      valueOf(program.instructions[i].inputs[0], &step);
    for (size_t i : effects) {
      const Instruction& instruction = program.instructions[i];
      Value value = valueOf(instruction.inputs[0], &step);
      if (instruction.opcode == Opcode::Store) {
        DType dtype = program.operands[instruction.operand].dtype;
        columns.store(value, place(instruction.operand), isExact(instruction.inputs[0], dtype), &step);
        continue;
      }
      Place row{partials[llvm::find(accumulators, instruction.operand) - accumulators.begin()], DType::F32, {}};
      columns.store(arith::AddFOp::create(builder, columns.load(row, &step), value), row, true, &step);
    }
    Values shares;
    for (size_t i : reductions)
      shares.push_back(valueOf(program.instructions[i].inputs[0], &step));
    return shares;
  };
  SmallVector<size_t> needed(effects);
  llvm::append_range(needed, reductions);
  beginSums(needed);
  Values carried = llvm::to_vector(llvm::make_second_range(sums));
  // Its state is what the sums are in a step and behind it.
  const auto walk = [&](const ColumnStep& at) {
    for (auto [sum, value] : llvm::zip(sums, carried))
      sum.second = value;
    Values shares = visit(at);
    carried = llvm::to_vector(llvm::make_second_range(sums));
    return shares;
  };
  if (reductions.empty()) {
    columns.columnLoop(carried, [&](const ColumnStep& at, const Values& current) {
      carried = current;
      walk(at);
      return carried;
    });
    return;
  }
  Values results = columns.columnFolds(folds, carried, walk);
  for (auto [i, result] : llvm::zip(reductions, results))
    scalars[i] = math.round(result, program.instructions[i].type);
}

void HostProgram::loadOperands() {
  base.assign(program.operands.size(), {});
  distance.assign(program.operands.size(), {});
  exists.assign(program.operands.size(), {});
  begins.assign(program.operands.size(), {});
  ends.assign(program.operands.size(), {});
  for (size_t i = 0; i < program.operands.size(); ++i) {
    const Operand& operand = program.operands[i];
    base[i] = operand.kind == OperandKind::Index ? columns.index(0) : loadArgument(pointer, operandOffset(i));
    if (operand.isStrided)
      distance[i] = loadArgument(i64, operandOffset(i) + offsetof(RowOperand, step));
  }
}

Value HostProgram::moved(size_t operand, Value from, Value offset) {
  const Operand& which = program.operands[operand];
  return which.kind == OperandKind::Index ? columns.add(from, offset) : columns.element(from, offset, which.dtype);
}

Value HostProgram::strideOf(size_t operand, int k) {
  return loadArgument(i64, operandOffset(operand) + offsetof(RowOperand, stride) + k * sizeof(int64_t));
}

// The rows from `row` on that lie in one run of the innermost extent, but none from `end` on; answers their number.
// Only the first of them is taken apart into indices, the others follow at the innermost stride.
Value HostProgram::emitRun(Value row, Value end) {
  constexpr int innermost = kMaxRowExtents - 1;
  Values place(kMaxRowExtents);
  Value rest = row;
  for (int k = innermost; k > 0; --k) {
    place[k] = arith::RemUIOp::create(builder, rest, extents[k]);
    rest = arith::DivUIOp::create(builder, rest, extents[k]);
  }
  place[0] = rest;
  Value run = arith::SubIOp::create(builder, extents[innermost], place[innermost]);
  Value count = arith::MinSIOp::create(builder, run, arith::SubIOp::create(builder, end, row));

  const Values source = base;
  Values first(program.operands.size()), stride(program.operands.size());
  for (size_t i = 0; i < program.operands.size(); ++i) {
    if (!movesWithRow(program.operands[i]))
      continue;
    Value offset = columns.index(0);
    for (int k = 0; k < kMaxRowExtents; ++k) {
      stride[i] = strideOf(i, k);
      offset = columns.add(offset, columns.multiply(place[k], stride[i]));
    }
    first[i] = moved(i, base[i], offset);
  }
  columns.loop(columns.index(0), count, 1, {}, [&](Value j, const Values&) {
    for (size_t i = 0; i < program.operands.size(); ++i)
      if (movesWithRow(program.operands[i]))
        base[i] = moved(i, first[i], columns.multiply(j, stride[i]));
    current = columns.add(row, j);
    gather(source);
    for (int stage = 0; stage < program.stages(); ++stage) {
      emitRowScalars(stage);
      emitColumns(stage);
    }
    return Values();
  });
  return count;
}

// Row extents that are not in use count as 1, which makes their index 0 whatever their strides hold.
void HostProgram::loadExtents() {
  Value unused =
      arith::SubIOp::create(builder, columns.index(kMaxRowExtents), loadArgument(i64, offsetof(RowArguments, rowRank)));
  for (int k = 0; k < kMaxRowExtents; ++k) {
    Value isUsed = arith::CmpIOp::create(builder, arith::CmpIPredicate::sge, columns.index(k), unused);
    Value extent = loadArgument(i64, offsetof(RowArguments, extent) + k * sizeof(int64_t));
    extents.push_back(arith::SelectOp::create(builder, isUsed, extent, columns.index(1)));
  }
}

void HostProgram::emitMain(StringRef name, LLVM::Linkage linkage) {
  Values given = beginFunction(name, {i64, i64, i64, pointer}, linkage);
  Value begin = given[0], end = given[1], partialRow = given[2];
  fault = given[3];
  loadExtents();
  loadOperands();
  scalars.assign(program.instructions.size(), {});
  for (size_t i = 0; i < program.instructions.size(); ++i)
    if (program.instructions[i].space == Space::Uniform)
      scalars[i] = compute(program.instructions[i], nullptr);

  if (!accumulators.empty()) {
    partials = partialsAt(partialRow);
    columns.columnLoop({}, [&](const ColumnStep& step, const Values&) {
      for (Value row : partials)
        columns.store(columns.zeros(), {row, DType::F32, {}}, true, &step);
      return Values();
    });
  }

  auto rows = scf::WhileOp::create(builder, TypeRange(i64), ValueRange(begin));
  OpBuilder::InsertionGuard guard(builder);
  Block* before = builder.createBlock(&rows.getBefore(), {}, i64, builder.getLoc());
  Value isLeft = arith::CmpIOp::create(builder, arith::CmpIPredicate::slt, before->getArgument(0), end);
  scf::ConditionOp::create(builder, isLeft, before->getArguments());
  Block* after = builder.createBlock(&rows.getAfter(), {}, i64, builder.getLoc());
  Value row = after->getArgument(0);
  scf::YieldOp::create(builder, ValueRange(columns.add(row, emitRun(row, end))));
  builder.setInsertionPointAfter(rows);
  LLVM::ReturnOp::create(builder, ValueRange());
}

// The partial rows are added in f64 and the sum is rounded once.
void HostProgram::emitFold(StringRef name) {
  beginFunction(name, {});
  Value count = loadArgument(i64, offsetof(RowArguments, partialRows));
  loadOperands();
  partials = partialsAt(columns.index(0));
  Type wide = columns.lanes().clone(builder.getF64Type());
  columns.columnLoop({}, [&](const ColumnStep& step, const Values&) {
    for (size_t i = 0; i < accumulators.size(); ++i) {
      Value zeros = arith::ExtFOp::create(builder, wide, columns.zeros());
      Values sum = columns.loop(columns.index(0), count, 1, {zeros}, [&](Value j, const Values& current) {
        Value row = columns.element(partials[i], columns.multiply(j, columns.index(program.columns)), DType::F32);
        Value share = arith::ExtFOp::create(builder, wide, columns.load({row, DType::F32, {}}, &step));
        return Values{arith::AddFOp::create(builder, current[0], share)};
      });
      Value rounded = arith::TruncFOp::create(builder, columns.lanes(), sum[0]);
      columns.store(rounded, place(accumulators[i]), false, &step);
    }
    return Values();
  });
  LLVM::ReturnOp::create(builder, ValueRange());
}

void emitHostProgram(const RowProgram& program, const HostEntries& entries, ModuleOp module, LLVM::Linkage linkage,
                     bool hasF16C) {
  HostProgram(program, module, hasF16C).emitMain(entries.main, linkage);
  if (!entries.fold.empty())
    HostProgram(program, module, hasF16C).emitFold(entries.fold);
}

} // namespace cermet
