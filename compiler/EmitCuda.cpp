#include "compiler/EmitCuda.h"

#include "compiler/DeviceSources.h"

#include <cmath>
#include <cstring>
#include <fmt/format.h>

namespace cermet {
namespace {

const char* deviceType(DType type) {
  switch (type) {
  case DType::F32:
    return "float";
  case DType::BF16:
    return "bf16";
  case DType::F16:
    return "f16";
  }
  return "";
}

std::string literal(double value) {
  const float rounded = static_cast<float>(value);
  if (!std::isfinite(rounded)) {
    uint32_t bits;
    std::memcpy(&bits, &rounded, sizeof bits);
    return fmt::format("float_from_bits({:#x}u)", bits);
  }
  return fmt::format("{:a}f", rounded);
}

// Writes the functor of one program. A value lives where it is cheapest: per-row values in the Row struct, element and
// column values recomputed from the packed inputs wherever a stage needs them, constants in place.
class ProgramText {
public:
  explicit ProgramText(const KernelSpec& spec) : spec(spec), program(spec.program) {
    fast = true;
    for (const Operand& operand : program.operands)
      if (operand.kind == OperandKind::Tile && operand.dtype == DType::F32)
        fast = false;
    levels.resize(program.instructions.size());
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      const Instruction& instruction = program.instructions[i];
      for (int input : instruction.inputs)
        if (input >= 0)
          levels[i] = std::max(levels[i], levels[input] + (isReduction(input) ? 1 : 0));
      if (isReduction(i))
        stageCount = std::max(stageCount, levels[i] + 2);
    }
  }

  std::string text();

private:
  using Needed = std::vector<bool>;

