#include "compiler/EmitCuda.h"
#include "compiler/DeviceSources.h"
#include "compiler/EmitCudaProgram.h"
#include "runtime/RowArguments.h"
#include <algorithm>
#include <fmt/format.h>

namespace cermet {

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
  line(fmt::format("  static constexpr int kStageCount = {}, kMostReductions = {}, kAccumulators = {};",
                   values.stageCount(), most, operands(OperandKind::Column, true).size()));
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
    line(fmt::format("KERNEL({}, 1, {}, Program::Arguments, fold_kernel<Program>)", kFoldColumns * kFoldSlices,
                     entries.fold));
  return out;
}

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
