// Tensors of any element type as float64, which is what the reference interpreter takes.
#pragma once
#include "runtime/abi/Bits.h"
#include <cstdint>
#include <cstring>

namespace cermet::tools {

using cermet::fromBits, cermet::isFloat, cermet::toBits;

inline double readNumber(const void* data, cermet_dtype dtype, int64_t index) {
  const int bytes = elementBytes(dtype), unused = 64 - 8 * bytes;
  uint64_t bits = 0;
  std::memcpy(&bits, static_cast<const char*>(data) + index * bytes, bytes);
  if (isFloat(dtype))
    return fromBits(bits, dtype);
  if (kElementTypes[dtype].format.isSigned)
    return static_cast<double>(static_cast<int64_t>(bits << unused) >> unused);
  return static_cast<double>(bits);
}

// Rounds as roundTo does.
inline void writeNumber(void* data, cermet_dtype dtype, int64_t index, double value) {
  const int bytes = elementBytes(dtype);
  const uint64_t all =
      isFloat(dtype) ? toBits(value, dtype) : static_cast<uint64_t>(static_cast<int64_t>(roundTo(dtype, value)));
  std::memcpy(static_cast<char*>(data) + index * bytes, &all, bytes);
}

// The distance between 1 and the next number; of no float, as an f64 has it.
inline double unitInLastPlace(cermet_dtype dtype) {
  return std::ldexp(1, 1 - (isFloat(dtype) ? kElementTypes[dtype].format.digits : 53));
}

} // namespace cermet::tools