  bool isReduction(size_t i) const { return program.instructions[i].opcode == Opcode::ReduceSum; }
  // Kept in the Row struct rather than recomputed.
  bool inRow(size_t i) const {
    const Instruction& instruction = program.instructions[i];
    return instruction.space == Space::Row ||
           (instruction.space == Space::Uniform && instruction.opcode == Opcode::Load);
  }
  std::string field(int operand) const { return fmt::format("{}_{}", program.operands[operand].name, operand); }
  std::vector<int> operands(OperandKind kind, bool output) const {
    std::vector<int> result;
    for (size_t i = 0; i < program.operands.size(); ++i)
      if (program.operands[i].kind == kind && program.operands[i].isOutput == output)
        result.push_back(i);
    return result;
  }
  std::vector<int> reductionsOf(int stage) const {
    std::vector<int> result;
    for (size_t i = 0; i < program.instructions.size(); ++i)
      if (isReduction(i) && levels[i] == stage)
        result.push_back(i);
    return result;
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

  void need(int index, Needed& needed) const;
  std::string use(int index) const {
    const Instruction& instruction = program.instructions[index];
    if (instruction.opcode == Opcode::Constant)
      return literal(instruction.type == DType::F32 ? instruction.constant : rounded(instruction));
    return inRow(index) ? fmt::format("row.v{}", index) : fmt::format("v{}", index);
  }
  double rounded(const Instruction& instruction) const;
  std::string expression(int index) const;
  std::string statements(const Needed& needed, const char* indent) const;

  void line(const std::string& content) { out += content + "\n"; }
  void constants();
  void storage();
  void loads();
  void arithmetic();
  void stores();

  const KernelSpec& spec;
  const RowProgram& program;
  bool fast = false;
  std::vector<int> levels;
  int stageCount = 1;
  std::string out;
};

// Marks what must be computed locally for a value; stops at values that the Row struct holds.
void ProgramText::need(int index, Needed& needed) const {
  if (index < 0 || inRow(index) || needed[index])
    return;
  needed[index] = true;
  for (int input : program.instructions[index].inputs)
    need(input, needed);
}

// A constant as its own type holds it.
double ProgramText::rounded(const Instruction& instruction) const {
  const float value = static_cast<float>(instruction.constant);
  if (!std::isfinite(value) || value == 0)
    return value;
  if (instruction.type == DType::BF16) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    bits = (bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000u;
    float result;
    std::memcpy(&result, &bits, sizeof result);
    return result;
  }
  const int exponent = std::max(std::ilogb(value), -14);
  const double unit = std::ldexp(1.0, exponent - 10);
  const double result = std::nearbyint(value / unit) * unit;
  return std::fabs(result) > 65504.0 ? std::copysign(INFINITY, result) : result;
}

std::string ProgramText::expression(int index) const {
  const Instruction& instruction = program.instructions[index];
  const auto a = [&] { return use(instruction.inputs[0]); };
  const auto b = [&] { return use(instruction.inputs[1]); };
  const char* precision = fast ? "fast" : "exact";
  switch (instruction.opcode) {
  case Opcode::Load:
    return fmt::format("element.{}", field(instruction.operand));
  case Opcode::Constant:
    return use(index);
  case Opcode::Cast:
    return a();
  case Opcode::Add:
    return fmt::format("{} + {}", a(), b());
  case Opcode::Sub:
    return fmt::format("{} - {}", a(), b());
  case Opcode::Mul:
    return fmt::format("{} * {}", a(), b());
  case Opcode::Div:
    return fmt::format("exact_divide({}, {})", a(), b());
  case Opcode::Neg:
    return fmt::format("-({})", a());
  case Opcode::Exp:
    return fmt::format("{}_exp({})", precision, a());
  case Opcode::Rsqrt:
    return fmt::format("inverse_sqrt({})", a());
  case Opcode::Sigmoid:
    return fmt::format("{}_sigmoid({})", precision, a());
  case Opcode::Silu:
    return fmt::format("{}_silu({})", precision, a());
  case Opcode::ReduceSum:
  case Opcode::Store:
  case Opcode::AccumulateRows:
    break;
  }
  return "";
}

std::string ProgramText::statements(const Needed& needed, const char* indent) const {
  std::string result;
  for (size_t i = 0; i < needed.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (!needed[i] || instruction.opcode == Opcode::Constant)
      continue;
    const bool exact = instruction.type == DType::F32 || instruction.opcode == Opcode::Load;
    const std::string value = expression(i);
    result +=
        exact ? fmt::format("{}const float v{} = {};\n", indent, i, value)
              : fmt::format("{}const float v{} = round_to<{}>({});\n", indent, i, deviceType(instruction.type), value);
  }
  return result;
}

void ProgramText::constants() {
  const Schedule& schedule = spec.schedule;
  const int cover = schedule.threadsPerRow * schedule.vector * schedule.vectorsPerThread;
  int most = 1;
  for (int stage = 0; stage + 1 < stageCount; ++stage)
    most = std::max(most, static_cast<int>(reductionsOf(stage).size()));
  line(fmt::format("  static constexpr int kColumns = {};", program.columns));
  line(fmt::format("  static constexpr int kThreads = {}, kThreadsPerRow = {}, kStages = {};", schedule.threads,
                   schedule.threadsPerRow, schedule.stages));
  // The scalar variant serves the rare unaligned call: it walks rows in a short loop, unless groups share a block's
  // accumulators, which only registers can hold.
  const bool grouped = program.accumulates() && schedule.threadsPerRow < schedule.threads;
  line(fmt::format("  template <int V> static constexpr bool kCached = V == {} ? {} : {};", schedule.vector,
                   cover >= program.columns, grouped));
  line(fmt::format("  static constexpr int kStageCount = {}, kMostReductions = {}, kAccumulators = {};", stageCount,
                   most, operands(OperandKind::Column, true).size()));
  line(fmt::format("  static constexpr bool kCompensated = {};", compensated()));
  for (int stage = 0; stage + 1 < stageCount; ++stage) {
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
      line(fmt::format("    Vector<{}, V> {}[N];", deviceType(program.operands[i].dtype), field(i)));
    line("  };");
  };
  packed("Tiles", OperandKind::Tile);
  packed("Columns", OperandKind::Column);
  line("  template <int V> struct Stores {");
  for (int i : operands(OperandKind::Tile, true))
    line(fmt::format("    Vector<{}, V> {};", deviceType(program.operands[i].dtype), field(i)));
  line("  };\n  struct Row {");
  for (size_t i = 0; i < program.instructions.size(); ++i)
    if (inRow(i) && program.instructions[i].opcode != Opcode::Constant &&
        program.instructions[i].opcode != Opcode::Store)
      line(fmt::format("    float v{};", i));
  line("  };\n  struct Element {");
  for (OperandKind kind : {OperandKind::Tile, OperandKind::Column})
    for (int i : operands(kind, false))
      line(fmt::format("    float {};", field(i)));
  line("  };\n  struct Offsets {");
  std::string initial;
  for (size_t i = 0; i < program.operands.size(); ++i)
    if (program.operands[i].kind == OperandKind::Tile || program.operands[i].kind == OperandKind::Row) {
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
    line(fmt::format(
        "  template <int V, int N>\n  static DEVICE void {}({}<V, N>& {}, int slot, const Arguments& arguments, {}) {{",
        title, pack, kind == OperandKind::Tile ? "tiles" : "columns", parameters));
    for (int i : operands(kind, false))
      line(fmt::format("    {}.{}[slot] = load_vector<{}, V>(arguments.operand[{}].base, {}column);",
                       kind == OperandKind::Tile ? "tiles" : "columns", field(i), deviceType(program.operands[i].dtype),
                       i, offset ? fmt::format("offsets.{} + ", field(i)) : ""));
    line("  }");
  };
  load("load_tiles", "Tiles", OperandKind::Tile, "const Offsets& offsets, int column", true);
  load("load_columns", "Columns", OperandKind::Column, "int column", false);

  line("  template <int V>\n  static DEVICE void copy_tiles(char* shared, const Arguments& arguments, const Offsets& "
       "offsets, int column) {");
  std::string before = "0";
  std::string takes;
  for (int i : operands(OperandKind::Tile, false)) {
    const int size = byteSize(program.operands[i].dtype);
    const std::string place = fmt::format("shared + ({}) * kThreads + thread_index() * (V * {})", before, size);
    line(fmt::format("    copy_async<V * {0}>({1}, arguments.operand[{2}].base + (offsets.{3} + column) * {0});", size,
                     place, i, field(i)));
    takes += fmt::format("    move_vector<{0}, V>(reinterpret_cast<char*>(&tiles.{1}[0]), {2});\n",
                         deviceType(program.operands[i].dtype), field(i), place);
    before += fmt::format(" + V * {}", size);
  }
  line("  }");
  line("  template <int V, int N> static DEVICE void take_tiles(Tiles<V, N>& tiles, const char* shared) {");
  out += takes;
  line("  }");

  line("  template <int V, int N> static DEVICE void keep_tiles(Tiles<V, N>& tiles) {\n#pragma unroll\n    for (int "
       "slot = "
       "0; slot < N; ++slot) {");
  for (int i : operands(OperandKind::Tile, false))
    line(fmt::format("      keep_packed(tiles.{}[slot]);", field(i)));
  line("    }\n  }");

  std::string members;
  for (OperandKind kind : {OperandKind::Tile, OperandKind::Column})
    for (int i : operands(kind, false))
      members += fmt::format("{}to_float({}.{}[{}].at[i])", members.empty() ? "" : ", ",
                             kind == OperandKind::Tile ? "tiles" : "columns", field(i),
                             kind == OperandKind::Tile ? "tileSlot" : "columnSlot");
  line("  template <class Tiles, class Columns>\n  static DEVICE Element element(const Tiles& tiles, int tileSlot, "
       "const Columns& columns, int columnSlot, int i) {");
  line(fmt::format("    return {{{}}};\n  }}", members));
}

void ProgramText::arithmetic() {
  // Per-row arithmetic of one level: what becomes known once the reductions before it are.
  const auto rowValues = [&](int level) {
    std::string result;
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      const Instruction& instruction = program.instructions[i];
      if (!inRow(i) || levels[i] != level || isReduction(i) || instruction.opcode == Opcode::Constant ||
          instruction.opcode == Opcode::Store)
        continue;
      if (instruction.opcode == Opcode::Load) {
        const Operand& operand = program.operands[instruction.operand];
        const std::string offset = operand.kind == OperandKind::Row ? "offsets." + field(instruction.operand) : "0";
        result += fmt::format("    row.v{} = to_float(load_vector<{}, 1>(arguments.operand[{}].base, {}).at[0]);\n", i,
                              deviceType(operand.dtype), instruction.operand, offset);
        continue;
      }
      Needed needed(program.instructions.size());
      for (int input : instruction.inputs)
        need(input, needed);
      const std::string locals = statements(needed, "      ");
      const std::string value = expression(i);
      const std::string assigned =
          instruction.type == DType::F32 ? value : fmt::format("round_to<{}>({})", deviceType(instruction.type), value);
      result += locals.empty() ? fmt::format("    row.v{} = {};\n", i, assigned)
                               : fmt::format("    {{\n{}      row.v{} = {};\n    }}\n", locals, i, assigned);
    }
    return result;
  };

