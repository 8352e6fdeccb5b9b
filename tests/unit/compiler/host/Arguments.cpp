#include "tests/unit/compiler/host/Arguments.h"
#include <cmath>
#include <cstring>

namespace cermet::test {
namespace {

// A type of reals of eight or sixteen bits: how many the fraction has, the exponent of the smallest normal number, and
// the bits of infinity and of the first NaN; f8e4m3 has no infinity.
struct Narrow {
  int fraction, lowest;
  uint16_t infinity, nan;

  explicit Narrow(DType dtype)
      : fraction(dtype == DType::BF16     ? 7
                 : dtype == DType::F16    ? 10
                 : dtype == DType::F8E4M3 ? 3
                                          : 2),
        lowest(dtype == DType::BF16     ? -126
               : dtype == DType::F8E4M3 ? -6
                                        : -14),
        infinity(dtype == DType::BF16     ? 0x7f80
                 : dtype == DType::F16    ? 0x7c00
                 : dtype == DType::F8E4M3 ? 0x7f
                                          : 0x7c),
        nan(dtype == DType::F8E4M3 ? 0x7f : infinity | 1) {}
};

// The bits of a number that the type holds exactly, and back.
uint16_t encode(Number value, DType dtype) {
  const Narrow type(dtype);
  uint16_t sign = std::signbit(value) ? 0x80 << 8 * (byteSize(dtype) - 1) : 0;
  Number size = std::fabs(value);
  if (std::isnan(value))
    return type.nan;
  if (std::isinf(value))
    return sign | type.infinity;
  if (size == 0)
    return sign;
  int exponent = std::max(std::ilogb(size), type.lowest);
  int units = static_cast<int>(std::ldexp(size, type.fraction - exponent)); // with the leading one unless subnormal
  return sign | static_cast<uint16_t>(units + ((exponent - type.lowest) << type.fraction));
}

double decode(uint16_t bits, DType dtype) {
  const Narrow type(dtype);
  const int signBit = 0x80 << 8 * (byteSize(dtype) - 1), whole = bits & (signBit - 1);
  int exponent = whole >> type.fraction, units = whole & ((1 << type.fraction) - 1);
  double size = whole >= type.nan        ? NAN
                : whole == type.infinity ? HUGE_VAL
                : exponent == 0          ? std::ldexp(units, type.lowest - type.fraction)
                                : std::ldexp(units + (1 << type.fraction), type.lowest - type.fraction + exponent - 1);
  return bits & signBit ? -size : size;
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
  return traitsOf(dtype).format.isSigned ? Number(static_cast<int64_t>(bits << unused) >> unused) : Number(bits);
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
    if (operand.rowsFrom >= 0 && strides[i].empty())
      strides[i] = {width(i) * step};
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
    for (size_t k = 0; operand.rowsFrom < 0 && k < this->extents.size(); ++k)
      last += std::max<int64_t>(this->extents[k] - 1, 0) * strides[i][k];
    if (operand.rowsFrom >= 0)
      last += (kSourceRows - 1) * strides[i][0];
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
  for (const Operand& operand : program.operands)
    if (operand.rowsFrom >= 0)
      for (int64_t j = 0; j < arrays[operand.rowsFrom].size(); ++j)
        if (random() % 8 != 0)
          arrays[operand.rowsFrom].set(j, static_cast<int64_t>(random() % (kSourceRows + 2)) - 1);
}

int64_t Arguments::rows() const {
  int64_t count = 1;
  for (int64_t extent : extents)
    count *= extent;
  return count;
}

int64_t Arguments::width(size_t operand) const {
  const OperandKind kind = program.operands[operand].kind;
  const bool isColumns = kind == OperandKind::Tile || kind == OperandKind::Column || kind == OperandKind::Gathered;
  const ColumnMap& map = program.operands[operand].map;
  return map.isMapped() ? map.width : isColumns ? program.columns : 1;
}

int64_t Arguments::offset(size_t operand, int64_t row, int64_t column) const {
  int64_t result = column * steps[operand];
  for (size_t k = extents.size(); k-- > 0; row /= extents[k])
    result += row % extents[k] * strides[operand][k];
  return result;
}

Number Arguments::at(size_t operand, int64_t row, int64_t column) const {
  const Operand& described = program.operands[operand];
  if (described.kind == OperandKind::Index)
    return offset(operand, row, column);
  if (described.kind != OperandKind::Gathered)
    return arrays[operand].get(offset(operand, row, column));
  const Number number = at(described.rowsFrom, row);
  if (number >= 0 && number < kSourceRows)
    return arrays[operand].get(static_cast<int64_t>(number) * strides[operand][0] + column * steps[operand]);
  return classOf(described.dtype) == ValueClass::Real ? NAN : 0;
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
    for (int64_t c = 0; c < width(i); ++c)
      current[i].push_back(at(i, index, c));
  return current;
}

std::vector<Array> Arguments::expected(std::vector<Row>* sizes) const {
  std::vector<Array> result = arrays;
  std::vector<Row> sums(arrays.size());
  for (size_t i = 0; i < arrays.size(); ++i)
    sums[i].assign(width(i), 0.0);
  std::vector<Row> absolute = sums;
  for (int64_t index = 0; index < rows(); ++index) {
    std::vector<Row> current = row(index), before = sums;
    evaluateRow(program, current, sums);
    for (size_t i = 0; i < arrays.size(); ++i)
      for (int64_t c = 0; c < width(i); ++c)
        absolute[i][c] += std::fabs(sums[i][c] - before[i][c]);
    for (size_t i = 0; i < arrays.size(); ++i)
      if (program.operands[i].isOutput && program.operands[i].kind != OperandKind::Column)
        for (int64_t c = 0; c < width(i); ++c)
          result[i].set(offset(i, index, c), current[i][c]);
  }
  for (size_t i = 0; i < arrays.size(); ++i)
    if (program.operands[i].isOutput && program.operands[i].kind == OperandKind::Column)
      for (int64_t c = 0; c < width(i); ++c)
        result[i].set(c * steps[i], sums[i][c]);
  if (sizes)
    *sizes = std::move(absolute);
  return result;
}

} // namespace cermet::test
