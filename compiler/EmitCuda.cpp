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
  explicit ProgramText(const KernelSpec& spec) : spec(spec), program(spec.program), values(spec.program) {}

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
  std::vector<int> packedInputs() const {
    std::vector<int> result = operands(OperandKind::Tile, false);
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
  bool walksRows(const Operand& operand) const {
    return operand.kind == OperandKind::Tile || operand.kind == OperandKind::Row || operand.kind == OperandKind::Index;
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

  void line(const std::string& content) { out += content + "\n"; }
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
  std::string out;
};

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
  for (int stage = 0; stage + 1 < values.stageCount(); ++stage) {
    if (stage == 0)
      line("  template <int S, class = void> struct Reductions;");
    line(fmt::format(
        "  template <class Any> struct Reductions<{}, Any> {{\n    static constexpr int kCount = {};\n  }};", stage,
        reductionsOf(stage).size()));
  }
  line(fmt::format("  typedef RowArguments<{}> Arguments;", program.operands.size()));
}

void ProgramText::storage() {
  const auto packed = [&](const char* title, OperandKind kind) {
    line(fmt::format("  template <int V, int N> struct {} {{", title));
    for (int i : operands(kind, false))
      line(fmt::format("    Vector<{}, V> {}[N];", deviceTypeOf(i), field(i)));
    line("  };");
  };
  packed("Tiles", OperandKind::Tile);
  packed("Columns", OperandKind::Column);
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
    if (walksRows(program.operands[i])) {
      line(fmt::format("    i64 {};", field(i)));
      initial += fmt::format("{}row_offset(arguments.operand[{}], index)", initial.empty() ? "" : ", ", i);
    }
  line("  };");
  line("  template <class Index> static DEVICE Offsets offsets(const Arguments& arguments, const Index& index) {");
  line(fmt::format("    return {{{}}};\n  }}", initial));

  std::string all, smallest = "16";
  for (int i : operands(OperandKind::Tile, false)) {
    const std::string bytes = fmt::format("V * {}", byteSize(program.operands[i].dtype));
    all += (all.empty() ? "" : " + ") + bytes;
    smallest = fmt::format("({0} < {1} ? {0} : {1})", bytes, smallest);
  }
  line("  template <int V> struct TileBytes {");
  line(fmt::format("    static constexpr int kAll = {}, kSmallest = {};\n  }};", all.empty() ? "0" : all, smallest));
}

void ProgramText::loads() {
  const auto load = [&](const char* title, const char* pack, OperandKind kind, const char* parameters, bool offset) {
    const char* member = kind == OperandKind::Tile ? "tiles" : "columns";
    line(fmt::format(
        "  template <int V, int N>\n  static DEVICE void {}({}<V, N>& {}, int slot, const Arguments& arguments, {}) {{",
        title, pack, member, parameters));
    for (int i : operands(kind, false)) {
      const std::string start = offset ? "offsets." + field(i) : "0";
      line(program.operands[i].isStrided
               ? fmt::format("    {0}.{1}[slot] = load_strided<{2}, V>(arguments.operand[{3}].base, {4}, column, "
                             "arguments.operand[{3}].step);",
                             member, field(i), deviceTypeOf(i), i, start)
               : fmt::format("    {}.{}[slot] = load_vector<{}, V>(arguments.operand[{}].base, {}column);", member,
                             field(i), deviceTypeOf(i), i, offset ? start + " + " : ""));
    }
    line("  }");
  };
  load("load_tiles", "Tiles", OperandKind::Tile, "const Offsets& offsets, int column", true);
  load("load_columns", "Columns", OperandKind::Column, "int column", false);
}

// Tiles by way of shared memory: only where every one of them lies there as in global memory.
void ProgramText::staging() {
  line("  template <int V>\n  static DEVICE void copy_tiles(char* shared, const Arguments& arguments, const Offsets& "
       "offsets, int column) {");
  std::string before = "0";
  std::string takes;
  for (int i : operands(OperandKind::Tile, false)) {
    const int size = byteSize(program.operands[i].dtype);
    const std::string place = fmt::format("shared + ({}) * kThreads + thread_index() * (V * {})", before, size);
    line(fmt::format("    copy_async<V * {0}>({1}, arguments.operand[{2}].base + (offsets.{3} + column) * {0});", size,
                     place, i, field(i)));
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
  for (int i : operands(OperandKind::Tile, false))
    line(fmt::format("      keep_packed(tiles.{}[slot]);", field(i)));
  line("    }\n  }");

  std::string members;
  for (int i : packedInputs()) {
    const bool isTile = program.operands[i].kind == OperandKind::Tile;
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
      const std::string offset = walksRows(operand) ? "offsets." + field(instruction.operand) : "0";
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
    Needed needed(program.instructions.size());
    for (int reduction : reductions)
      values.need(program.instructions[reduction].inputs[0], needed);
    std::string beginStage, combineStage;
    reduce += fmt::format("    if constexpr (S == {}) {{\n{}", stage, values.statements(needed, "      "));
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
  line("  }\n  template <int S, int Count>\n  static DEVICE void reduce(const Element& element, const Row& row, float "
       "(&sums)[Count]) {");
  out += reduce;
  line("  }\n  template <int S> static DEVICE float combine(int n, float a, float b) {");
  out += combine + "    return a + b;\n";
  line("  }\n  template <int S, int Count> static DEVICE void finish(Row& row, const float (&sums)[Count]) {");
  out += finish;
  line("  }");
}

void ProgramText::stores() {
  Needed needed(program.instructions.size());
  std::string tileStores, rowStores, folds;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (instruction.opcode != Opcode::Store && instruction.opcode != Opcode::AccumulateRows)
      continue;
    const Operand& operand = program.operands[instruction.operand];
    const int value = instruction.inputs[0];
    if (instruction.opcode == Opcode::AccumulateRows) {
      values.need(value, needed);
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
      values.need(value, needed);
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
  line("  template <class Stores, int Sums, int Slots>\n  static DEVICE void emit(const Element& element, const Row& "
       "row, "
       "Stores& stores, float (&accumulators)[Sums][Slots],\n                          int i, int slot) {");
  out += values.statements(needed, "    ") + tileStores;
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
  return std::string(device::prelude) + emitKernel(spec);
}

} // namespace cermet
