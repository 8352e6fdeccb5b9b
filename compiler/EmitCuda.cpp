#include "compiler/EmitCuda.h"
#include "compiler/EmitCudaValues.h"
#include "runtime/RowArguments.h"

#include "compiler/DeviceSources.h"

#include <algorithm>
#include <fmt/format.h>

namespace cermet {
namespace {

// Writes the functor of one program: constants, structs, and the straight-line code of every stage.
class ProgramText {
public:
  explicit ProgramText(const KernelSpec& spec) : spec(spec), program(spec.program), values(spec.program) {
    chooseKept();
  }

  std::string text();

private:
  using Needed = ProgramValues::Needed;

  std::string field(int operand) const { return values.field(operand); }
  const char* deviceTypeOf(int operand) const { return deviceType(program.operands[operand].dtype); }
  std::vector<int> operands(OperandKind kind, bool output) const {
    std::vector<int> result;
    for (size_t i = 0; i < program.operands.size(); ++i)
      if (program.operands[i].kind == kind && program.operands[i].isOutput == output)
        result.push_back(i);
    return result;
  }
  // A number for each row and column.
  std::vector<int> tileInputs() const {
    std::vector<int> result;
    for (size_t i = 0; i < program.operands.size(); ++i)
      if (values.isTile(i) && !program.operands[i].isOutput)
        result.push_back(i);
    return result;
  }
  std::vector<int> packedInputs() const {
    std::vector<int> result = tileInputs();
    const std::vector<int> columns = operands(OperandKind::Column, false);
    result.insert(result.end(), columns.begin(), columns.end());
    return result;
  }
  std::vector<int> reductionsOf(int stage) const {
    std::vector<int> result;
    for (size_t i = 0; i < program.instructions.size(); ++i)
      if (values.isReduction(i) && values.level(i) == stage)
        result.push_back(i);
    return result;
  }
  bool hasOffset(const Operand& operand) const {
    return operand.kind != OperandKind::Column && operand.kind != OperandKind::Scalar;
  }
  bool readsColumnIndex() const {
    return std::any_of(program.instructions.begin(), program.instructions.end(),
                       [](const Instruction& it) { return it.opcode == Opcode::ColumnIndex; });
  }
  // A sum over rows that is stored in f32 shows what thousands of additions lose; one rounded to sixteen bits does not.
  bool compensated() const {
    const std::vector<int> columns = operands(OperandKind::Column, true);
    return std::any_of(columns.begin(), columns.end(),
                       [&](int i) { return program.operands[i].dtype == DType::F32; });
  }
  // Column outputs in the order of their operands; an accumulator is numbered by that.
  int accumulatorOf(int operand) const {
    const std::vector<int> columns = operands(OperandKind::Column, true);
    return std::find(columns.begin(), columns.end(), operand) - columns.begin();
  }

  void chooseKept();
  Needed neededBy(int stage) const; // the last stage's is what is stored

  void line(const std::string& content) { out += content + "\n"; }
  std::string rowStart(int operand) const;
  // What a gathered operand has in the rows of no number.
  std::string missing(int operand) const {
    const DType dtype = program.operands[operand].dtype;
    const char* values[] = {"float_from_bits(0x7fc00000u)", "0", "false"};
    return ProgramValues::toMemory(dtype, values[static_cast<int>(classOf(dtype))]);
  }
  void constants();
  void storage();
  void loads();
  void staging();
  void elements();
  std::string rowValues(int level) const;
  void arithmetic();
  void reductions();
  void stores();

