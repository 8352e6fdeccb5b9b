// What a program computes in each stage, and what is kept from one to the next.
#include "compiler/EmitCudaProgram.h"
#include <algorithm>
#include <fmt/format.h>

namespace cermet {

constexpr int kMostKept = 32; // registers of a thread for values that a later stage would compute again

// What is expensive and read in two stages, while registers last: sums over rows have theirs already.
void ProgramText::chooseKept() {
  const int perValue = spec.schedule.vectorsPerThread * spec.schedule.vector;
  if (perValue == 0 || program.accumulates())
    return;
  std::vector<int> first(program.instructions.size(), -1);
  for (int stage = 0; stage < values.stageCount(); ++stage) {
    const Needed needed = neededBy(stage);
    for (size_t i = 0; i < needed.size(); ++i) {
      if (!needed[i] || !values.isExpensive(i))
        continue;
      if (first[i] < 0) {
        first[i] = stage;
      } else if (std::find(keeping.kept.begin(), keeping.kept.end(), int(i)) == keeping.kept.end() &&
                 (int(keeping.kept.size()) + 1) * perValue <= kMostKept) {
        keeping.kept.push_back(int(i));
        keeping.stages.push_back(first[i]);
      }
    }
  }
}

ProgramValues::Needed ProgramText::neededBy(int stage) const {
  Needed needed(program.instructions.size());
  if (stage + 1 < values.stageCount())
    for (int reduction : reductionsOf(stage))
      values.need(program.instructions[reduction].inputs[0], needed);
  else
    for (const Instruction& instruction : program.instructions)
      if (instruction.opcode == Opcode::AccumulateRows ||
          (instruction.opcode == Opcode::Store && instruction.space == Space::Element))
        values.need(instruction.inputs[0], needed);
  return needed;
}

void ProgramText::elements() {
  line("  template <int V, int N> static DEVICE void keep_tiles(Tiles<V, N>& tiles) {\n#pragma unroll\n    for (int "
       "slot = 0; slot < N; ++slot) {");
  for (int i : tileInputs())
    line(fmt::format("      keep_packed(tiles.{}[slot]);", field(i)));
  line("    }\n  }");

  std::string members;
  for (int i : packedInputs()) {
    const bool isTile = values.isTile(i);
    const std::string packed =
        fmt::format("{}.{}[{}].at[i]", isTile ? "tiles" : "columns", field(i), isTile ? "tileSlot" : "columnSlot");
    members += (members.empty() ? "" : ", ") + ProgramValues::fromMemory(program.operands[i].dtype, packed);
  }
  if (readsColumnIndex())
    members += members.empty() ? "column + i" : ", column + i";
  line("  template <class Tiles, class Columns>\n  static DEVICE Element element(const Tiles& tiles, int tileSlot, "
       "const Columns& columns, int columnSlot, int column, int i) {");
  line(fmt::format("    return {{{}}};\n  }}", members));
}

// Per-row arithmetic of one level: what becomes known once the reductions before it are.
std::string ProgramText::rowValues(int level) const {
  std::string result;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (!values.inRow(i) || values.level(i) != level || values.isReduction(i) ||
        instruction.opcode == Opcode::Constant || instruction.opcode == Opcode::Store)
      continue;
    if (instruction.opcode == Opcode::Load) {
      const Operand& operand = program.operands[instruction.operand];
      const std::string offset = hasOffset(operand) ? "offsets." + field(instruction.operand) : "0";
      const std::string packed = fmt::format("load_vector<{}, 1>(arguments.operand[{}].base, {}).at[0]",
                                             deviceType(operand.dtype), instruction.operand, offset);
      result +=
          fmt::format("    row.v{} = {};\n", i,
                      operand.kind == OperandKind::Index ? offset : ProgramValues::fromMemory(operand.dtype, packed));
      continue;
    }
    Needed needed(program.instructions.size());
    for (int input : instruction.inputs)
      values.need(input, needed);
    const std::string locals = values.statements(needed, "      ");
    const std::string value = values.rounded(i);
    result += locals.empty() ? fmt::format("    row.v{} = {};\n", i, value)
                             : fmt::format("    {{\n{}      row.v{} = {};\n    }}\n", locals, i, value);
  }
  return result;
}

void ProgramText::arithmetic() {
  line("  static DEVICE void load_row(Row& row, const Arguments& arguments, const Offsets& offsets) {");
  out += rowValues(0);
  line("  }");
  if (values.stageCount() > 1)
    reductions();
}

