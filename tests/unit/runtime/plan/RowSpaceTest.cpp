// Merging of row extents, against a walk of every row.
#include "runtime/plan/RowSpace.h"
#include <algorithm>
#include <gtest/gtest.h>
#include <random>
#include <vector>

namespace cermet {
namespace {

// The offset of every row, in row-major order.
std::vector<int64_t> offsets(int rank, const int64_t* extent, const int64_t* stride) {
  std::vector<int64_t> result{0};
  for (int dim = 0; dim < rank; ++dim) {
    std::vector<int64_t> next;
    for (int64_t base : result)
      for (int64_t index = 0; index < extent[dim]; ++index)
        next.push_back(base + index * stride[dim]);
    result = std::move(next);
  }
  return result;
}

TEST(RowSpace, AnIndexNumbersTheRowsOfItsExtents) {
  const int64_t extent[] = {2, 3, 5};
  PlanOperand index;
  RowStrides stride;
  index.axis = {0, 0, 0};
  countRows(3, extent, index, stride);
  EXPECT_EQ(std::vector<int64_t>(stride, stride + 3), (std::vector<int64_t>{15, 5, 1}));
  index.axis = {0, -1, 0};
  countRows(3, extent, index, stride);
  EXPECT_EQ(std::vector<int64_t>(stride, stride + 3), (std::vector<int64_t>{5, 0, 1}));
}

TEST(RowSpace, MergingMovesNoRow) {
  std::mt19937 random(7);
  int merged = 0, kept = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    const int rank = static_cast<int>(random() % 6), operands = static_cast<int>(random() % 4) + 1;
    int64_t extent[kMaxRank], before[kMaxRank];
    RowStrides stride[4], strideBefore[4];
    for (int dim = 0; dim < rank; ++dim)
      before[dim] = extent[dim] = static_cast<int64_t>(random() % 4) + 1;
    for (int operand = 0; operand < operands; ++operand) {
      int64_t dense = static_cast<int64_t>(random() % 3) * 8; // 0: shared by all rows
      for (int dim = rank; dim-- > 0;) {
        if (random() % 4 == 0)
          dense += 8 * static_cast<int64_t>(random() % 3) - 8; // a gap, an overlap, or nothing
        strideBefore[operand][dim] = stride[operand][dim] = dense;
        dense *= extent[dim];
      }
    }
    const int after = collapseRows(rank, extent, operands, stride);
    ASSERT_GE(after, 1);
    ASSERT_LE(after, std::max(rank, 1));
    for (int operand = 0; operand < operands; ++operand)
      ASSERT_EQ(offsets(after, extent, stride[operand]), offsets(rank, before, strideBefore[operand])) << trial;
    merged += after < rank;
    kept += after == rank;
  }
  EXPECT_GT(merged, 1000);
  EXPECT_GT(kept, 1000);
}

// The same rows of every operand together, in the order in which the leading one has them in memory.
TEST(RowSpace, SortingOnlyReordersRows) {
  std::mt19937 random(8);
  int changed = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    const int rank = static_cast<int>(random() % 6), operands = static_cast<int>(random() % 4) + 1;
    const int leading = static_cast<int>(random() % operands);
    int64_t extent[kMaxRank], before[kMaxRank];
    RowStrides stride[4], strideBefore[4];
    for (int dim = 0; dim < rank; ++dim) {
      before[dim] = extent[dim] = static_cast<int64_t>(random() % 4) + 1;
      for (int operand = 0; operand < operands; ++operand)
        strideBefore[operand][dim] = stride[operand][dim] = static_cast<int64_t>(random() % 5) * 8;
    }
    const auto rowsOf = [&](const int64_t* extents, RowStrides* strides) {
      std::vector<std::vector<int64_t>> rows;
      for (int operand = 0; operand < operands; ++operand) {
        const std::vector<int64_t> all = offsets(rank, extents, strides[operand]);
        rows.resize(all.size());
        for (size_t row = 0; row < all.size(); ++row)
          rows[row].push_back(all[row]);
      }
      std::sort(rows.begin(), rows.end());
      return rows;
    };
    sortRows(rank, extent, operands, stride, leading);
    for (int dim = 1; dim < rank; ++dim)
      ASSERT_GE(stride[leading][dim - 1], stride[leading][dim]);
    ASSERT_EQ(rowsOf(extent, stride), rowsOf(before, strideBefore)) << trial;
    changed += !std::equal(extent, extent + rank, before);
  }
  EXPECT_GT(changed, 1000);
}

