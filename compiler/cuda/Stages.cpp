// What a program computes in each stage, and what is kept from one to the next.
#include "compiler/cuda/Program.h"
#include <algorithm>
#include <fmt/format.h>

namespace cermet {

// What is expensive and read in two stages, while registers last: sums over rows have theirs already.
bool ProgramText::keeps() const {
  const int perValue = spec.schedule.vectorsPerThread * spec.schedule.vector;
  return perValue > 0 && perValue <= kMaxKept && spec.schedule.stages != kRollingStages && !program.accumulates();
}

void ProgramText::chooseKept() {
  if (!keeps())
    return;
  const int perValue = spec.schedule.vectorsPerThread * spec.schedule.vector;
  std::vector<int> first(program.instructions.size(), -1);
  for (int stage = 0; stage < values.stageCount(); ++stage) {
    const Needed needed = neededBy(stage), summed = summedBy(stage);
    for (size_t i = 0; i < needed.size(); ++i) {
      if ((!needed[i] && !summed[i]) || !values.isExpensive(i))
        continue;
      if (first[i] < 0) {
        first[i] = stage;
      } else if (!keeping.keeps(int(i)) && (int(keeping.kept.size()) + 1) * perValue <= kMaxKept) {
        keeping.kept.push_back(int(i));
        keeping.stages.push_back(first[i]);
      }
    }
  }
}

ProgramValues::Needed ProgramText::neededBy(int stage) const {
  Needed needed(program.instructions.size());
  if (stage + 1 < values.stageCount())
    for (int reduction : reductionsOf(stage)) {
      if (!values.isRunningMaximum(reduction))
        values.need(program.instructions[reduction].inputs[0], needed);
    }
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
    line(fmt::format("      {}keep_packed(tiles.{}[slot]);",
                     isLocal(i) ? fmt::format("if constexpr (V != {}) ", spec.schedule.vector) : "", field(i)));
  line("    }\n  }");

  std::string members;
  for (int i : packedInputs()) {
    const bool isTile = values.isTile(i);
    const std::string packed =
        fmt::format("{}.{}[{}]", isTile ? "tiles" : "columns", field(i), isTile ? "tileSlot" : "columnSlot");
    const DType dtype = program.operands[i].dtype;
    if (isLocal(i)) {
      line(localValue(i));
      members += fmt::format("{}local_{}({}, {}, i)", members.empty() ? "" : ", ", field(i),
                             isTile ? "tiles" : "columns", isTile ? "tileSlot" : "columnSlot");
      continue;
    }
    members += (members.empty() ? "" : ", ") + (classOf(dtype) == ValueClass::Real
                                                    ? fmt::format("float_at({}, i)", packed)
                                                    : ProgramValues::fromMemory(dtype, packed + ".at[i]"));
  }
  if (readsColumnIndex())
    members += members.empty() ? "column, i" : ", column, i";
  line("  template <class Tiles, class Columns>\n  static DEVICE Element element(const Tiles& tiles, int tileSlot, "
       "const Columns& columns, int columnSlot, int column, int i) {");
  line(fmt::format("    return {{{}}};\n  }}", members));
}

// A program gains where its last stage computes as PyTorch does, with a rounding to sixteen bits after each operation.
bool ProgramText::pairs() const {
  if (spec.schedule.vector % 2 != 0 || program.hasCumsums())
    return false;
  const Needed needed = neededBy(values.stageCount() - 1);
  for (size_t i = 0; i < needed.size(); ++i)
    if (needed[i] && values.isPairArithmetic(int(i)))
      return true;
  return false;
}

void ProgramText::elementPairs() {
  std::string members;
  for (int i : packedInputs()) {
    const std::string pack = values.isTile(i) ? "tiles" : "columns",
                      slot = values.isTile(i) ? "tileSlot" : "columnSlot";
    const std::string packed = fmt::format("{}.{}[{}]", pack, field(i), slot);
    const DType dtype = program.operands[i].dtype;
    const auto lane = [&](const char* at) {
      return isLocal(i) ? fmt::format("local_{}({}, {}, {})", field(i), pack, slot, at)
             : classOf(dtype) == ValueClass::Real
                 ? fmt::format("float_at({}, {})", packed, at)
                 : ProgramValues::fromMemory(dtype, fmt::format("{}.at[{}]", packed, at));
    };
    if (isPairOperand(i) && isLocal(i))
      line(localPair(i));
    members +=
        (members.empty() ? "" : ", ") + (!isPairOperand(i) ? fmt::format("{{{}, {}}}", lane("i"), lane("i + 1"))
                                         : isLocal(i) ? fmt::format("local_pair_{}({}, {}, i)", field(i), pack, slot)
                                                      : fmt::format("pair_at({}, i)", packed));
  }
  if (readsColumnIndex())
    members += members.empty() ? "column, i" : ", column, i";
  line("  template <class Tiles, class Columns>\n  static DEVICE ElementPair pair(const Tiles& tiles, int tileSlot, "
       "const Columns& columns, int columnSlot, int column, int i) {");
  line(fmt::format("    return {{{}}};\n  }}", members));
}

// Per-row arithmetic of one level: what becomes known once the reductions before it are.
std::string ProgramText::rowValues(int level) const {
  const std::vector<int> numbers = pickedColumns();
  std::string result;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Opcode opcode = program.instructions[i].opcode;
    if (values.level(i) != level)
      continue;
    if (values.inRow(i) && !values.isReduction(i) && opcode != Opcode::Constant && opcode != Opcode::Store)
      result += rowValue(int(i));
    if (level == 0 && std::find(numbers.begin(), numbers.end(), int(i)) != numbers.end())
      result += pickedLoads(int(i));
  }
  return result;
}

