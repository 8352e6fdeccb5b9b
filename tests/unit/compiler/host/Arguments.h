// The memory that a host kernel works on: arrays of any type, with strides, and what the oracle makes of them.
#pragma once
#include "tests/unit/compiler/RowEvaluator.h"
#include <random>

namespace cermet::test {

// An operand's memory: `values` are what the bytes hold. Gaps between rows hold 0xAB bytes.
class Array {
public:
  // `shift`: elements before the base, to leave it aligned to its element only.
  Array(DType dtype, int64_t elements, int64_t shift = 0);
  Number get(int64_t index) const;
  void set(int64_t index, Number value); // rounded
  void setBits(int64_t index, uint64_t bits);
  void repeat(int64_t period); // the first `period` elements over and over
  char* base() { return bytes.data() + shift * byteSize(dtype); }
  int64_t size() const { return elements; }
  DType type() const { return dtype; }
  bool operator==(const Array& other) const { return bytes == other.bytes; }
  // Equal bits, but for those of a NaN, which no operation promises.
  bool hasSameNumbers(const Array& other) const;

private:
  DType dtype;
  int64_t elements, shift;
  std::vector<char> bytes;
};

// A program's operands over an iteration space, inputs random: reals normal, integers and bools any.
struct Arguments {
  // `strides` by operand, in elements for each extent; empty: dense. `steps` by operand: between columns that are
  // strided; 0: 3. A gathered operand has kSourceRows rows, `strides` is from one to the next; the numbers of rows are
  // such as it has, and some that it has not.
  Arguments(const RowProgram& program, std::vector<int64_t> extents, std::mt19937& random,
            std::vector<std::vector<int64_t>> strides = {}, std::vector<int64_t> steps = {});

  static constexpr int64_t kSourceRows = 13;

  int64_t rows() const;
  int64_t width(size_t operand) const;                                   // columns, or 1
  int64_t offset(size_t operand, int64_t row, int64_t column = 0) const; // of an index operand: its number
  Number at(size_t operand, int64_t row,
            int64_t column = 0) const;    // what the row reads there: NaN or 0 of no gathered row
  void addExtremes(std::mt19937& random); // NaN, infinities, zeros, subnormal and huge numbers among the reals

  // The operands of one row, as the oracle takes them.
  std::vector<Row> row(int64_t index) const;
  // The arrays as the oracle leaves them. `sizes`, by operand and column: what a sum over rows would be were none of its
  // terms negative, which is what its terms' rounding is relative to.
  std::vector<Array> expected(std::vector<Row>* sizes = nullptr) const;

  const RowProgram& program;
  std::vector<int64_t> extents;
  std::vector<std::vector<int64_t>> strides;
  std::vector<int64_t> steps;
  std::vector<Array> arrays;
};

} // namespace cermet::test
