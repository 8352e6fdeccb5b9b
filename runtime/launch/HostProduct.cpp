#include "runtime/launch/HostProduct.h"
#include "runtime/abi/Bits.h"
#include <algorithm>
#include <cstring>
#include <vector>

namespace cermet {

namespace {

constexpr int64_t kColumns = 64, kRows = 64, kInner = 128; // of a tile

// What the bits of a type of two bytes stand for.
const float* valuesOf(cermet_dtype dtype) {
  static const auto tableOf = [](cermet_dtype of) {
    std::vector<float> table(1 << 16);
    for (uint32_t bits = 0; bits < table.size(); ++bits)
      table[bits] = static_cast<float>(fromBits(bits, of));
    return table;
  };
  if (dtype == CERMET_BF16) {
    static const std::vector<float> table = tableOf(CERMET_BF16);
    return table.data();
  }
  static const std::vector<float> table = tableOf(CERMET_F16);
  return table.data();
}

struct Matrix {
  char* data;
  int64_t rowStride, columnStride;
  cermet_dtype dtype;
  const float* values; // null: f32

  explicit Matrix(const cermet_tensor& tensor)
      : data(static_cast<char*>(tensor.data)), rowStride(tensor.strides[0]), columnStride(tensor.strides[1]),
        dtype(static_cast<cermet_dtype>(tensor.dtype)), values(dtype == CERMET_F32 ? nullptr : valuesOf(dtype)) {}

  char* at(int64_t row, int64_t column) const {
    return data + (row * rowStride + column * columnStride) * (values ? 2 : 4);
  }
  float get(int64_t row, int64_t column) const {
    if (values) {
      uint16_t bits;
      std::memcpy(&bits, at(row, column), sizeof(bits));
      return values[bits];
    }
    float value;
    std::memcpy(&value, at(row, column), sizeof(value));
    return value;
  }
  void set(int64_t row, int64_t column, double value) const {
    const uint64_t bits = toBits(value, dtype);
    std::memcpy(at(row, column), &bits, values ? 2 : 4);
  }
};

struct Product {
  Matrix left, right, result;
  int64_t m, k, n;
  bool accumulate;

  // Some columns of the result.
  void run(int64_t first) const {
    const int64_t columns = std::min(kColumns, n - first);
    std::vector<double> sums(kRows * kColumns), tile(kInner * kColumns);
    for (int64_t row = 0; row < m; row += kRows) {
      const int64_t rows = std::min(kRows, m - row);
      std::fill(sums.begin(), sums.end(), 0.0);
      for (int64_t inner = 0; inner < k; inner += kInner) {
        const int64_t depth = std::min(kInner, k - inner);
        for (int64_t at = 0; at < depth; ++at)
          for (int64_t column = 0; column < columns; ++column)
            tile[at * kColumns + column] = right.get(inner + at, first + column);
        for (int64_t i = 0; i < rows; ++i)
          for (int64_t at = 0; at < depth; ++at)
            add(&sums[i * kColumns], &tile[at * kColumns], left.get(row + i, inner + at));
      }
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t column = 0; column < columns; ++column) {
          const double before = accumulate ? result.get(row + i, first + column) : 0;
          result.set(row + i, first + column, before + sums[i * kColumns + column]);
        }
    }
  }

  static void add(double* sums, const double* values, double factor) {
    for (int64_t column = 0; column < kColumns; ++column)
      sums[column] += factor * values[column];
  }
};

} // namespace

void hostProduct(ThreadPool& pool, const cermet_tensor& left, const cermet_tensor& right, const cermet_tensor& result,
                 bool accumulate) {
  Product product{Matrix(left),  Matrix(right),  Matrix(result), left.sizes[0],
                  left.sizes[1], right.sizes[1], accumulate};
  const auto runPart = [](void* user, int part) { static_cast<const Product*>(user)->run(part * kColumns); };
  pool.run(static_cast<int>((product.n + kColumns - 1) / kColumns), runPart, &product);
}

} // namespace cermet
