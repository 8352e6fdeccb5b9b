#include "tests/unit/compiler/host/HostKernel.h"
#include <cmath>
#include <cstring>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace cermet::test {
std::vector<std::string> HostKernel::targets() {
  std::vector<std::string> usable;
  if (__builtin_cpu_supports("x86-64-v2"))
    usable.push_back("host:x86-64-v2");
  if (__builtin_cpu_supports("x86-64-v3"))
    usable.push_back("host:x86-64-v3");
  if (__builtin_cpu_supports("x86-64-v4"))
    usable.push_back("host:x86-64-v4");
  return usable;
}

std::string HostKernel::newestTarget() {
  return targets().back();
}

HostKernel::HostKernel(const std::vector<RowProgram>& programs, const std::string& target) {
  KernelSpec spec{.target = target, .numerics = "traced", .programs = {}};
  for (const RowProgram& program : programs)
    spec.programs.push_back({program, {}});
  KernelSpec parsed;
  EXPECT_EQ(parse(print(spec), parsed), "") << "a malformed test program";
  std::string error;
  if (!buildHostKernel(spec, {}, bytes, error)) {
    ADD_FAILURE() << error;
    return;
  }
  // The file stays open as long as the library: dlopen takes an equal path for the same library.
  file = memfd_create("kernel", MFD_CLOEXEC);
  EXPECT_EQ(write(file, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  library = dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    ADD_FAILURE() << dlerror();
    return;
  }
  HostEntries entries = hostEntries(spec);
  main = reinterpret_cast<Main>(dlsym(library, entries.main.c_str()));
  fold = entries.fold.empty() ? nullptr : reinterpret_cast<Fold>(dlsym(library, entries.fold.c_str()));
  EXPECT_NE(main, nullptr);
  EXPECT_EQ(fold != nullptr, spec.folds());
}

HostKernel::~HostKernel() {
  if (library)
    dlclose(library);
  if (file >= 0)
    close(file);
}

namespace {

// Everything but `partials`; answers how many accumulators there are.
size_t fill(Arguments& arguments, int parts, RowArguments& raw) {
  const RowProgram& program = arguments.program;
  std::memset(&raw, 0x5C, sizeof raw); // what is not in use must not matter
  size_t rank = arguments.extents.size();
  raw.rows = arguments.rows();
  raw.rowRank = rank;
  raw.partialRows = parts;
  for (size_t k = 0; k < rank; ++k)
    raw.extent[kMaxRowExtents - rank + k] = arguments.extents[k];
  size_t accumulators = 0;
  for (size_t i = 0; i < program.operands.size(); ++i) {
    if (program.operands[i].kind != OperandKind::Index)
      raw.operand[i].base = arguments.arrays[i].base();
    if (program.operands[i].isStrided)
      raw.operand[i].step = arguments.steps[i];
    if (program.operands[i].rowsFrom >= 0) {
      raw.operand[i].stride[kGatheredStride] = arguments.strides[i][0];
      raw.operand[i].stride[kGatheredRows] = Arguments::kSourceRows;
      continue;
    }
    for (size_t k = 0; k < rank; ++k)
      raw.operand[i].stride[kMaxRowExtents - rank + k] = arguments.strides[i][k];
    accumulators += program.operands[i].isOutput && program.operands[i].kind == OperandKind::Column;
  }
  return accumulators;
}

} // namespace

HostFault HostKernel::run(Arguments& arguments, int parts) const {
  HostFault fault;
  EXPECT_NE(main, nullptr);
  if (!main)
    return fault;
  RowArguments raw;
  const size_t accumulators = fill(arguments, parts, raw);
  std::vector<float> partials(accumulators * parts * arguments.program.columns, NAN);
  raw.partials = partials.data();
  for (int part = 0; part < parts; ++part)
    main(&raw, raw.rows * part / parts, raw.rows * (part + 1) / parts, part, &fault);
  if (fold)
    fold(&raw);
  return fault;
}

void HostKernel::runBeside(const std::vector<Arguments*>& arguments, int parts) const {
  ASSERT_NE(main, nullptr);
  std::vector<char> bytes;
  HostFault fault;
  int64_t rows = 0;
  for (Arguments* each : arguments) {
    RowArguments raw;
    fill(*each, 0, raw);
    rows += raw.rows;
    const char* begin = reinterpret_cast<const char*>(&raw);
    bytes.insert(bytes.end(), begin, begin + argumentBytes(each->program.operands.size()));
  }
  for (int part = 0; part < parts; ++part)
    main(reinterpret_cast<const RowArguments*>(bytes.data()), rows * part / parts, rows * (part + 1) / parts, part,
         &fault);
}

void expectEqualsOracle(const HostKernel& kernel, Arguments& arguments, int parts, double noise) {
  const RowProgram& program = arguments.program;
  std::vector<Row> sizes;
  std::vector<Array> before = arguments.arrays, expected = arguments.expected(&sizes);
  kernel.run(arguments, parts);
  for (size_t i = 0; i < expected.size(); ++i) {
    const Operand& operand = program.operands[i];
    if (!operand.isOutput) {
      EXPECT_TRUE(arguments.arrays[i] == before[i]) << operand.name << ", an input, was written";
      continue;
    }
    const bool isReal = classOf(operand.dtype) == ValueClass::Real;
    // An inner rounding to the type that goes the other way is one unit, and can become two in the next operation.
    Number units = operand.dtype == DType::F32 ? 1 : 2;
    Number largest = 0;
    for (int64_t j = 0; isReal && j < expected[i].size(); ++j)
      largest = std::max(largest, std::isfinite(expected[i].get(j)) ? std::fabs(expected[i].get(j)) : 0);
    int64_t different = 0, wrong = 0;
    for (int64_t j = 0; j < expected[i].size(); ++j) {
      Number want = expected[i].get(j), have = arguments.arrays[i].get(j);
      if (isSame(want, have))
        continue;
      ++different;
      Number size = operand.kind == OperandKind::Column ? sizes[i][j / arguments.steps[i]] : want;
      Number allowed = isReal ? units * unitInLastPlace(size, operand.dtype) + noise * largest : 0;
      if (!(std::fabs(want - have) <= allowed) && wrong++ < 3)
        ADD_FAILURE() << program.name << " " << operand.name << "[" << j << "] is " << have << ", expected " << want
                      << " within " << allowed;
    }
    EXPECT_EQ(wrong, 0) << program.name << " " << operand.name << " of " << expected[i].size() << " elements";
    if (operand.dtype != DType::F32) {
      EXPECT_LE(different, 1 + expected[i].size() / 200) << program.name << " " << operand.name;
    }
  }
}

void expectExact(const HostKernel& kernel, Arguments& arguments, int parts) {
  std::vector<Array> expected = arguments.expected();
  kernel.run(arguments, parts);
  for (size_t i = 0; i < expected.size(); ++i) {
    int64_t wrong = 0;
    for (int64_t j = 0; j < expected[i].size(); ++j) {
      Number want = expected[i].get(j), have = arguments.arrays[i].get(j);
      if (!isSame(want, have) && wrong++ < 3)
        ADD_FAILURE() << arguments.program.operands[i].name << "[" << j << "] is " << have << ", expected " << want;
    }
    EXPECT_EQ(wrong, 0) << arguments.program.operands[i].name << " of " << expected[i].size() << " elements\n"
                        << print(arguments.program);
  }
}

std::mt19937 freshRandom() {
  uint32_t seed = GTEST_FLAG_GET(random_seed) ? GTEST_FLAG_GET(random_seed) : std::random_device()();
  ::testing::Test::RecordProperty("seed", std::to_string(seed));
  std::cout << "seed " << seed << "\n";
  return std::mt19937(seed);
}

} // namespace cermet::test
