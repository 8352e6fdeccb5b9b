// Numbers that look random, as cermet.random has them (docs/ir.md): each is made of a seed and of a place alone, so
// whoever needs it makes it again. Kernels compute the same (compiler/cuda/device/random.cuh, compiler/host/Math.h).
#pragma once
#include <cstdint>

namespace cermet {

// Of a row: the (row + 1)-th output of splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators).
constexpr uint64_t randomKey(uint64_t seed, uint64_t row) {
  uint64_t x = seed + (row + 1) * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Of a column in it: a mixer of 32 bits (Wellons' lowbias32), which half of the key enters before its first
// multiplication and the other half before its second.
constexpr uint32_t randomBits(uint64_t key, uint32_t column) {
  uint32_t x = column + static_cast<uint32_t>(key);
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15) ^ static_cast<uint32_t>(key >> 32)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

} // namespace cermet