  line("  static DEVICE void load_row(Row& row, const Arguments& arguments, const Offsets& offsets) {");
  out += rowValues(0);
  line("  }");

  if (stageCount > 1) {
    std::string reduce, finish;
    for (int stage = 0; stage + 1 < stageCount; ++stage) {
      const std::vector<int> reductions = reductionsOf(stage);
      Needed needed(program.instructions.size());
      for (int reduction : reductions)
        need(program.instructions[reduction].inputs[0], needed);
      reduce += fmt::format("    if constexpr (S == {}) {{\n{}", stage, statements(needed, "      "));
      finish += fmt::format("    if constexpr (S == {}) {{\n", stage);
      for (size_t n = 0; n < reductions.size(); ++n) {
        const Instruction& reduction = program.instructions[reductions[n]];
        reduce += fmt::format("      sums[{}] += {};\n", n, use(reduction.inputs[0]));
        finish += reduction.type == DType::F32 ? fmt::format("      row.v{} = sums[{}];\n", reductions[n], n)
                                               : fmt::format("      row.v{} = round_to<{}>(sums[{}]);\n", reductions[n],
                                                             deviceType(reduction.type), n);
      }
      reduce += "    }\n";
      finish += rowValues(stage + 1) + "    }\n";
    }
    line("  template <int S, int Count>\n  static DEVICE void reduce(const Element& element, const Row& row, float "
         "(&sums)[Count]) {");
    out += reduce;
    line("  }\n  template <int S, int Count> static DEVICE void finish(Row& row, const float (&sums)[Count]) {");
    out += finish;
    line("  }");
  }
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
      need(value, needed);
      const int accumulator = accumulatorOf(instruction.operand);
      tileStores +=
          compensated() ? fmt::format("    add_compensated(accumulators[{0}][slot], accumulators[kAccumulators + "
                                      "{0}][slot], {1});\n",
                                      accumulator, use(value))
                        : fmt::format("    accumulators[{}][slot] += {};\n", accumulator, use(value));
      folds += fmt::format("    if (accumulator == {})\n      store_vector<{}, 1>(arguments.operand[{}].base, column, "
                           "{{from_float<{}>(value)}});\n",
                           accumulator, deviceType(operand.dtype), instruction.operand, deviceType(operand.dtype));
    } else if (operand.kind == OperandKind::Tile) {
      need(value, needed);
      tileStores += fmt::format("    stores.{}.at[i] = from_float<{}>({});\n", field(instruction.operand),
                                deviceType(operand.dtype), use(value));
    } else {
      Needed local(program.instructions.size());
      need(value, local);
      rowStores += fmt::format("    {{\n{}      store_vector<{}, 1>(arguments.operand[{}].base, offsets.{}, "
                               "{{from_float<{}>({})}});\n    }}\n",
                               statements(local, "      "), deviceType(operand.dtype), instruction.operand,
                               field(instruction.operand), deviceType(operand.dtype), use(value));
    }
  }
  line("  template <class Stores, int Sums, int Slots>\n  static DEVICE void emit(const Element& element, const Row& "
       "row, "
       "Stores& stores, float (&accumulators)[Sums][Slots],\n                          int i, int slot) {");
  out += statements(needed, "    ") + tileStores;
  line("  }");
  line(
      "  template <int V>\n  static DEVICE void store_tiles(const Stores<V>& stores, const Arguments& arguments, const "
      "Offsets& offsets,\n                                 int column) {");
  for (int i : operands(OperandKind::Tile, true))
    line(fmt::format("    store_vector<{0}, V>(arguments.operand[{1}].base, offsets.{2} + column, stores.{2});",
                     deviceType(program.operands[i].dtype), i, field(i)));
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
    line(fmt::format("KERNEL(1024, 1, {}, Program::Arguments, fold_kernel<Program>)", entries.fold));
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
  std::string source(device::rows);
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
