// A tensor with sizes and strides of its own.
#pragma once
#include "runtime/abi/ElementType.h"
#include "runtime/launch/Checks.h"
#include <algorithm>
#include <numeric>
#include <optional>

namespace cermet {

struct Array {
  char* data;
  cermet_dtype dtype;
  int rank;
  int64_t sizes[kMaxRank], strides[kMaxRank];

  int64_t elements(int dims) const {
    return std::accumulate(sizes, sizes + dims, int64_t(1), std::multiplies<int64_t>());
  }
  // The distance between neighbours among the rows that the first `leads` dimensions are, 0 of fewer than two; nothing
  // where there is no one.
  std::optional<int64_t> rowStride(int leads) const;
  cermet_tensor view() const { return {data, sizes, strides, rank, dtype}; }
};

inline Array matrix(void* data, cermet_dtype dtype, int64_t rows, int64_t columns, int64_t rowStride,
                    int64_t columnStride = 1) {
  return {static_cast<char*>(data), dtype, 2, {rows, columns}, {rowStride, columnStride}};
}

// A dense one of a value's dimensions; `symbols` are what those of its plan are. Sizes beside one of 0 may be anything,
// so strides are multiplied unsigned.
inline Array dense(const PlanValue& value, const std::vector<int64_t>& symbols, char* data) {
  Array made{data, value.dtype, value.rank, {}, {}};
  uint64_t stride = 1;
  for (int dim = value.rank; dim-- > 0; stride *= uint64_t(made.sizes[dim])) {
    made.sizes[dim] = sizeOf(value.dims[dim], symbols.data());
    made.strides[dim] = int64_t(stride);
  }
  return made;
}

inline std::optional<int64_t> Array::rowStride(int leads) const {
  if (std::find(sizes, sizes + leads, 0) != sizes + leads)
    return 0;     // nothing is read, whatever strides say
  int inner = -1; // the dimension before, of those that step
  int64_t distance = 0;
  for (int dim = leads; dim-- > 0;) {
    if (sizes[dim] == 1)
      continue;
    int64_t next;
    if (inner < 0)
      distance = strides[dim];
    else if (__builtin_mul_overflow(strides[inner], sizes[inner], &next) || strides[dim] != next)
      return std::nullopt;
    inner = dim;
  }
  return distance;
}

} // namespace cermet