std::string ProgramText::rowValue(int index) const {
  const Instruction& instruction = program.instructions[index];
  if (instruction.opcode == Opcode::Load) {
    const Operand& operand = program.operands[instruction.operand];
    const std::string offset = hasOffset(operand) ? "offsets." + field(instruction.operand) : "0";
    const std::string packed = fmt::format("load_vector<{}, 1>(arguments.operand[{}].base, {}).at[0]",
                                           deviceType(operand.dtype), instruction.operand, offset);
    return fmt::format("    row.v{} = {};\n", index,
                       operand.kind == OperandKind::Index ? offset : ProgramValues::fromMemory(operand.dtype, packed));
  }
  Needed needed(program.instructions.size());
  for (int input : instruction.inputs)
    values.need(input, needed);
  std::string locals = values.statements(needed, "      "), value;
  if (instruction.opcode == Opcode::Pick) {
    const std::string number = values.use(instruction.inputs[1]), picked = values.use(instruction.inputs[0]);
    if ((locals + picked).find("element.") != std::string::npos) // a number of the row is the same at every column
      locals = fmt::format("      const Element& element = row.at{};\n{}", instruction.inputs[1], locals);
    // A sum of zeros and one value is never -0.
    value = isIndex(instruction)
                ? fmt::format("is_column<kColumns>({}) ? {} : float_from_bits(0x7fc00000u)", number, picked)
                : fmt::format("is_column<kColumns>({}) ? {} + 0.0f : 0.0f", number, picked);
    if (instruction.type != DType::F32 && instruction.type != program.instructions[instruction.inputs[0]].type)
      value = fmt::format("round_to<{}>({})", deviceType(instruction.type), value);
  } else {
    value = values.rounded(index);
  }
  return locals.empty() ? fmt::format("    row.v{} = {};\n", index, value)
                        : fmt::format("    {{\n{}      row.v{} = {};\n    }}\n", locals, index, value);
}

// The inputs at the column of that number: the row keeps them until what is picked there can be computed.
std::string ProgramText::pickedLoads(int number) const {
  Needed needed(program.instructions.size());
  values.need(number, needed);
  return fmt::format("    {{\n{0}      const int column = is_column<kColumns>({1}) ? int({1}) : 0;\n"
                     "      Tiles<1, 1> tiles;\n      Columns<1, 1> columns;\n"
                     "      load_tiles(tiles, 0, arguments, offsets, column);\n"
                     "      load_columns(columns, 0, arguments, column);\n"
                     "      row.at{2} = element(tiles, 0, columns, 0, column, 0);\n    }}\n",
                     values.statements(needed, "      "), values.use(number), number);
}

void ProgramText::arithmetic() {
  line("  static DEVICE void load_row(Row& row, const Arguments& arguments, const Offsets& offsets) {");
  out += rowValues(0);
  line("  }");
  if (values.stageCount() > 1)
    reductions();
}

// What the stage's running pairs do for a vector of elements before these are summed: raise the maxima, then shrink the
// sums to them. The row holds a running maximum while its stage lasts.
std::string ProgramText::raise(int stage) const {
  Needed needed(program.instructions.size());
  std::string raised;
  const std::vector<int> reductions = reductionsOf(stage);
  for (size_t n = 0; n < reductions.size(); ++n)
    if (values.isRunningMaximum(reductions[n])) {
      const int value = program.instructions[reductions[n]].inputs[0];
      values.need(value, needed);
      raised += fmt::format("      sums[{0}] = maximum(sums[{0}], {1});\n", n, values.use(value));
    }
  return values.statements(needed, "      ") + raised;
}

