// Sums over rows that no block has registers for (column.cuh), on the simulated machine against the float64
// interpreter: alone, beside what is stored of each row, over few rows, many and none, of widths that vectors divide
// and do not.
#include "tests/simt/Truth.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace cermet::simt {
namespace {

class LongSums : public testing::TestWithParam<TileCase> {
protected:
  const int64_t columns = GetParam().columns;
  const std::string& dtype = GetParam().dtype;
  const Symbols symbols{{"r0", GetParam().r0}, {"r1", GetParam().r1}};
  const std::string t = tile(columns, dtype), f = tile(columns, "f32"),
                    w = fmt::format("tensor<{}x{}>", columns, dtype), sums = fmt::format("tensor<{}xf32>", columns);

  static void expectColumns(const std::string& text) {
    for (const PlanStep& step : planOf(text).steps)
      for (const PlanProgram& program : step.programs) {
        EXPECT_EQ(program.skeleton, Skeleton::Column);
        EXPECT_TRUE(step.foldEntry.empty());
      }
  }
};

TEST_P(LongSums, Alone) {
  const std::string text =
      graphOf(fmt::format("(%x: {}) -> {}", t, sums),
              fmt::format("%0 = cermet.cast %x : {0} to {1}\n%1 = cermet.sum_rows %0 : {1} to {2}\nreturn %1 : {2}\n",
                          t, f, sums));
  expectColumns(text);
  check(text, symbols);
}

// The gradients of a product with a weight: one for each row, and one summed over them.
TEST_P(LongSums, BesideATile) {
  const std::string text = graphOf(
      fmt::format("(%x: {0}, %w: {1}) -> {0}", t, w),
      fmt::format("%0 = cermet.broadcast %w : {1} to {0}\n%1 = cermet.mul %x, %0 : {0}\nreturn %1 : {0}\n", t, w));
  const std::string backward = gradient(text, {1, 1})["backward"];
  expectColumns(backward);
  check(backward, symbols);
}

INSTANTIATE_TEST_SUITE_P(Widths, LongSums,
                         testing::Values(TileCase{40968, "bf16", 4, 5}, TileCase{33001, "f32", 1, 3},
                                         TileCase{32770, "f16", 1, 1}, TileCase{32776, "bf16", 0, 3}),
                         [](const auto& info) { return fmt::format("{}{}", info.param.dtype, info.param.columns); });

} // namespace
} // namespace cermet::simt
