#include "ir/dialect/Rounding.h"
#include "mlir/IR/BuiltinTypes.h"
#include <cmath>

using namespace mlir;

namespace cermet::ir {

// To a binary format of `precision` bits (the leading one included) with exponents from `lowest` to `highest`. Scaling
// by powers of two is exact, and nearbyint rounds ties to even.
static double roundToFormat(double value, int precision, int lowest, int highest) {
  if (!std::isfinite(value) || value == 0)
    return value;
  int exponent = std::ilogb(value);
  int unit = std::max(exponent, lowest) - precision + 1;
  double rounded = std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit);
  if (std::fabs(rounded) >= std::ldexp(1.0, highest + 1))
    return std::copysign(HUGE_VAL, value);
  return rounded;
}

static double roundToInteger(double value, unsigned width, bool isUnsigned) {
  if (!std::isfinite(value))
    return 0;
  double range = std::ldexp(1.0, width);
  double wrapped = std::fmod(std::trunc(value), range) + 0.0; // an integer has no -0
  // Within its range a number stays as it is: -1 and 2^64 have no sum in a double.
  double lowest = isUnsigned ? 0 : -range / 2;
  return wrapped < lowest ? wrapped + range : wrapped >= lowest + range ? wrapped - range : wrapped;
}

double roundTo(Type elementType, double value) {
  if (elementType.isF32())
    return static_cast<float>(value);
  if (elementType.isBF16())
    return roundToFormat(value, 8, -126, 127);
  if (elementType.isF16())
    return roundToFormat(value, 11, -14, 15);
  // As PyTorch has it: from an f32, and f8E4M3FN, whose largest is 1.75 * 2^8 and which has no infinity, saturates.
  if (isa<Float8E5M2Type>(elementType))
    return roundToFormat(static_cast<float>(value), 3, -14, 15);
  if (isa<Float8E4M3FNType>(elementType)) {
    double rounded = roundToFormat(static_cast<float>(value), 4, -6, 8);
    return std::fabs(value) > 448 ? std::copysign(448.0, value) : rounded;
  }
  if (auto integer = dyn_cast<IntegerType>(elementType)) {
    if (integer.getWidth() == 1)
      return value != 0;
    return roundToInteger(value, integer.getWidth(), integer.isUnsigned());
  }
  return value;
}

} // namespace cermet::ir
