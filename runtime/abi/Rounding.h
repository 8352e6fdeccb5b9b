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

inline double roundToInteger(double value, int width, bool isUnsigned) {
  if (!std::isfinite(value))
    return 0;
  const double range = std::ldexp(1.0, width);
  const double wrapped = std::fmod(std::trunc(value), range) + 0.0; // an integer has no -0
  // Within its range a number stays as it is: -1 and 2^64 have no sum in a double.
  const double lowest = isUnsigned ? 0 : -range / 2;
  return wrapped < lowest ? wrapped + range : wrapped >= lowest + range ? wrapped - range : wrapped;
}

// `value` rounded to an element type: to nearest, ties to even, subnormals, overflow to infinity (f8e4m3: to 448) and
// NaN included; integers toward zero and wrapped to their width; i1 is 0 or 1.
inline double roundTo(cermet_dtype dtype, double value) {
  switch (dtype) {
  case CERMET_F64:
    return value;
  case CERMET_F32:
    return static_cast<float>(value);
  case CERMET_BF16:
    return roundToFormat(value, 8, -126, 127);
  case CERMET_F16:
    return roundToFormat(value, 11, -14, 15);
  // As PyTorch has it: from an f32, and f8e4m3, whose largest is 1.75 * 2^8 and which has no infinity, saturates.
  case CERMET_F8E5M2:
    return roundToFormat(static_cast<float>(value), 3, -14, 15);
  case CERMET_F8E4M3:
    return std::fabs(value) > 448 ? std::copysign(448.0, value) : roundToFormat(static_cast<float>(value), 4, -6, 8);
  case CERMET_I1:
    return value != 0;
  default:
    return roundToInteger(value, 8 * elementBytes(dtype), dtype == CERMET_U8);
  }
}

} // namespace cermet