void ProgramText::reductions() {
  std::string begin, raises, rescale, reduce, add, combine, finish;
  for (int stage = 0; stage + 1 < values.stageCount(); ++stage) {
    const std::vector<int> reductions = reductionsOf(stage);
    const auto place = [&](int reduction) {
      return std::find(reductions.begin(), reductions.end(), reduction) - reductions.begin();
    };
    const std::string open = fmt::format("    if constexpr (S == {}) {{\n", stage);
    std::string beginStage, rescaleStage, addStage;
    reduce += open + values.statements(neededBy(stage), "      ", keeping, stage);
    combine += open;
    finish += open;
    for (size_t n = 0; n < reductions.size(); ++n) {
      const Instruction& reduction = program.instructions[reductions[n]];
      const std::string value = values.use(reduction.inputs[0]);
      std::string total = fmt::format("sums[{}]", n);
      const int below = values.maximumOf(reductions[n]);
      if (values.isRunningMaximum(reductions[n])) {
        beginStage += fmt::format("      row.v{} = sums[{}] = lowest_float();\n", reductions[n], n);
        total = fmt::format("running_maximum(sums[{}], sums[{}])", n, place(values.sumOf(reductions[n])));
      } else if (below >= 0) {
        const auto m = place(below);
        const char* exponential = values.exponential(reductions[n]);
        reduce += fmt::format("      added[{}] += {};\n", n, value);
        addStage += fmt::format("      sums[{0}] += added[{0}];\n", n);
        rescaleStage += fmt::format("      sums[{0}] *= {1}(row.v{2} - sums[{3}]);\n      row.v{2} = sums[{3}];\n", n,
                                    exponential, below, m);
        combine +=
            fmt::format("      const float largest{1} = maximum(a[{1}], b[{1}]);\n      a[{0}] = product(a[{0}], "
                        "{2}(a[{1}] - largest{1})) + product(b[{0}], {2}(b[{1}] - largest{1}));\n      a[{1}] = "
                        "largest{1};\n",
                        n, m, exponential);
        total = fmt::format("running_sum(sums[{}])", n);
      } else if (reduction.opcode == Opcode::ReduceSum) {
        reduce += fmt::format("      added[{}] += {};\n", n, value);
        addStage += fmt::format("      sums[{0}] += added[{0}];\n", n);
        combine += fmt::format("      a[{0}] += b[{0}];\n", n);
      } else {
        const bool isMax = reduction.opcode == Opcode::ReduceMax;
        const char* function = isMax ? "maximum" : "minimum";
        reduce += fmt::format("      sums[{0}] = {1}(sums[{0}], {2});\n", n, function, value);
        beginStage += fmt::format("      sums[{}] = float_from_bits({}u);\n", n, isMax ? "0xff800000" : "0x7f800000");
        combine += fmt::format("      a[{0}] = {1}(a[{0}], b[{0}]);\n", n, function);
      }
      finish += reduction.type == DType::F32 ? fmt::format("      row.v{} = {};\n", reductions[n], total)
                                             : fmt::format("      row.v{} = round_to<{}>({});\n", reductions[n],
                                                           deviceType(reduction.type), total);
    }
    reduce += "    }\n";
    combine += "    }\n";
    finish += rowValues(stage + 1) + "    }\n";
    if (!addStage.empty())
      add += open + addStage + "    }\n";
    if (!beginStage.empty())
      begin += open + beginStage + "    }\n";
    if (runsIn(stage)) {
      raises += open + raise(stage) + "    }\n";
      rescale += open + rescaleStage + "    }\n";
    }
  }
  const auto function = [&](const char* head, const std::string& body) {
    line(fmt::format("  {} {{", head));
    out += body;
    line("  }");
  };
  function("template <int S, int Count> static DEVICE void begin(Row& row, float (&sums)[Count])", begin);
  if (!raises.empty()) {
    function("template <int S, int Count> static DEVICE void raise(const Element& element, const Row& row, float "
             "(&sums)[Count])",
             raises);
    function("template <int S, int Count> static DEVICE void rescale(Row& row, float (&sums)[Count])", rescale);
  }
  function("template <int S, int Count, class Kept>\n"
           "  static DEVICE void reduce(const Element& element, const Row& row, float (&sums)[Count],\n"
           "                            float (&added)[Count], Kept& kept, int keptSlot)",
           reduce);
  function("template <int S, int Count>\n  static DEVICE void add(float (&sums)[Count], const float (&added)[Count])",
           add);
  function("template <int S, int Count> static DEVICE void combine(float (&a)[Count], const float (&b)[Count])",
           combine);
  function("template <int S, int Count> static DEVICE void finish(Row& row, const float (&sums)[Count])", finish);
}