TEST(RowSpace, ATransposedOutputMerges) {
  int64_t extent[kMaxRank] = {2, 4, 16}; // batch, heads, tokens of what lies as batch, tokens, heads
  RowStrides stride[3] = {{16 * 4 * 64, 64, 4 * 64}, {16 * 4 * 64, 64, 4 * 64}, {16 * 64, 0, 64}};
  sortRows(3, extent, 3, stride, 1);
  EXPECT_EQ(extent[1], 16);
  EXPECT_EQ(extent[2], 4);
  EXPECT_EQ(stride[2][2], 0) << "a token's row is shared by the heads beside each other";
  EXPECT_EQ(collapseRows(3, extent, 3, stride), 2);
  EXPECT_EQ(extent[0], 2 * 16);
}

TEST(RowSpace, DenseRowsBecomeOne) {
  int64_t extent[kMaxRank] = {2, 3, 5, 7};
  RowStrides stride[2] = {{3 * 5 * 7 * 64, 5 * 7 * 64, 7 * 64, 64}, {105, 35, 7, 1}};
  EXPECT_EQ(collapseRows(4, extent, 2, stride), 1);
  EXPECT_EQ(extent[0], 2 * 3 * 5 * 7);
  EXPECT_EQ(stride[0][0], 64);
  EXPECT_EQ(stride[1][0], 1);
}

TEST(RowSpace, ATransposedOperandKeepsItsExtents) {
  int64_t extent[kMaxRank] = {2, 4, 16}; // batch, heads, tokens
  RowStrides stride[2] = {{16 * 4 * 64, 64, 4 * 64}, {4 * 16 * 64, 16 * 64, 64}};
  EXPECT_EQ(collapseRows(3, extent, 2, stride), 3);
}

// As kernels do it (compiler/cuda/device/rows.cuh).
uint32_t divided(uint32_t number, const RowDivisor& divisor) {
  return static_cast<uint32_t>(uint64_t(number) * divisor.multiplier >> divisor.shift);
}

TEST(RowSpace, MultiplyingDivides) {
  constexpr uint32_t kLargest = 0x7fffffff;
  std::mt19937 random(11);
  std::vector<uint32_t> extents{1, 2, 3, 5, 7, 31, 32, 33, 641, 65535, 65536, 65537, 1u << 30, kLargest - 1, kLargest};
  for (int trial = 0; trial < 2000; ++trial)
    extents.push_back(std::max<uint32_t>(random() >> (1 + random() % 31), 1));
  for (uint32_t extent : extents) {
    const RowDivisor divisor = divisorOf(extent);
    std::vector<uint32_t> numbers{0, 1, kLargest, kLargest - 1};
    for (int trial = 0; trial < 200; ++trial) {
      // Beside a multiple is where a quotient that is too large or too small shows.
      const uint64_t multiple = uint64_t(extent) * (random() % (kLargest / extent + 1));
      for (uint64_t number : {multiple, multiple + extent - 1, multiple - (multiple > 0)})
        if (number <= kLargest)
          numbers.push_back(static_cast<uint32_t>(number));
    }
    for (uint32_t number : numbers)
      ASSERT_EQ(divided(number, divisor), number / extent) << number << " / " << extent;
  }
}

TEST(RowSpace, DivisorsAreForRowsOf32Bits) {
  const auto hasDivisors = [](int64_t rank, int64_t rows, int64_t stride) {
    RowArguments arguments{};
    arguments.rows = rows;
    arguments.rowRank = rank;
    for (int64_t& extent : arguments.extent)
      extent = 3;
    arguments.operand[1].stride[2] = stride;
    setDivisors(arguments, 2);
    EXPECT_EQ(arguments.divisor[0].multiplier != 0, arguments.divisor[1].multiplier != 0);
    return arguments.divisor[0].multiplier != 0;
  };
  EXPECT_TRUE(hasDivisors(2, 9, 7));
  EXPECT_TRUE(hasDivisors(3, (int64_t(1) << 31) - 1, 0xffffffff));
  EXPECT_FALSE(hasDivisors(1, 3, 7));
  EXPECT_FALSE(hasDivisors(4, 81, 7));
  EXPECT_FALSE(hasDivisors(3, int64_t(1) << 31, 7));
  EXPECT_FALSE(hasDivisors(3, 27, int64_t(1) << 32));
  EXPECT_FALSE(hasDivisors(3, 27, -1));
}

} // namespace
} // namespace cermet
