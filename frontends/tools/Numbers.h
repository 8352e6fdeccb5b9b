// Tensors of any element type as float64, which is what the reference interpreter takes.
#pragma once
#include "runtime/abi/Rounding.h"
#include <cstdint>
#include <cstring>

namespace cermet::tools {

// What a real's bits stand for, and the bits of one that is rounded; of the eight-bit floats e4m3 has no infinity.
inline double fromBits(uint64_t bits, cermet_dtype dtype) {
  const NumberFormat& format = kElementTypes[dtype].format;
  const int fraction = format.digits - 1;
  const uint64_t sign = uint64_t(1) << (8 * elementBytes(dtype) - 1), size = bits & (sign - 1);
  const uint64_t units = size & ((uint64_t(1) << fraction) - 1);
  const int biased = static_cast<int>(size >> fraction), exponent = biased - 1 + format.lowest;
  const double value = exponent > format.highest || size == sign - 1 ? (units ? NAN : HUGE_VAL)
                       : biased == 0                                 ? std::ldexp(units, format.lowest - fraction)
                                     : std::ldexp(units + (uint64_t(1) << fraction), exponent - fraction);
  return bits & sign ? -value : value;
}

inline uint64_t toBits(double value, cermet_dtype dtype) {
  const NumberFormat& format = kElementTypes[dtype].format;
  const int fraction = format.digits - 1;
  const uint64_t sign = uint64_t(1) << (8 * elementBytes(dtype) - 1);
  const double rounded = roundTo(dtype, value), size = std::fabs(rounded);
  if (std::isnan(rounded))
    return sign - 1;
  const int exponent = std::isinf(size) ? format.highest + 1 : std::max(std::ilogb(size), format.lowest);
  const double units = std::isinf(size) ? std::ldexp(1, fraction) : std::ldexp(size, fraction - exponent); // with the 1
  const uint64_t bits = static_cast<uint64_t>(units) + (uint64_t(exponent - format.lowest) << fraction);
  return std::signbit(rounded) ? bits | sign : bits;
}

inline bool isFloat(cermet_dtype dtype) {
  return kElementTypes[dtype].format.valueClass == ValueClass::Real;
}

inline double readNumber(const void* data, cermet_dtype dtype, int64_t index) {
  const int bytes = elementBytes(dtype), unused = 64 - 8 * bytes;
  uint64_t bits = 0;
  std::memcpy(&bits, static_cast<const char*>(data) + index * bytes, bytes);
  if (isFloat(dtype))
    return fromBits(bits, dtype);
  if (kElementTypes[dtype].format.isSigned)
    return static_cast<double>(static_cast<int64_t>(bits << unused) >> unused);
  return static_cast<double>(bits);
}

// Rounds as roundTo does.
inline void writeNumber(void* data, cermet_dtype dtype, int64_t index, double value) {
  const int bytes = elementBytes(dtype);
  const uint64_t all =
      isFloat(dtype) ? toBits(value, dtype) : static_cast<uint64_t>(static_cast<int64_t>(roundTo(dtype, value)));
  std::memcpy(static_cast<char*>(data) + index * bytes, &all, bytes);
}

// The distance between 1 and the next number; of no float, as an f64 has it.
inline double unitInLastPlace(cermet_dtype dtype) {
  return std::ldexp(1, 1 - (isFloat(dtype) ? kElementTypes[dtype].format.digits : 53));
}

} // namespace cermet::tools
