// What a number becomes when it is kept in an element type.
#pragma once
#include "runtime/abi/ElementType.h"
#include <algorithm>
#include <cmath>

namespace cermet {

// To a binary format of `precision` bits (the leading one included) with exponents from `lowest` to `highest`. Scaling
// by powers of two is exact, and nearbyint rounds ties to even.
inline double roundToFormat(double value, int precision, int lowest, int highest) {
  if (!std::isfinite(value) || value == 0)
    return value;
  const int unit = std::max(std::ilogb(value), lowest) - precision + 1;
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit);
  return std::fabs(rounded) >= std::ldexp(1.0, highest + 1) ? std::copysign(HUGE_VAL, value) : rounded;
}

inline double roundToInteger(double value, int width, bool isSigned) {
  if (!std::isfinite(value))
    return 0;
  const double range = std::ldexp(1.0, width);
  const double wrapped = std::fmod(std::trunc(value), range) + 0.0; // an integer has no -0
  // Within its range a number stays as it is: -1 and 2^64 have no sum in a double.
  const double lowest = isSigned ? -range / 2 : 0;
  return wrapped < lowest ? wrapped + range : wrapped >= lowest + range ? wrapped - range : wrapped;
}

// `value` rounded to an element type: to nearest, ties to even, subnormals, overflow to infinity (f8e4m3: to 448) and
// NaN included; integers toward zero and wrapped to their width; i1 is 0 or 1.
inline double roundTo(cermet_dtype dtype, double value) {
  const auto& [valueClass, isSigned, digits, lowest, highest, largest] = kElementTypes[dtype].format;
  if (valueClass == ValueClass::Bool)
    return value != 0;
  if (valueClass == ValueClass::Integer)
    return roundToInteger(value, 8 * elementBytes(dtype), isSigned);
  if (digits == 53)
    return value;
  if (digits == 24 || elementBytes(dtype) == 1) // as PyTorch has it, eight bits are made of an f32
    value = static_cast<float>(value);
  if (digits == 24)
    return value;
  return std::fabs(value) > largest ? std::copysign(largest, value) : roundToFormat(value, digits, lowest, highest);
}

} // namespace cermet
