// Tensors of any element type as float64, which is what the reference interpreter takes.
#pragma once
#include "runtime/abi/ElementType.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace cermet::tools {

inline float fromBfloat(uint16_t bits) {
  return std::bit_cast<float>(uint32_t(bits) << 16);
}

// Nearest, ties to even.
inline uint16_t toBfloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return std::isnan(value) ? 0x7fc0 : static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline bool isEightBitFloat(cermet_dtype dtype) {
  return dtype == CERMET_F8E4M3 || dtype == CERMET_F8E5M2;
}

inline double fromEightBits(uint8_t bits, cermet_dtype dtype) {
  const bool isE4M3 = dtype == CERMET_F8E4M3;
  const int fraction = isE4M3 ? 3 : 2, lowest = isE4M3 ? -6 : -14, size = bits & 0x7f;
  const int exponent = size >> fraction, units = size & ((1 << fraction) - 1);
  const double value = isE4M3 && size == 0x7f    ? NAN
                       : !isE4M3 && size >= 0x7c ? (size == 0x7c ? HUGE_VAL : NAN)
                       : exponent == 0           ? std::ldexp(units, lowest - fraction)
                                       : std::ldexp(units + (1 << fraction), lowest - fraction + exponent - 1);
  return bits & 0x80 ? -value : value;
}

// Nearest, ties to even; beyond the largest, e4m3 stays there and e5m2 is infinite.
inline uint8_t toEightBits(float value, cermet_dtype dtype) {
  const bool isE4M3 = dtype == CERMET_F8E4M3;
  const int fraction = isE4M3 ? 3 : 2, lowest = isE4M3 ? -6 : -14, most = isE4M3 ? 0x7e : 0x7c;
  if (std::isnan(value))
    return 0x7f;
  const float size = std::min(std::fabs(value), 0x1p16f);
  const int exponent = std::max(std::ilogb(size), lowest);
  const int units = static_cast<int>(std::nearbyint(std::ldexp(size, fraction - exponent))); // with the leading one
  const int bits = std::min(units + ((exponent - lowest) << fraction), most);
  return static_cast<uint8_t>(bits | (std::signbit(value) ? 0x80 : 0));
}

template <typename Element, typename Visit> void visitAs(void* data, int64_t index, const Visit& visit) {
  Element element;
  char* place = static_cast<char*>(data) + index * int64_t(sizeof(Element));
  std::memcpy(&element, place, sizeof(Element));
  if (visit(element))
    std::memcpy(place, &element, sizeof(Element));
}

// Calls visit(element) with a reference to the element in its own type; what it returns says whether to store it.
template <typename Visit> void visitElement(void* data, cermet_dtype dtype, int64_t index, const Visit& visit) {
  switch (dtype) {
  case CERMET_F32:
    return visitAs<float>(data, index, visit);
  case CERMET_F64:
    return visitAs<double>(data, index, visit);
  case CERMET_F16:
    return visitAs<_Float16>(data, index, visit);
  case CERMET_BF16:
    return visitAs<uint16_t>(data, index, visit);
  case CERMET_I64:
    return visitAs<int64_t>(data, index, visit);
  case CERMET_I32:
    return visitAs<int32_t>(data, index, visit);
  case CERMET_I16:
    return visitAs<int16_t>(data, index, visit);
  case CERMET_I8:
    return visitAs<int8_t>(data, index, visit);
  case CERMET_U8:
  case CERMET_I1:
  case CERMET_F8E4M3:
  case CERMET_F8E5M2:
    return visitAs<uint8_t>(data, index, visit);
  }
}

inline double readNumber(const void* data, cermet_dtype dtype, int64_t index) {
  double result = 0;
  visitElement(const_cast<void*>(data), dtype, index, [&](auto& element) {
    if (dtype == CERMET_BF16)
      result = fromBfloat(static_cast<uint16_t>(element));
    else if (isEightBitFloat(dtype))
      result = fromEightBits(static_cast<uint8_t>(element), dtype);
    else
      result = static_cast<double>(element);
    return false;
  });
  return result;
}

inline void writeNumber(void* data, cermet_dtype dtype, int64_t index, double value) {
  visitElement(data, dtype, index, [&]<typename Element>(Element& element) {
    element = dtype == CERMET_BF16     ? static_cast<Element>(toBfloat(static_cast<float>(value)))
              : isEightBitFloat(dtype) ? static_cast<Element>(toEightBits(static_cast<float>(value), dtype))
                                       : static_cast<Element>(value);
    return true;
  });
}

inline bool isFloat(cermet_dtype dtype) {
  return kElementTypes[dtype].valueClass == ValueClass::Real;
}

// The distance between 1 and the next number.
inline double unitInLastPlace(cermet_dtype dtype) {
  switch (dtype) {
  case CERMET_F8E5M2:
    return 0x1p-2;
  case CERMET_F8E4M3:
    return 0x1p-3;
  case CERMET_BF16:
    return 0x1p-7;
  case CERMET_F16:
    return 0x1p-10;
  case CERMET_F32:
    return 0x1p-23;
  default:
    return 0x1p-52;
  }
}

} // namespace cermet::tools
