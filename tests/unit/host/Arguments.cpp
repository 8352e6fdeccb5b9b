#include "tests/unit/host/Arguments.h"
#include <cmath>
#include <cstring>

namespace cermet::test {
namespace {

// bf16 and f16 bits of a number that the type holds exactly, and back.
uint16_t encode(Number value, DType dtype) {
  uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  int fraction = dtype == DType::BF16 ? 7 : 10, lowest = dtype == DType::BF16 ? -126 : -14;
  uint16_t infinity = dtype == DType::BF16 ? 0x7f80 : 0x7c00;
  Number size = std::fabs(value);
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

Number Array::get(int64_t index) const {
  const char* at = bytes.data() + (shift + index) * byteSize(dtype);
  if (dtype == DType::F32) {
    float value;
    std::memcpy(&value, at, 4);
    return value;
  }
  uint64_t bits = 0;
  std::memcpy(&bits, at, byteSize(dtype));
  if (classOf(dtype) == ValueClass::Real)
    return decode(static_cast<uint16_t>(bits), dtype);
  if (dtype == DType::I1)
    return bits != 0;
  const int unused = 64 - 8 * byteSize(dtype);
  return dtype == DType::U8 ? Number(bits) : Number(static_cast<int64_t>(bits << unused) >> unused);
}

void Array::set(int64_t index, Number value) {
  value = roundTo(value, dtype);
  if (dtype == DType::F32) {
    float narrow = static_cast<float>(value);
    std::memcpy(bytes.data() + (shift + index) * byteSize(dtype), &narrow, 4);
  } else if (classOf(dtype) == ValueClass::Real) {
    setBits(index, encode(value, dtype));
  } else {
    setBits(index, value < 0 ? 0 - static_cast<uint64_t>(-value) : static_cast<uint64_t>(value));
  }
}

void Array::setBits(int64_t index, uint64_t bits) {
  std::memcpy(bytes.data() + (shift + index) * byteSize(dtype), &bits, byteSize(dtype));
}

void Array::repeat(int64_t period) {
  char* first = base();
  for (int64_t j = period; j < elements; j += period)
    std::memcpy(first + j * byteSize(dtype), first, std::min(period, elements - j) * byteSize(dtype));
}

bool Array::hasSameNumbers(const Array& other) const {
  if (classOf(dtype) != ValueClass::Real)
    return bytes == other.bytes;
  for (int64_t j = 0; j < elements; ++j) {
    Number a = get(j), b = other.get(j);
    if (!isSame(a, b) || (!std::isnan(a) && std::signbit(a) != std::signbit(b)))
      return false;
  }
  return true;
}

Arguments::Arguments(const RowProgram& program, std::vector<int64_t> extents, std::mt19937& random,
                     std::vector<std::vector<int64_t>> givenStrides, std::vector<int64_t> givenSteps)
    : program(program), extents(std::move(extents)), strides(std::move(givenStrides)), steps(std::move(givenSteps)) {
  strides.resize(program.operands.size());
  steps.resize(program.operands.size());
  std::normal_distribution<double> normal;
  for (size_t i = 0; i < program.operands.size(); ++i) {
    const Operand& operand = program.operands[i];
    const bool moves = operand.kind != OperandKind::Column && operand.kind != OperandKind::Scalar;
    int64_t& step = steps[i];
    step = !operand.isStrided ? 1 : step == 0 ? 3 : step;
    if (strides[i].empty()) {
      strides[i].assign(this->extents.size(), 0);
      int64_t next = moves ? width(i) * step : 0;
      for (size_t k = this->extents.size(); k-- > 0; next *= this->extents[k])
        strides[i][k] = next;
    }
    if (operand.kind == OperandKind::Index) {
      arrays.emplace_back(operand.dtype, 0);
      continue;
    }
    int64_t last = (width(i) - 1) * step;
    for (size_t k = 0; k < this->extents.size(); ++k)
      last += std::max<int64_t>(this->extents[k] - 1, 0) * strides[i][k];
    arrays.emplace_back(operand.dtype, last + 1, /*shift=*/1);
    if (operand.isOutput)
      continue;
    constexpr int64_t period = 99991; // large arrays repeat, out of step with any row
    for (int64_t j = 0; j < std::min(arrays.back().size(), period); ++j) {
      if (classOf(operand.dtype) == ValueClass::Real)
        arrays.back().set(j, normal(random));
      else // all sizes of integers; true is any byte but 0
        arrays.back().setBits(j, static_cast<int64_t>(uint64_t(random()) << 32 | random()) >> random() % 64);
    }
    arrays.back().repeat(period);
  }
}

int64_t Arguments::rows() const {
  int64_t count = 1;
  for (int64_t extent : extents)
    count *= extent;
  return count;
}

int64_t Arguments::width(size_t operand) const {
  const OperandKind kind = program.operands[operand].kind;
  return kind == OperandKind::Tile || kind == OperandKind::Column ? program.columns : 1;
}

int64_t Arguments::offset(size_t operand, int64_t row, int64_t column) const {
  int64_t result = column * steps[operand];
  for (size_t k = extents.size(); k-- > 0; row /= extents[k])
    result += row % extents[k] * strides[operand][k];
  return result;
}

void Arguments::addExtremes(std::mt19937& random) {
  constexpr float extremes[] = {NAN,          INFINITY, -INFINITY, 0.0f,  -0.0f,   0x1p-149f,
                                -0x1.8p-130f, 3e38f,    -7e33f,    1e10f, 65520.0f};
  for (size_t i = 0; i < arrays.size(); ++i)
    if (!program.operands[i].isOutput && classOf(arrays[i].type()) == ValueClass::Real)
      for (int64_t j = random() % 40; j < arrays[i].size(); j += 1 + random() % 100)
        arrays[i].set(j, extremes[random() % std::size(extremes)]);
}

std::vector<Row> Arguments::row(int64_t index) const {
  std::vector<Row> current(arrays.size());
  for (size_t i = 0; i < arrays.size(); ++i)
    for (int64_t c = 0; c < width(i); ++c) {
      int64_t at = offset(i, index, c);
      current[i].push_back(program.operands[i].kind == OperandKind::Index ? Number(at) : arrays[i].get(at));
    }
  return current;
}

std::vector<Array> Arguments::expected() const {
  std::vector<Array> result = arrays;
  std::vector<Row> sums(arrays.size());
  for (size_t i = 0; i < arrays.size(); ++i)
    sums[i].assign(width(i), 0.0);
  for (int64_t index = 0; index < rows(); ++index) {
    std::vector<Row> current = row(index);
    evaluateRow(program, current, sums);
    for (size_t i = 0; i < arrays.size(); ++i)
      if (program.operands[i].isOutput && program.operands[i].kind != OperandKind::Column)
        for (int64_t c = 0; c < width(i); ++c)
          result[i].set(offset(i, index, c), current[i][c]);
  }
  for (size_t i = 0; i < arrays.size(); ++i)
    if (program.operands[i].isOutput && program.operands[i].kind == OperandKind::Column)
      for (int64_t c = 0; c < width(i); ++c)
        result[i].set(c * steps[i], sums[i][c]);
  return result;
}

} // namespace cermet::test
