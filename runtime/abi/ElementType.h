// Element types as the plan and the C interface name them.
#pragma once
#include "frontends/c/cermet.h"
#include <cstdint>
#include <optional>
#include <string_view>

namespace cermet {

struct ElementType {
  const char* name;
  int bytes;
};

constexpr ElementType kElementTypes[] = {{"f32", 4}, {"bf16", 2}, {"f16", 2}, {"f64", 8}, {"i64", 8},    {"i32", 4},
                                         {"i16", 2}, {"i8", 1},   {"u8", 1},  {"i1", 1},  {"f8e4m3", 1}, {"f8e5m2", 1}};
constexpr int kElementTypeCount = sizeof(kElementTypes) / sizeof(kElementTypes[0]);

inline bool isElementType(int32_t dtype) {
  return dtype >= 0 && dtype < kElementTypeCount;
}
inline int elementBytes(cermet_dtype dtype) {
  return kElementTypes[dtype].bytes;
}
// Any number a caller may pass; an unknown one is named as such.
inline const char* elementName(int32_t dtype) {
  return isElementType(dtype) ? kElementTypes[dtype].name : "an unknown dtype";
}
inline std::optional<cermet_dtype> elementType(std::string_view name) {
  for (int index = 0; index < kElementTypeCount; ++index)
    if (name == kElementTypes[index].name)
      return static_cast<cermet_dtype>(index);
  return std::nullopt;
}

} // namespace cermet
