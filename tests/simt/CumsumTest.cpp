// Cumulative sums along rows of every width, on the simulated machine against the float64 interpreter: in both
// directions, of reals and integers, between reductions and beside sums over rows.
#include "tests/simt/Truth.h"

#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace cermet::simt {
namespace {

class Cumsums : public testing::TestWithParam<TileCase> {
protected:
  const int64_t columns = GetParam().columns;
  const Symbols symbols{{"r0", GetParam().r0}, {"r1", GetParam().r1}};
  const std::string t = tile(columns, GetParam().dtype), f = tile(columns, "f32"), r = tile(1, "f32");
  const char* const directions[2] = {"", " {reverse}"};
};

TEST_P(Cumsums, Alone) {
  for (const char* direction : directions) {
    const std::string body = fmt::format("%0 = cermet.cast %x : {0} to {1}\n%1 = cermet.cumsum %0{2} : {1}\n"
                                         "%2 = cermet.cast %1 : {1} to {0}\nreturn %2 : {0}\n",
                                         t, f, direction);
    check(graphOf(fmt::format("(%x: {0}) -> {0}", t), body), symbols);
    check(graphOf(fmt::format("(%x: {0} {{cermet.strides = array<i64: -1, -1, -1>}}) -> {0}", t), body), symbols, 3);
  }
}

// What a reduction follows, of it and behind it, and its own gradient.
TEST_P(Cumsums, BetweenReductions) {
  for (const char* direction : directions) {
    const std::string text = graphOf(
        fmt::format("(%x: {0}) -> ({1}, {2})", t, f, r),
        fmt::format("%0 = cermet.cast %x : {0} to {1}\n%1 = cermet.reduce_max %0 : {1} to {2}\n"
                    "%2 = cermet.broadcast %1 : {2} to {1}\n%3 = cermet.sub %0, %2 : {1}\n%4 = cermet.exp %3 : {1}\n"
                    "%5 = cermet.cumsum %4{3} : {1}\n%6 = cermet.mul %5, %4 : {1}\n"
                    "%7 = cermet.reduce_sum %6 : {1} to {2}\n%8 = cermet.broadcast %7 : {2} to {1}\n"
                    "%9 = cermet.sub %5, %8 : {1}\nreturn %9, %7 : {1}, {2}\n",
                    t, f, r, direction));
    EXPECT_EQ(planOf(text).steps.size(), 1u);
    check(text, symbols);
    check(gradient(text, {1})["backward"], symbols);
  }
}

TEST_P(Cumsums, BesideSumsOverRows) {
  const std::string sums = fmt::format("tensor<{}xf32>", columns);
  for (const char* direction : directions)
    check(graphOf(fmt::format("(%x: {0}, %y: {1}) -> ({1}, {2})", t, f, sums),
                  fmt::format("%0 = cermet.cast %x : {0} to {1}\n%1 = cermet.cumsum %0{3} : {1}\n"
                              "%2 = cermet.mul %1, %y : {1}\n%3 = cermet.sum_rows %2 : {1} to {2}\n"
                              "return %1, %3 : {1}, {2}\n",
                              t, f, sums, direction)),
          symbols);
}

TEST_P(Cumsums, OfIntegersBesideReals) {
  const std::string narrow = tile(columns, "i32"), wide = tile(columns, "i64");
  for (const char* direction : directions)
    check(graphOf(fmt::format("(%x: {0}, %n: {1}) -> ({2}, {3})", t, narrow, f, wide),
                  fmt::format("%0 = cermet.cast %x : {0} to {2}\n%1 = cermet.cumsum %0{4} : {2}\n"
                              "%2 = cermet.cast %n : {1} to {3}\n%3 = cermet.cumsum %2{4} : {3}\n"
                              "%4 = cermet.mul %1, %0 : {2}\nreturn %4, %3 : {2}, {3}\n",
                              t, narrow, f, wide, direction)),
          symbols);
}

// Below a vector, several rows a warp, a warp, several warps with ragged ends, odd widths, rows too long for registers.
INSTANTIATE_TEST_SUITE_P(Widths, Cumsums,
                         testing::Values(TileCase{1, "f32", 3, 2}, TileCase{3, "bf16", 1, 5},
                                         TileCase{64, "bf16", 3, 7}, TileCase{100, "f16", 0, 7},
                                         TileCase{1000, "bf16", 2, 2}, TileCase{1536, "f32", 2, 2},
                                         TileCase{4095, "bf16", 1, 3}, TileCase{20000, "bf16", 1, 2},
                                         TileCase{9001, "f32", 1, 2}),
                         [](const auto& info) { return fmt::format("{}{}", info.param.dtype, info.param.columns); });

// A column that is no number, or infinite, is in the sums that have it and in no others.
TEST(CumsumValues, ReachLaterColumnsAlone) {
  constexpr int64_t kColumns = 1500, kAt = 777;
  const std::string f = tile(kColumns, "f32"), i = tile(kColumns, "i64"), b = tile(kColumns, "i1");
  for (bool isReverse : {false, true})
    for (const char* number : {"0x7FC00000", "0xFF800000"}) {
      const std::string text = graphOf(
          fmt::format("(%x: {0}) -> {0}", f),
          fmt::format("%0 = cermet.iota 2 : {1}\n%1 = cermet.constant {4}.0 : {1}\n"
                      "%2 = cermet.compare \"eq\", %0, %1 : {1} to {2}\n%3 = cermet.constant {5} : {0}\n"
                      "%4 = cermet.select %2, %3, %x : {2}, {0}\n%5 = cermet.cumsum %4{3} : {0}\nreturn %5 : {0}\n",
                      f, i, b, isReverse ? " {reverse}" : "", kAt, number));
      const Plan plan = planOf(text);
      const PlanKernels kernels(plan);
      const Outcome run = runPlan(plan, kernels, {{"r0", 2}, {"r1", 3}}, PlanOptions(), Layout());
      ASSERT_EQ(run.machineError, "");
      const std::vector<double> sums = run.tensors[1].values();
      for (size_t at = 0; at < sums.size(); ++at) {
        const int64_t column = at % kColumns;
        EXPECT_EQ(std::isfinite(sums[at]), isReverse ? column > kAt : column < kAt) << column << ": " << sums[at];
      }
    }
}

} // namespace
} // namespace cermet::simt
