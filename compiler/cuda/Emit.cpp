#include "compiler/cuda/Emit.h"
#include "compiler/DeviceSources.h"
#include "compiler/cuda/Program.h"
#include "runtime/abi/RowArguments.h"
#include <algorithm>
#include <fmt/format.h>

namespace cermet {

void ProgramText::constants() {
  const Schedule& schedule = spec.schedule;
  const int cover = schedule.threadsPerRow * schedule.vector * schedule.vectorsPerThread;
  const bool isRolling = schedule.stages == kRollingStages;
  int most = 1;
  for (int stage = 0; stage + 1 < values.stageCount(); ++stage)
    most = std::max(most, static_cast<int>(reductionsOf(stage).size()));
  bool hasWholeSums = false; // an integer's is a pair, and lies as one
  for (int stage = 0; stage < values.stageCount(); ++stage) {
    const size_t reals = cumsumsOf(stage, false).size(), integers = cumsumsOf(stage, true).size();
    most = std::max(most, static_cast<int>(std::max(reals, 2 * integers)));
    hasWholeSums |= integers > 0;
  }
  most += hasWholeSums && most % 2;
  line(fmt::format("  static constexpr int kColumns = {};", program.columns));
  line(fmt::format("  static constexpr int kThreads = {}, kThreadsPerRow = {}, kStages = {};", schedule.threads,
                   schedule.threadsPerRow, isRolling ? 0 : schedule.stages));
  // The scalar variant serves the rare unaligned call: it walks rows in a short loop, unless groups share a block's
  // accumulators, which only registers can hold.
  const bool grouped = program.accumulates() && schedule.threadsPerRow < schedule.threads;
  line(fmt::format("  template <int V> static constexpr bool kCached = V == {} ? {} : {};", schedule.vector,
                   cover >= program.columns && !isRolling, grouped));
  line(fmt::format("  template <int V> static constexpr int kHeld = V == {} ? {} : 0;", schedule.vector,
                   isRolling ? schedule.vectorsPerThread : 0));
  line(fmt::format("  static constexpr int kStageCount = {}, kMostReductions = {}, kAccumulators = {};",
                   values.stageCount(), most, program.summedOverRows().size()));
  line(fmt::format("  static constexpr bool kCompensated = {}, kStoresTiles = {};", compensated(),
                   !operands(OperandKind::Tile, true).empty()));
  line(fmt::format("  static constexpr int kKept = {};", keeping.kept.size()));
  line(fmt::format("  static constexpr bool kPairs = {}, kAhead = {}, kCumsums = {};", pairs(), asksAhead(),
                   program.hasCumsums()));
  for (int stage = 0; stage + 1 < values.stageCount(); ++stage) {
    if (stage == 0)
      line("  template <int S, class = void> struct Reductions;");
    line(fmt::format(
        "  template <class Any> struct Reductions<{}, Any> {{\n    static constexpr int kCount = {};\n    static "
        "constexpr bool kRuns = {};\n  }};",
        stage, reductionsOf(stage).size(), runsIn(stage)));
  }
  line(fmt::format("  typedef RowArguments<{}> Arguments;", program.operands.size()));
}

// Where a row of the operand begins; of an index operand, its number; of one whose rows are added, the numbers' places.
std::string ProgramText::rowStart(int i) const {
  const auto& [numbers, from, to] =
      std::tie(program.operands[i].rowsFrom, program.operands[i].from, program.operands[i].to);
  if (numbers < 0)
    return fmt::format("row_offset(arguments.operand[{}], index)", i);
  if (from >= 0)
    return fmt::format("bag_of<{}, {}>(arguments.operand[{}], arguments.operand[{}], arguments.operand[{}], index)",
                       deviceTypeOf(from), deviceTypeOf(to), numbers, from, to);
  return fmt::format("gathered_offset<{0}>(arguments.operand[{1}], arguments.operand[{2}].base, "
                     "row_offset(arguments.operand[{2}], index))",
                     deviceTypeOf(numbers), i, numbers);
}

void ProgramText::storage() {
  const auto packed = [&](const char* title, const std::vector<int>& inputs) {
    line(fmt::format("  template <int V, int N> struct {} {{", title));
    line("    static constexpr int kVector = V;");
    for (int i : inputs)
      line(fmt::format("    Vector<{}, V> {}[N];", deviceTypeOf(i), field(i)));
    line("  };");
  };
  packed("Tiles", tileInputs());
  packed("Columns", operands(OperandKind::Column, false));
  line("  template <int V> struct Stores {");
  for (int i : operands(OperandKind::Tile, true))
    line(isRealTile(i) ? fmt::format("    float {}[V];", field(i))
                       : fmt::format("    Vector<{}, V> {};", deviceTypeOf(i), field(i)));
  line("  };\n  struct Element {");
  for (int i : packedInputs())
    line(fmt::format("    {} {};", valueType(program.operands[i].dtype), field(i)));
  if (readsColumnIndex())
    line("    int first, lane;\n    DEVICE int column() const { return first + lane; }");
  for (int i : cumsums())
    line(fmt::format("    {} sum{};", valueType(program.instructions[i].type), i));
  line("  };");
  if (pairs()) {
    line("  struct ElementPair {");
    for (int i : packedInputs())
      line(isPairOperand(i) ? fmt::format("    Pair<{}> {};", deviceTypeOf(i), field(i))
                            : fmt::format("    {} {}[2];", valueType(program.operands[i].dtype), field(i)));
    if (readsColumnIndex())
      line("    int first, lane;\n    DEVICE int column() const { return first + lane; }");
    line("  };");
  }
  line("  struct Row {");
  for (size_t i = 0; i < program.instructions.size(); ++i)
    if (values.inRow(i) && program.instructions[i].opcode != Opcode::Constant &&
        program.instructions[i].opcode != Opcode::Store)
      line(fmt::format("    {} v{};", valueType(program.instructions[i].type), i));
  for (int number : pickedColumns())
    line(fmt::format("    Element at{};", number));
  line("  };\n  struct Offsets {");
  std::string initial;
  for (size_t i = 0; i < program.operands.size(); ++i)
    if (hasOffset(program.operands[i])) {
      line(fmt::format("    {} {};", program.operands[i].from < 0 ? "i64" : "Bag", field(i)));
      initial += (initial.empty() ? "" : ", ") + rowStart(i);
    }
  line("  };");
  if (program.columns % spec.schedule.vector != 0)
    line(fmt::format("  static DEVICE i64 any_tile(const Offsets& offsets) {{ return offsets.{}; }}",
                     field(tileInputs().front())));
  line("  template <class Index> static DEVICE Offsets offsets(const Arguments& arguments, const Index& index) {");
  line(fmt::format("    return {{{}}};\n  }}", initial));

  std::string all, smallest = "16";
  for (int i : tileInputs()) {
    const std::string bytes = fmt::format("V * {}", byteSize(loadedType(program.operands[i])));
    all += (all.empty() ? "" : " + ") + bytes;
    smallest = fmt::format("({0} < {1} ? {0} : {1})", bytes, smallest);
  }
  line("  template <int V> struct TileBytes {");
  line(fmt::format("    static constexpr int kAll = {}, kSmallest = {};\n  }};", all.empty() ? "0" : all, smallest));
}

std::string ProgramText::text(const std::string& structName) {
  line(fmt::format("struct {} {{", structName));
  constants();
  storage();
  loads();
  staging();
  elements();
  if (pairs())
    elementPairs();
  arithmetic();
  if (program.hasCumsums())
    sums();
  stores();
  if (spec.schedule.skeleton == Skeleton::Flat)
    unchanged();
  if (spec.schedule.skeleton == Skeleton::Turned)
    turning();
  line("};\n");
  return out;
}

namespace {

bool isLong(const ScheduledProgram& each) {
  return each.schedule.stages == kRollingStages;
}

bool hasCumsums(const ScheduledProgram& each) {
  return each.program.hasCumsums();
}

bool isRandom(const ScheduledProgram& each) {
  return std::ranges::any_of(each.program.instructions,
                             [](const Instruction& it) { return it.opcode == Opcode::RandomKey; });
}

const char* skeletonOf(const ScheduledProgram& each) {
  static constexpr const char* kKernels[] = {"flat_kernel", "row_kernel", "column_kernel", "turned_kernel"};
  return isLong(each) ? "long_row_kernel" : kKernels[int(each.schedule.skeleton)];
}

bool uses(const KernelSpec& spec, Skeleton skeleton) {
  return std::ranges::any_of(spec.programs, [&](const auto& each) { return each.schedule.skeleton == skeleton; });
}

// Elements that the vector entry moves at once: of several programs the most.
int vectorOf(const KernelSpec& spec) {
  int most = 1;
  for (const ScheduledProgram& each : spec.programs)
    most = std::max(most, each.schedule.vector);
  return most;
}

// What a program's functor is made of: equal ones are one type.
std::string functorText(const ScheduledProgram& each) {
  return print(KernelSpec{"", "", {each}});
}

// A program alone: its functor and its entries.
std::string emitAlone(const KernelSpec& spec) {
  const ScheduledProgram& only = spec.programs[0];
  const KernelEntries entries = kernelEntries(spec);
  std::string text = ProgramText(only).text("Program");
  const auto kernel = [&](const std::string& entry, int vector) {
    // Only the vector entry is bound: its rows are known to fit the registers that are left.
    const int blocks = vector == only.schedule.vector ? only.schedule.residentBlocks : 1;
    text += fmt::format("KERNEL({}, {}, {}, Program::Arguments, {}<Program, {}>)\n", only.schedule.threads, blocks,
                        entry, skeletonOf(only), vector);
  };
  kernel(entries.vector, only.schedule.vector);
  if (entries.scalar != entries.vector)
    kernel(entries.scalar, 1);
  if (!entries.fold.empty())
    text += fmt::format("KERNEL({}, 1, {}, Program::Arguments, fold_kernel<Program>)\n", kFoldColumns * kFoldSlices,
                        entries.fold);
  return text;
}

// Several: their functors, and one function that sends each block to the program that it is for.
std::string emitBeside(const KernelSpec& spec) {
  const KernelEntries entries = kernelEntries(spec);
  const int count = static_cast<int>(spec.programs.size());
  std::string text, members, branches, parameters, vectors, ones, folds;
  int resident = spec.programs[0].schedule.residentBlocks;
  for (int i = 0; i < count; ++i) {
    const ScheduledProgram& each = spec.programs[i];
    int same = 0;
    while (functorText(spec.programs[same]) != functorText(each))
      ++same;
    text += same < i ? fmt::format("typedef Program{} Program{};\n\n", same, i)
                     : ProgramText(each).text(fmt::format("Program{}", i));
    members += fmt::format("  Program{0}::Arguments program{0};\n", i);
    branches += fmt::format("  if (blocks.next(arguments.program{0}.partialRows))\n"
                            "    return {1}<Program{0}, V{0}>(arguments.program{0}, blocks);\n",
                            i, skeletonOf(each));
    folds += fmt::format("  if (block < fold_blocks<Program{0}>())\n"
                         "    return fold_kernel<Program{0}>(arguments.program{0}, block);\n"
                         "  block -= fold_blocks<Program{0}>();\n",
                         i);
    parameters += fmt::format("{}int V{}", i ? ", " : "", i);
    vectors += fmt::format("{}{}", i ? ", " : "", each.schedule.vector);
    ones += i ? ", 1" : "1";
    resident = std::min(resident, each.schedule.residentBlocks);
  }
  text +=
      fmt::format("struct Arguments {{\n{}}};\n\ntemplate <{}> DEVICE void programs(const Arguments& arguments) {{\n"
                  "  BlockRange blocks;\n{}}}\n\n",
                  members, parameters, branches);
  const int threads = spec.programs[0].schedule.threads;
  text += fmt::format("KERNEL({}, {}, {}, Arguments, programs<{}>)\n", threads, resident, entries.vector, vectors);
  if (entries.scalar != entries.vector)
    text += fmt::format("KERNEL({}, 1, {}, Arguments, programs<{}>)\n", threads, entries.scalar, ones);
  if (!entries.fold.empty())
    text += fmt::format("\nDEVICE void folds(const Arguments& arguments) {{\n  i64 block = block_index();\n{}}}\n\n"
                        "KERNEL({}, 1, {}, Arguments, folds)\n",
                        folds, kFoldColumns * kFoldSlices, entries.fold);
  return text;
}

} // namespace

KernelEntries kernelEntries(const KernelSpec& spec) {
  KernelEntries entries;
  entries.vector = fmt::format("{}_v{}", spec.name(), vectorOf(spec));
  entries.scalar = spec.name() + "_v1";
  if (spec.folds())
    entries.fold = spec.name() + "_fold";
  return entries;
}

std::string emitProgram(const KernelSpec& spec) {
  return spec.programs.size() == 1 ? emitAlone(spec) : emitBeside(spec);
}

std::string emitKernel(const KernelSpec& spec) {
  std::string source(device::values), skeletons;
  if (std::ranges::any_of(spec.programs, isRandom))
    source += device::random;
  source += device::rows;
  source += device::blocks;
  for (const auto& [skeleton, text] : {std::pair{Skeleton::Flat, device::flat},
                                       {Skeleton::Row, device::row},
                                       {Skeleton::Column, device::column},
                                       {Skeleton::Turned, device::turned}})
    if (uses(spec, skeleton)) {
      if (skeleton == Skeleton::Turned && !uses(spec, Skeleton::Flat))
        source += device::flat;
      source += text;
      skeletons += fmt::format("{}{}", skeletons.empty() ? "" : " and ", name(skeleton));
    }
  if (std::ranges::any_of(spec.programs, hasCumsums))
    source += device::cumsum;
  if (std::ranges::any_of(spec.programs, isLong))
    source += device::long_row;
  if (spec.folds())
    source += device::fold;
  return source + fmt::format("\n// {} for {}: {} skeleton\n", spec.name(), spec.target, skeletons) + emitProgram(spec);
}

std::string emitCuda(const KernelSpec& spec) {
  std::string prelude(device::types);
  prelude += device::prelude;
  prelude += device::eight_bits;
  return prelude + emitKernel(spec);
}

} // namespace cermet
