// Real numbers as the bits that memory holds of them, of every element type.
#pragma once
#include "runtime/abi/Rounding.h"
#include <cstdint>

namespace cermet {

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

} // namespace cermet
