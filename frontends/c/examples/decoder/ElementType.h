// The element types that weights may have: in a checkpoint, in graph texts, in cermet.h.
#pragma once
#include <cermet.h>
#include <stdexcept>
#include <string>

struct ElementType {
  cermet_dtype dtype;
  const char* name;   // of graph texts
  const char* stored; // of safetensors
  int bytes;
};
inline constexpr ElementType kElementTypes[] = {
    {CERMET_F32, "f32", "F32", 4}, {CERMET_BF16, "bf16", "BF16", 2}, {CERMET_F16, "f16", "F16", 2}};

inline const ElementType& elementType(cermet_dtype dtype) {
  for (const ElementType& type : kElementTypes)
    if (type.dtype == dtype)
      return type;
  throw std::runtime_error("element type " + std::to_string(dtype) + ": expected that of f32, bf16 or f16");
}
// By the name of graph texts or of safetensors.
inline const ElementType& elementType(const std::string& name) {
  for (const ElementType& type : kElementTypes)
    if (name == type.name || name == type.stored)
      return type;
  throw std::runtime_error("element type " + name + ": expected f32, bf16 or f16");
}
