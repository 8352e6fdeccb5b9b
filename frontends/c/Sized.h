// Structs that grow: each begins with its `size`, which the caller sets to what its own cermet.h says, so that a
// program and a library of different versions agree on what both know. Fields are only ever appended, and none is
// followed by padding, so a shorter struct is a prefix of a longer one. What is read or written here is never more
// than the caller has.
#pragma once
#include "runtime/support/Status.h"
#include <algorithm>
#include <cstring>
#include <type_traits>

namespace cermet {

// A size beyond this is memory that nobody initialised.
constexpr size_t kLargestStruct = 4096;

// Fields begin at multiples of 8, so no version of a struct has another size.
inline Status checkSize(const char* what, const char* type, size_t given, size_t known) {
  if (given >= sizeof(size_t) && given <= kLargestStruct && given % sizeof(size_t) == 0)
    return {};
  return error(CERMET_INVALID_ARGUMENT, "{}->size is {}, expected sizeof({}), which is {} here", what, given, type,
               known);
}

// The caller's struct as this version knows it: 0 in fields that an older one has not. Fields of a newer one must be 0:
// the caller asks for something that this version would not do.
template <typename Struct> Status readSized(const char* what, const char* type, const Struct* given, Struct& known) {
  static_assert(std::is_standard_layout_v<Struct> && offsetof(Struct, size) == 0 &&
                sizeof(Struct) % sizeof(size_t) == 0);
  const size_t size = given->size;
  CERMET_RETURN_IF_ERROR(checkSize(what, type, size, sizeof(Struct)));
  const char* bytes = reinterpret_cast<const char*>(given);
  for (size_t at = sizeof(Struct); at < size; ++at)
    if (bytes[at] != 0)
      return error(CERMET_INVALID_ARGUMENT,
                   "{}->size is {}, and of what lies behind the {} bytes that this libcermet knows not all is 0; leave "
                   "newer fields 0 or use the library that cermet.h came with",
                   what, size, sizeof(Struct));
  known = {};
  std::memcpy(static_cast<void*>(&known), bytes, std::min(size, sizeof(Struct)));
  return {};
}

// Fills the caller's struct behind its size: with as many fields as it has, and 0 in those that this version has not.
template <typename Struct> Status writeSized(const char* what, const char* type, const Struct& known, Struct* out) {
  static_assert(std::is_standard_layout_v<Struct> && offsetof(Struct, size) == 0 &&
                sizeof(Struct) % sizeof(size_t) == 0);
  const size_t size = out->size;
  CERMET_RETURN_IF_ERROR(checkSize(what, type, size, sizeof(Struct)));
  char* bytes = reinterpret_cast<char*>(out);
  const size_t common = std::min(size, sizeof(Struct));
  std::memcpy(bytes + sizeof(size), reinterpret_cast<const char*>(&known) + sizeof(size), common - sizeof(size));
  std::memset(bytes + common, 0, size - common);
  return {};
}

} // namespace cermet
