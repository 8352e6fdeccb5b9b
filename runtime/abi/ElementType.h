// Element types: the one table of them. The C interface has their codes, plans their names, graph texts MLIR's, and
// array libraries (NumPy, torch) names of their own; `cermet_facts` hands the table to whoever asks.
#pragma once
#include "frontends/c/cermet.h"
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cermet {

// Reals are computed in f32 (an f64 by no kernel), integers in 64 bits.
enum class ValueClass { Real, Integer, Bool };

// What bytes mean. A real: binary, of a sign, an exponent and a fraction, whose largest number stands where it
// saturates.
struct NumberFormat {
  ValueClass valueClass;
  bool isSigned = false;       // an integer
  int digits = 0;              // of a real, in bits and with the leading one
  int lowest = 0, highest = 0; // exponents of a real's normal numbers
  double largest = HUGE_VAL;   // what larger ones become
};
constexpr NumberFormat kSigned{ValueClass::Integer, true}, kUnsigned{ValueClass::Integer}, kTruth{ValueClass::Bool};
constexpr NumberFormat real(int digits, int lowest, int highest, double largest = HUGE_VAL) {
  return {ValueClass::Real, true, digits, lowest, highest, largest};
}

// TYPE(CERMET_ code, name in plans, in graph texts, in array libraries, bytes, format, 1 where kernels take it), in the
// codes' order. Graph texts have the eight-bit floats of OCP: f8e4m3 has no infinity.
#define CERMET_ELEMENT_TYPES(TYPE)                                                                                     \
  TYPE(F32, f32, f32, float32, 4, real(24, -126, 127), 1)                                                              \
  TYPE(BF16, bf16, bf16, bfloat16, 2, real(8, -126, 127), 1)                                                           \
  TYPE(F16, f16, f16, float16, 2, real(11, -14, 15), 1)                                                                \
  TYPE(F64, f64, f64, float64, 8, real(53, -1022, 1023), 0)                                                            \
  TYPE(I64, i64, i64, int64, 8, kSigned, 1)                                                                            \
  TYPE(I32, i32, i32, int32, 4, kSigned, 1)                                                                            \
  TYPE(I16, i16, i16, int16, 2, kSigned, 1)                                                                            \
  TYPE(I8, i8, i8, int8, 1, kSigned, 1)                                                                                \
  TYPE(U8, u8, ui8, uint8, 1, kUnsigned, 1)                                                                            \
  TYPE(I1, i1, i1, bool, 1, kTruth, 1)                                                                                 \
  TYPE(F8E4M3, f8e4m3, f8E4M3FN, float8_e4m3fn, 1, real(4, -6, 8, 448), 1)                                             \
  TYPE(F8E5M2, f8e5m2, f8E5M2, float8_e5m2, 1, real(3, -14, 15), 1)

struct ElementType {
  cermet_dtype code;
  const char *name, *graphName, *arrayName;
  int bytes;
  NumberFormat format;
  bool isInKernels;
};

#define ROW(code, name, graph, array, bytes, format, kernels)                                                          \
  {CERMET_##code, #name, #graph, #array, bytes, format, kernels != 0},
constexpr ElementType kElementTypes[] = {CERMET_ELEMENT_TYPES(ROW)};
#undef ROW
constexpr int kElementTypeCount = sizeof(kElementTypes) / sizeof(kElementTypes[0]);
static_assert([] {
  for (int code = 0; code < kElementTypeCount; ++code)
    if (kElementTypes[code].code != code)
      return false;
  return true;
}());
// A register of 64 bits has a sign.
static_assert([] {
  for (const ElementType& type : kElementTypes)
    if (type.format.valueClass == ValueClass::Integer && !type.format.isSigned && type.bytes == 8)
      return false;
  return true;
}());

inline bool isElementType(int32_t dtype) {
  return dtype >= 0 && dtype < kElementTypeCount;
}
constexpr int elementBytes(cermet_dtype dtype) {
  return kElementTypes[dtype].bytes;
}
// Any number a caller may pass; an unknown one is named as such.
inline const char* elementName(int32_t dtype) {
  return isElementType(dtype) ? kElementTypes[dtype].name : "an unknown dtype";
}
inline std::optional<cermet_dtype> elementType(std::string_view name) {
  for (const ElementType& type : kElementTypes)
    if (name == type.name)
      return type.code;
  return std::nullopt;
}
// "f32 bf16 ...", for messages: those that kernels take, or all.
inline std::string elementNames(bool inKernels) {
  std::string result;
  for (ValueClass wanted : {ValueClass::Real, ValueClass::Integer, ValueClass::Bool})
    for (const ElementType& type : kElementTypes)
      if (type.format.valueClass == wanted && (type.isInKernels || !inKernels))
        result.append(result.empty() ? "" : " ").append(type.name);
  return result;
}

} // namespace cermet