// What the last stage does with its values; of the element at `lane` behind the first where two are taken at once.
std::string ProgramText::elementStores(const ProgramValues& values, int lane) const {
  const std::string behind = lane > 0 ? fmt::format(" + {}", lane) : "";
  std::string result;
  std::vector<int> summed;
  for (const Instruction& instruction : program.instructions) {
    const int value = instruction.inputs[0];
    if (instruction.opcode == Opcode::AccumulateRows) {
      if (std::find(summed.begin(), summed.end(), value) != summed.end())
        continue;
      summed.push_back(value);
      const int accumulator = accumulatorOf(value);
      result += compensated()
                    ? fmt::format("    add_compensated(accumulators[{0}][slot{2}], accumulators[kAccumulators + "
                                  "{0}][slot{2}], {1});\n",
                                  accumulator, values.use(value), behind)
                    : fmt::format("    accumulators[{}][slot{}] += {};\n", accumulator, behind, values.use(value));
    } else if (instruction.opcode == Opcode::Store && program.operands[instruction.operand].kind == OperandKind::Tile) {
      const std::string name = field(instruction.operand);
      if (isRealTile(instruction.operand))
        result += fmt::format("    stores.{}[i{}] = {};\n", name, behind, values.use(value));
      else if (lane < 0 || !isPairOperand(instruction.operand))
        result += fmt::format("    stores.{}.at[i{}] = {};\n", name, behind,
                              ProgramValues::toMemory(program.operands[instruction.operand].dtype, values.use(value)));
    }
  }
  return result;
}

void ProgramText::emitPair() {
  const int last = values.stageCount() - 1;
  line("  template <class Stores, int Sums, int Slots, class Kept>\n  static DEVICE void emit_pair(const ElementPair& "
       "element, const Row& row, Stores& stores,\n                               float "
       "(&accumulators)[Sums][Slots], int i, int slot, const Kept& kept, int keptSlot) {");
  out += values.pairStatements(neededBy(last), "    ", keeping, last);
  for (const Instruction& instruction : program.instructions)
    if (instruction.opcode == Opcode::Store && program.operands[instruction.operand].kind == OperandKind::Tile &&
        isPairOperand(instruction.operand)) {
      const int value = instruction.inputs[0];
      const DType dtype = program.operands[instruction.operand].dtype;
      const bool isStored = values.isPair(value) && program.instructions[value].type == dtype;
      line(fmt::format("    set_pair(stores.{}, i, {});", field(instruction.operand),
                       isStored ? fmt::format("v{}", value)
                                : fmt::format("pair_of<{}>({}, {})", deviceType(dtype), values.ofLane(0).use(value),
                                              values.ofLane(1).use(value))));
    }
  for (int lane : {0, 1})
    out += elementStores(values.ofLane(lane), lane);
  line("  }");
}

void ProgramText::stores() {
  std::string rowStores, folds;
  for (const Instruction& instruction : program.instructions) {
    if (instruction.opcode != Opcode::Store && instruction.opcode != Opcode::AccumulateRows)
      continue;
    const Operand& operand = program.operands[instruction.operand];
    const int value = instruction.inputs[0];
    if (instruction.opcode == Opcode::AccumulateRows) {
      folds +=
          fmt::format("    if (accumulator == {})\n      store_vector<{}, 1>(arguments.operand[{}].base, column, "
                      "{{from_float<{}>(value)}});\n",
                      accumulatorOf(value), deviceType(operand.dtype), instruction.operand, deviceType(operand.dtype));
    } else if (operand.kind != OperandKind::Tile) {
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
  out += values.statements(neededBy(last), "    ", keeping, last) + elementStores(values, -1);
  line("  }");
  if (pairs())
    emitPair();
  line(
      "  template <int V>\n  static DEVICE void store_tiles(const Stores<V>& stores, const Arguments& arguments, const "
      "Offsets& offsets,\n                                 int column) {");
  for (int i : operands(OperandKind::Tile, true))
    line(fmt::format("    store_vector<{0}, V>(arguments.operand[{1}].base, offsets.{2} + column, {3});",
                     deviceTypeOf(i), i, field(i),
                     isRealTile(i) ? fmt::format("vector_from_floats<{}>(stores.{})", deviceTypeOf(i), field(i))
                                   : "stores." + field(i)));
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
