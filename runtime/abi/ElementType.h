// Element types: the one table of them. The C interface has their codes, plans their names, graph texts MLIR's, and
// array libraries (NumPy, torch) names of their own; `cermet_facts` hands the table to whoever asks.
#pragma once
#include "frontends/c/cermet.h"
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cermet {

// Reals are computed in f32 (an f64 by no kernel), integers in 64 bits.
enum class ValueClass { Real, Integer, Bool };

// TYPE(CERMET_ code, name in plans, in graph texts, in array libraries, bytes, class), in the codes' order.
#define CERMET_ELEMENT_TYPES(TYPE)                                                                                     \
  TYPE(F32, f32, f32, float32, 4, Real)                                                                                \
  TYPE(BF16, bf16, bf16, bfloat16, 2, Real)                                                                            \
  TYPE(F16, f16, f16, float16, 2, Real)                                                                                \
  TYPE(F64, f64, f64, float64, 8, Real)                                                                                \
  TYPE(I64, i64, i64, int64, 8, Integer)                                                                               \
  TYPE(I32, i32, i32, int32, 4, Integer)                                                                               \
  TYPE(I16, i16, i16, int16, 2, Integer)                                                                               \
  TYPE(I8, i8, i8, int8, 1, Integer)                                                                                   \
  TYPE(U8, u8, ui8, uint8, 1, Integer)                                                                                 \
  TYPE(I1, i1, i1, bool, 1, Bool)                                                                                      \
  TYPE(F8E4M3, f8e4m3, f8E4M3FN, float8_e4m3fn, 1, Real)                                                               \
  TYPE(F8E5M2, f8e5m2, f8E5M2, float8_e5m2, 1, Real)

struct ElementType {
  cermet_dtype code;
  const char *name, *graphName, *arrayName;
  int bytes;
  ValueClass valueClass;
};

#define ROW(code, name, graph, array, bytes, kind) {CERMET_##code, #name, #graph, #array, bytes, ValueClass::kind},
constexpr ElementType kElementTypes[] = {CERMET_ELEMENT_TYPES(ROW)};
#undef ROW
constexpr int kElementTypeCount = sizeof(kElementTypes) / sizeof(kElementTypes[0]);
static_assert([] {
  for (int code = 0; code < kElementTypeCount; ++code)
    if (kElementTypes[code].code != code)
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
      if (type.valueClass == wanted && !(inKernels && type.code == CERMET_F64))
        result.append(result.empty() ? "" : " ").append(type.name);
  return result;
}

} // namespace cermet