  const KernelSpec& spec;
  const RowProgram& program;
  const ProgramValues values;
  ProgramValues::Keeping keeping;
  std::string out;
};

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

void ProgramText::constants() {
  const Schedule& schedule = spec.schedule;
  const int cover = schedule.threadsPerRow * schedule.vector * schedule.vectorsPerThread;
  int most = 1;
  for (int stage = 0; stage + 1 < values.stageCount(); ++stage)
    most = std::max(most, static_cast<int>(reductionsOf(stage).size()));
  line(fmt::format("  static constexpr int kColumns = {};", program.columns));
  line(fmt::format("  static constexpr int kThreads = {}, kThreadsPerRow = {}, kStages = {};", schedule.threads,
                   schedule.threadsPerRow, schedule.stages));
  // The scalar variant serves the rare unaligned call: it walks rows in a short loop, unless groups share a block's
  // accumulators, which only registers can hold.
  const bool grouped = program.accumulates() && schedule.threadsPerRow < schedule.threads;
  line(fmt::format("  template <int V> static constexpr bool kCached = V == {} ? {} : {};", schedule.vector,
                   cover >= program.columns, grouped));
  line(fmt::format("  static constexpr int kStageCount = {}, kMostReductions = {}, kAccumulators = {};", values.stageCount(),
                   most, operands(OperandKind::Column, true).size()));
  line(fmt::format("  static constexpr bool kCompensated = {};", compensated()));
  line(fmt::format("  static constexpr int kKept = {};", keeping.kept.size()));
  for (int stage = 0; stage + 1 < values.stageCount(); ++stage) {
    if (stage == 0)
      line("  template <int S, class = void> struct Reductions;");
    line(fmt::format(
        "  template <class Any> struct Reductions<{}, Any> {{\n    static constexpr int kCount = {};\n  }};", stage,
        reductionsOf(stage).size()));
  }
  line(fmt::format("  typedef RowArguments<{}> Arguments;", program.operands.size()));
}

// Where a row of the operand begins; of an index operand, its number.
std::string ProgramText::rowStart(int i) const {
  const int numbers = program.operands[i].rowsFrom;
  if (numbers < 0)
    return fmt::format("row_offset(arguments.operand[{}], index)", i);
  return fmt::format("gathered_offset<{0}>(arguments.operand[{1}], arguments.operand[{2}].base, "
                     "row_offset(arguments.operand[{2}], index))",
                     deviceTypeOf(numbers), i, numbers);
}

void ProgramText::storage() {
  const auto packed = [&](const char* title, const std::vector<int>& inputs) {
    line(fmt::format("  template <int V, int N> struct {} {{", title));
    for (int i : inputs)
      line(fmt::format("    Vector<{}, V> {}[N];", deviceTypeOf(i), field(i)));
    line("  };");
  };
  packed("Tiles", tileInputs());
  packed("Columns", operands(OperandKind::Column, false));
  line("  template <int V> struct Stores {");
  for (int i : operands(OperandKind::Tile, true))
    line(fmt::format("    Vector<{}, V> {};", deviceTypeOf(i), field(i)));
  line("  };\n  struct Row {");
  for (size_t i = 0; i < program.instructions.size(); ++i)
    if (values.inRow(i) && program.instructions[i].opcode != Opcode::Constant &&
        program.instructions[i].opcode != Opcode::Store)
      line(fmt::format("    {} v{};", valueType(program.instructions[i].type), i));
  line("  };\n  struct Element {");
  for (int i : packedInputs())
    line(fmt::format("    {} {};", valueType(program.operands[i].dtype), field(i)));
  if (readsColumnIndex())
    line("    int column;");
  line("  };\n  struct Offsets {");
  std::string initial;
  for (size_t i = 0; i < program.operands.size(); ++i)
    if (hasOffset(program.operands[i])) {
      line(fmt::format("    i64 {};", field(i)));
      initial += (initial.empty() ? "" : ", ") + rowStart(i);
    }
  line("  };");
  line("  template <class Index> static DEVICE Offsets offsets(const Arguments& arguments, const Index& index) {");
  line(fmt::format("    return {{{}}};\n  }}", initial));

  std::string all, smallest = "16";
  for (int i : tileInputs()) {
    const std::string bytes = fmt::format("V * {}", byteSize(program.operands[i].dtype));
    all += (all.empty() ? "" : " + ") + bytes;
    smallest = fmt::format("({0} < {1} ? {0} : {1})", bytes, smallest);
  }
  line("  template <int V> struct TileBytes {");
  line(fmt::format("    static constexpr int kAll = {}, kSmallest = {};\n  }};", all.empty() ? "0" : all, smallest));
}

void ProgramText::loads() {
  const auto load = [&](const char* title, const char* pack, const std::vector<int>& inputs, const char* parameters,
                        bool offset) {
    const char* member = offset ? "tiles" : "columns";
    line(fmt::format(
        "  template <int V, int N>\n  static DEVICE void {}({}<V, N>& {}, int slot, const Arguments& arguments, {}) {{",
        title, pack, member, parameters));
    for (int i : inputs) {
      const std::string start = offset ? "offsets." + field(i) : "0";
      if (program.operands[i].kind == OperandKind::Gathered) {
        const std::string step = program.operands[i].isStrided ? fmt::format("arguments.operand[{}].step, ", i) : "";
        line(fmt::format("    tiles.{}[slot] = load_gathered<{}, V>(arguments.operand[{}].base, {}, column, {}{});",
                         field(i), deviceTypeOf(i), i, start, step, missing(i)));
        continue;
      }
      line(program.operands[i].isStrided
               ? fmt::format("    {0}.{1}[slot] = load_strided<{2}, V>(arguments.operand[{3}].base, {4}, column, "
                             "arguments.operand[{3}].step);",
                             member, field(i), deviceTypeOf(i), i, start)
               : fmt::format("    {}.{}[slot] = load_vector<{}, V>(arguments.operand[{}].base, {}column);", member,
                             field(i), deviceTypeOf(i), i, offset ? start + " + " : ""));
    }
    line("  }");
  };
  load("load_tiles", "Tiles", tileInputs(), "const Offsets& offsets, int column", true);
  load("load_columns", "Columns", operands(OperandKind::Column, false), "int column", false);
}

// Tiles by way of shared memory: only where every one of them lies there as in global memory.
void ProgramText::staging() {
  line("  template <int V>\n  static DEVICE void copy_tiles(char* shared, const Arguments& arguments, const Offsets& "
       "offsets, int column) {");
  std::string before = "0";
  std::string takes;
  for (int i : tileInputs()) {
    const int size = byteSize(program.operands[i].dtype);
    const std::string place = fmt::format("shared + ({}) * kThreads + thread_index() * (V * {})", before, size);
    line(program.operands[i].kind == OperandKind::Gathered
             ? fmt::format("    copy_gathered<{}, V>({}, arguments.operand[{}].base, offsets.{}, column, {});",
                           deviceTypeOf(i), place, i, field(i), missing(i))
             : fmt::format("    copy_async<V * {0}>({1}, arguments.operand[{2}].base + (offsets.{3} + column) * {0});",
                           size, place, i, field(i)));
    takes += fmt::format("    move_vector<{0}, V>(reinterpret_cast<char*>(&tiles.{1}[0]), {2});\n", deviceTypeOf(i),
                         field(i), place);
    before += fmt::format(" + V * {}", size);
  }
  line("  }");
  line("  template <int V, int N> static DEVICE void take_tiles(Tiles<V, N>& tiles, const char* shared) {");
  out += takes;
  line("  }");
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
    const std::string packed = fmt::format("{}.{}[{}].at[i]", isTile ? "tiles" : "columns", field(i),
                                           isTile ? "tileSlot" : "columnSlot");
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
      result += fmt::format("    row.v{} = {};\n", i,
                            operand.kind == OperandKind::Index ? offset
                                                               : ProgramValues::fromMemory(operand.dtype, packed));
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
    reduce += fmt::format("    if constexpr (S == {}) {{\n{}", stage,
                          values.statements(needed, "      ", keeping, stage));
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
        beginStage +=
            fmt::format("      sums[{}] = float_from_bits({}u);\n", n, isMax ? "0xff800000" : "0x7f800000");
        combineStage += fmt::format("      if (n == {})\n        return {}(a, b);\n", n, function);
      }
      finish += reduction.type == DType::F32
                    ? fmt::format("      row.v{} = sums[{}];\n", reductions[n], n)
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
      tileStores +=
          compensated() ? fmt::format("    add_compensated(accumulators[{0}][slot], accumulators[kAccumulators + "
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
                               field(instruction.operand),
                               ProgramValues::toMemory(operand.dtype, values.use(value)));
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

std::string ProgramText::text() {
  line("struct Program {");
  constants();
  storage();
  loads();
  staging();
  elements();
  arithmetic();
  stores();
  line("};\n");

  const KernelEntries entries = kernelEntries(spec);
  const char* skeleton = spec.schedule.skeleton == Skeleton::Flat ? "flat_kernel" : "row_kernel";
  const auto kernel = [&](const std::string& entry, int vector) {
    // Only the vector entry is bound: its rows are known to fit the registers that are left.
    const int blocks = vector == spec.schedule.vector ? spec.schedule.residentBlocks : 1;
    line(fmt::format("KERNEL({}, {}, {}, Program::Arguments, {}<Program, {}>)", spec.schedule.threads, blocks, entry,
                     skeleton, vector));
  };
  kernel(entries.vector, spec.schedule.vector);
  if (entries.scalar != entries.vector)
    kernel(entries.scalar, 1);
  if (!entries.fold.empty())
    line(fmt::format("KERNEL({}, 1, {}, Program::Arguments, fold_kernel<Program>)", kFoldColumns * kFoldSlices, entries.fold));
  return out;
}

} // namespace

KernelEntries kernelEntries(const KernelSpec& spec) {
  KernelEntries entries;
  entries.vector = fmt::format("{}_v{}", spec.program.name, spec.schedule.vector);
  entries.scalar = spec.program.name + "_v1";
  if (spec.program.accumulates())
    entries.fold = spec.program.name + "_fold";
  return entries;
}

std::string emitProgram(const KernelSpec& spec) {
  return ProgramText(spec).text();
}

std::string emitKernel(const KernelSpec& spec) {
  std::string source(device::values);
  source += device::rows;
  source += spec.schedule.skeleton == Skeleton::Flat ? device::flat : device::row;
  if (spec.program.accumulates())
    source += device::fold;
  return source +
         fmt::format("\n// {} for {}: {} skeleton\n", spec.program.name, spec.target, name(spec.schedule.skeleton)) +
         emitProgram(spec);
}

std::string emitCuda(const KernelSpec& spec) {
  return std::string(device::prelude) + std::string(device::eight_bits) + emitKernel(spec);
}

} // namespace cermet