void ProgramText::reductions() {
  std::string begin, reduce, combine, finish;
  for (int stage = 0; stage + 1 < values.stageCount(); ++stage) {
    const std::vector<int> reductions = reductionsOf(stage);
    const Needed needed = neededBy(stage);
    std::string beginStage, combineStage;
    reduce +=
        fmt::format("    if constexpr (S == {}) {{\n{}", stage, values.statements(needed, "      ", keeping, stage));
    finish += fmt::format("    if constexpr (S == {}) {{\n", stage);
    for (size_t n = 0; n < reductions.size(); ++n) {
      const Instruction& reduction = program.instructions[reductions[n]];
      const std::string value = values.use(reduction.inputs[0]);
      if (reduction.opcode == Opcode::ReduceSum) {
        reduce += fmt::format("      sums[{}] += {};\n", n, value);
      } else {
        const bool isMax = reduction.opcode == Opcode::ReduceMax;
        const char* function = isMax ? "maximum" : "minimum";
        reduce += fmt::format("      sums[{0}] = {1}(sums[{0}], {2});\n", n, function, value);
        beginStage += fmt::format("      sums[{}] = float_from_bits({}u);\n", n, isMax ? "0xff800000" : "0x7f800000");
        combineStage += fmt::format("      if (n == {})\n        return {}(a, b);\n", n, function);
      }
      finish += reduction.type == DType::F32 ? fmt::format("      row.v{} = sums[{}];\n", reductions[n], n)
                                             : fmt::format("      row.v{} = round_to<{}>(sums[{}]);\n", reductions[n],
                                                           deviceType(reduction.type), n);
    }
    reduce += "    }\n";
    finish += rowValues(stage + 1) + "    }\n";
    if (!beginStage.empty()) {
      begin += fmt::format("    if constexpr (S == {}) {{\n{}    }}\n", stage, beginStage);
      combine += fmt::format("    if constexpr (S == {}) {{\n{}    }}\n", stage, combineStage);
    }
  }
  line("  template <int S, int Count> static DEVICE void begin(float (&sums)[Count]) {");
  out += begin;
  line("  }\n  template <int S, int Count, class Kept>\n  static DEVICE void reduce(const Element& element, "
       "const Row& row, float (&sums)[Count],\n                            Kept& kept, int keptSlot) {");
  out += reduce;
  line("  }\n  template <int S> static DEVICE float combine(int n, float a, float b) {");
  out += combine + "    return a + b;\n";
  line("  }\n  template <int S, int Count> static DEVICE void finish(Row& row, const float (&sums)[Count]) {");
  out += finish;
  line("  }");
}

void ProgramText::stores() {
  std::string tileStores, rowStores, folds;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (instruction.opcode != Opcode::Store && instruction.opcode != Opcode::AccumulateRows)
      continue;
    const Operand& operand = program.operands[instruction.operand];
    const int value = instruction.inputs[0];
    if (instruction.opcode == Opcode::AccumulateRows) {
      const int accumulator = accumulatorOf(instruction.operand);
      tileStores += compensated()
                        ? fmt::format("    add_compensated(accumulators[{0}][slot], accumulators[kAccumulators + "
                                      "{0}][slot], {1});\n",
                                      accumulator, values.use(value))
                        : fmt::format("    accumulators[{}][slot] += {};\n", accumulator, values.use(value));
      folds += fmt::format("    if (accumulator == {})\n      store_vector<{}, 1>(arguments.operand[{}].base, column, "
                           "{{from_float<{}>(value)}});\n",
                           accumulator, deviceType(operand.dtype), instruction.operand, deviceType(operand.dtype));
    } else if (operand.kind == OperandKind::Tile) {
      tileStores += fmt::format("    stores.{}.at[i] = {};\n", field(instruction.operand),
                                ProgramValues::toMemory(operand.dtype, values.use(value)));
    } else {
      Needed local(program.instructions.size());
      values.need(value, local);
      rowStores += fmt::format("    {{\n{}      store_vector<{}, 1>(arguments.operand[{}].base, offsets.{}, "
                               "{{{}}});\n    }}\n",
                               values.statements(local, "      "), deviceType(operand.dtype), instruction.operand,
                               field(instruction.operand), ProgramValues::toMemory(operand.dtype, values.use(value)));
    }
  }
  line("  template <class Stores, int Sums, int Slots, class Kept>\n  static DEVICE void emit(const Element& "
       "element, const Row& row, Stores& stores, float (&accumulators)[Sums][Slots],\n                          int i, "
       "int slot, const Kept& kept, int keptSlot) {");
  const int last = values.stageCount() - 1;
  out += values.statements(neededBy(last), "    ", keeping, last) + tileStores;
  line("  }");
  line(
      "  template <int V>\n  static DEVICE void store_tiles(const Stores<V>& stores, const Arguments& arguments, const "
      "Offsets& offsets,\n                                 int column) {");
  for (int i : operands(OperandKind::Tile, true))
    line(fmt::format("    store_vector<{0}, V>(arguments.operand[{1}].base, offsets.{2} + column, stores.{2});",
                     deviceTypeOf(i), i, field(i)));
  line("  }");
  line("  static DEVICE void store_row(const Row& row, const Arguments& arguments, const Offsets& offsets) {");
  out += rowStores;
  line("  }");
  if (!folds.empty()) {
    line("  static DEVICE void store_fold(const Arguments& arguments, int accumulator, int column, float value) {");
    out += folds;
    line("  }");
  }
}

} // namespace cermet
