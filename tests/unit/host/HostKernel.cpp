#include "tests/unit/host/HostKernel.h"
#include <cmath>
#include <cstring>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace cermet::test {
namespace {

// bf16 and f16 bits of a number that the type holds exactly, and back.
uint16_t encode(double value, DType dtype) {
  uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  int fraction = dtype == DType::BF16 ? 7 : 10, lowest = dtype == DType::BF16 ? -126 : -14;
  uint16_t infinity = dtype == DType::BF16 ? 0x7f80 : 0x7c00;
  double size = std::abs(value);
  if (std::isnan(value))
    return infinity | 1;
  if (std::isinf(value))
    return sign | infinity;
  if (size == 0)
    return sign;
  int exponent = std::max(std::ilogb(size), lowest);
  int units = static_cast<int>(std::ldexp(size, fraction - exponent)); // with the leading one unless subnormal
  return sign | static_cast<uint16_t>(units + ((exponent - lowest) << fraction));
}

double decode(uint16_t bits, DType dtype) {
  int fraction = dtype == DType::BF16 ? 7 : 10, lowest = dtype == DType::BF16 ? -126 : -14;
  int exponents = dtype == DType::BF16 ? 255 : 31;
  int exponent = (bits & 0x7fff) >> fraction, units = bits & ((1 << fraction) - 1);
  double size = exponent == exponents ? (units ? NAN : HUGE_VAL)
                : exponent == 0       ? std::ldexp(units, lowest - fraction)
                                      : std::ldexp(units + (1 << fraction), lowest - fraction + exponent - 1);
  return bits & 0x8000 ? -size : size;
}

} // namespace

Array::Array(DType dtype, int64_t elements, int64_t shift)
    : dtype(dtype), elements(elements), shift(shift), bytes((elements + shift) * byteSize(dtype), '\xAB') {}

