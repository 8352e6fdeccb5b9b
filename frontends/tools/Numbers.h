// Tensors of any element type as float64, which is what the reference interpreter takes.
#pragma once
#include "frontends/c/cermet.h"
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
    return visitAs<uint8_t>(data, index, visit);
  }
}

inline double readNumber(const void* data, cermet_dtype dtype, int64_t index) {
  double result = 0;
  visitElement(const_cast<void*>(data), dtype, index, [&](auto& element) {
    if (dtype == CERMET_BF16)
      result = fromBfloat(static_cast<uint16_t>(element));
    else
      result = static_cast<double>(element);
    return false;
  });
  return result;
}

inline void writeNumber(void* data, cermet_dtype dtype, int64_t index, double value) {
  visitElement(data, dtype, index, [&]<typename Element>(Element& element) {
    element =
        dtype == CERMET_BF16 ? static_cast<Element>(toBfloat(static_cast<float>(value))) : static_cast<Element>(value);
    return true;
  });
}

inline bool isFloat(cermet_dtype dtype) {
  return dtype <= CERMET_F64;
}

// The distance between 1 and the next number.
inline double unitInLastPlace(cermet_dtype dtype) {
  return dtype == CERMET_BF16 ? 0x1p-7 : dtype == CERMET_F16 ? 0x1p-10 : dtype == CERMET_F32 ? 0x1p-23 : 0x1p-52;
}

} // namespace cermet::tools
