//===--- Numbers that look random ------------------------------------------------------------------------------------===//

// As runtime/abi/Random.h has them. A row's key is made once for a thread, and an element costs ten instructions.
DEVICE i64 random_key(i64 seed, i64 row) {
  u64 x = u64(seed) + (u64(row) + 1) * 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return i64(x ^ (x >> 31));
}
DEVICE i64 random_bits(i64 key, i64 column) {
  u32 x = u32(u64(column)) + u32(u64(key));
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15) ^ u32(u64(key) >> 32)) * 0x846ca68bu;
  return i64(x ^ (x >> 16));
}