double Array::get(int64_t index) const {
  const char* at = bytes.data() + (shift + index) * byteSize(dtype);
  if (dtype == DType::F32) {
    float value;
    std::memcpy(&value, at, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  return decode(bits, dtype);
}

void Array::set(int64_t index, double value) {
  char* at = bytes.data() + (shift + index) * byteSize(dtype);
  value = roundTo(value, dtype);
  float narrow = static_cast<float>(value);
  uint16_t bits = dtype == DType::F32 ? 0 : encode(value, dtype);
  std::memcpy(at, dtype == DType::F32 ? static_cast<void*>(&narrow) : &bits, byteSize(dtype));
}

void Array::repeat(int64_t period) {
  char* first = base();
  for (int64_t j = period; j < elements; j += period)
    std::memcpy(first + j * byteSize(dtype), first, std::min(period, elements - j) * byteSize(dtype));
}

Arguments::Arguments(const RowProgram& program, std::vector<int64_t> extents, std::mt19937& random,
                     std::vector<std::vector<int64_t>> givenStrides)
    : program(program), extents(std::move(extents)), strides(std::move(givenStrides)) {
  strides.resize(program.operands.size());
  std::normal_distribution<double> normal;
  for (size_t i = 0; i < program.operands.size(); ++i) {
    const Operand& operand = program.operands[i];
    int64_t width = operand.kind == OperandKind::Tile || operand.kind == OperandKind::Column ? program.columns : 1;
    bool moves = operand.kind == OperandKind::Tile || operand.kind == OperandKind::Row;
    if (strides[i].empty()) {
      strides[i].assign(this->extents.size(), 0);
      int64_t next = moves ? width : 0;
      for (size_t k = this->extents.size(); k-- > 0; next *= this->extents[k])
        strides[i][k] = next;
    }
    int64_t last = 0;
    for (size_t k = 0; k < this->extents.size(); ++k)
      last += std::max<int64_t>(this->extents[k] - 1, 0) * strides[i][k];
    arrays.emplace_back(operand.dtype, last + width, /*shift=*/1);
    if (operand.isOutput)
      continue;
    constexpr int64_t period = 99991; // large arrays repeat, out of step with any row
    for (int64_t j = 0; j < std::min(arrays.back().size(), period); ++j)
      arrays.back().set(j, normal(random));
    arrays.back().repeat(period);
  }
}

int64_t Arguments::rows() const {
  int64_t count = 1;
  for (int64_t extent : extents)
    count *= extent;
  return count;
}

int64_t Arguments::offset(size_t operand, int64_t row) const {
  int64_t result = 0;
  for (size_t k = extents.size(); k-- > 0; row /= extents[k])
    result += row % extents[k] * strides[operand][k];
  return result;
}

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

HostKernel::HostKernel(const RowProgram& program, const std::string& target) {
  KernelSpec spec{.target = target, .numerics = "traced", .program = program, .schedule = {}};
  KernelSpec parsed;
  EXPECT_EQ(parse(print(spec), parsed), "") << "a malformed test program";
  std::string error;
  if (!buildHostKernel(spec, "", bytes, error)) {
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
  EXPECT_EQ(fold != nullptr, program.accumulates());
}

HostKernel::~HostKernel() {
  if (library)
    dlclose(library);
  if (file >= 0)
    close(file);
}

void HostKernel::run(Arguments& arguments, int parts) const {
  ASSERT_NE(main, nullptr);
  const RowProgram& program = arguments.program;
  RowArguments raw;
  std::memset(&raw, 0x5C, sizeof raw); // what is not in use must not matter
  size_t rank = arguments.extents.size();
  raw.rows = arguments.rows();
  raw.rowRank = rank;
  raw.partialRows = parts;
  for (size_t k = 0; k < rank; ++k)
    raw.extent[kMaxRowExtents - rank + k] = arguments.extents[k];
  size_t accumulators = 0;
  for (size_t i = 0; i < program.operands.size(); ++i) {
    raw.operand[i].base = arguments.arrays[i].base();
    for (size_t k = 0; k < rank; ++k)
      raw.operand[i].stride[kMaxRowExtents - rank + k] = arguments.strides[i][k];
    accumulators += program.operands[i].isOutput && program.operands[i].kind == OperandKind::Column;
  }
  std::vector<float> partials(accumulators * parts * program.columns, NAN);
  raw.partials = partials.data();
  for (int part = 0; part < parts; ++part)
    main(&raw, raw.rows * part / parts, raw.rows * (part + 1) / parts, part);
  if (fold)
    fold(&raw);
}

void expectEqualsOracle(const HostKernel& kernel, Arguments& arguments, int parts, double noise) {
  const RowProgram& program = arguments.program;
  size_t operands = program.operands.size();
  auto width = [&](size_t i) {
    OperandKind kind = program.operands[i].kind;
    return kind == OperandKind::Tile || kind == OperandKind::Column ? program.columns : 1;
  };
  std::vector<Array> before = arguments.arrays, expected = arguments.arrays;
  std::vector<Row> sums(operands);
  for (size_t i = 0; i < operands; ++i)
    sums[i].assign(width(i), 0.0);
  for (int64_t row = 0; row < arguments.rows(); ++row) {
    std::vector<Row> current(operands);
    for (size_t i = 0; i < operands; ++i)
      for (int64_t c = 0; c < width(i); ++c)
        current[i].push_back(before[i].get(arguments.offset(i, row) + c));
    evaluateRow(program, current, sums);
    for (size_t i = 0; i < operands; ++i)
      if (program.operands[i].isOutput && program.operands[i].kind != OperandKind::Column)
        for (int64_t c = 0; c < width(i); ++c)
          expected[i].set(arguments.offset(i, row) + c, current[i][c]);
  }
  kernel.run(arguments, parts);
  for (size_t i = 0; i < operands; ++i) {
    const Operand& operand = program.operands[i];
    if (!operand.isOutput) {
      EXPECT_TRUE(arguments.arrays[i] == before[i]) << operand.name << ", an input, was written";
      continue;
    }
    if (operand.kind == OperandKind::Column)
      for (int64_t c = 0; c < width(i); ++c)
        expected[i].set(c, sums[i][c]);
    // An inner rounding to the type that goes the other way is one unit, and can become two in the next operation.
    double units = operand.dtype == DType::F32 ? 1 : 2;
    double largest = 0;
    for (int64_t j = 0; j < expected[i].size(); ++j)
      largest = std::max(largest, std::isfinite(expected[i].get(j)) ? std::abs(expected[i].get(j)) : 0);
    int64_t different = 0, wrong = 0;
    for (int64_t j = 0; j < expected[i].size(); ++j) {
      double want = expected[i].get(j), have = arguments.arrays[i].get(j);
      if (want == have || (std::isnan(want) && std::isnan(have)))
        continue;
      ++different;
      double allowed = units * unitInLastPlace(want, operand.dtype) + noise * largest;
      if (!(std::abs(want - have) <= allowed) && wrong++ < 3)
        ADD_FAILURE() << program.name << " " << operand.name << "[" << j << "] is " << have << ", expected " << want
                      << " within " << allowed;
    }
    EXPECT_EQ(wrong, 0) << program.name << " " << operand.name << " of " << expected[i].size() << " elements";
    if (operand.dtype != DType::F32) {
      EXPECT_LE(different, 1 + expected[i].size() / 200) << program.name << " " << operand.name;
    }
  }
}

std::mt19937 freshRandom() {
  uint32_t seed = GTEST_FLAG_GET(random_seed) ? GTEST_FLAG_GET(random_seed) : std::random_device()();
  ::testing::Test::RecordProperty("seed", std::to_string(seed));
  std::cout << "seed " << seed << "\n";
  return std::mt19937(seed);
}

} // namespace cermet::test
