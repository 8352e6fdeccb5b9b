// Elementwise work on tiles that lie in memory the other way round (turned.cuh), on the simulated machine against the
// float64 interpreter: of all sizes of elements, over tiles of a block that are full and that are not, in batches.
#include "tests/simt/Truth.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace cermet::simt {
namespace {

const char* const kStrided = " {cermet.strides = array<i64: -1, -1, -1>}";

class Turned : public testing::TestWithParam<int64_t> {
protected:
  const int64_t columns = GetParam();
  const std::vector<Symbols> rows{{{"r0", 1}, {"r1", 1}},  {{"r0", 3}, {"r1", 31}}, {{"r0", 1}, {"r1", 64}},
                                  {{"r0", 2}, {"r1", 65}}, {{"r0", 2}, {"r1", 68}}, {{"r0", 1}, {"r1", 130}}};
  // Turned, with rows apart and without; columns that lie apart, but not as far as rows.
  const std::vector<Layout> layouts{{0, 0, 1, false, true}, {3, 0, 1, false, true}, {0, 0, 3, false, false}};

  void expectTurned(const std::string& text) const {
    for (const PlanStep& step : planOf(text).steps)
      for (const PlanProgram& program : step.programs)
        EXPECT_EQ(program.skeleton, columns < 32 ? Skeleton::Flat : Skeleton::Turned) << step.name;
  }
};

TEST_P(Turned, Copies) {
  std::string given, taken, returned;
  for (const char* dtype : {"f8E4M3FN", "f8E5M2", "bf16", "f16", "f32", "i1", "i8", "i16", "i32", "i64"}) {
    const std::string separator = given.empty() ? "" : ", ";
    given += fmt::format("{0}%{1}: {2}{3}", separator, dtype, tile(columns, dtype), kStrided);
    taken += fmt::format("{}%{}", separator, dtype);
    returned += separator + tile(columns, dtype);
  }
  const std::string text =
      graphOf(fmt::format("({}) -> ({})", given, returned), fmt::format("return {} : {}\n", taken, returned));
  expectTurned(text);
  check(text, rows, layouts);
}

// Strided inputs of several types beside a dense one, one for each row, one for each column and a row's number; what is
// stored of each row, too.
TEST_P(Turned, AmongOthers) {
  const std::string h = tile(columns, "bf16"), f = tile(columns, "f32"), e = tile(columns, "f8E5M2"),
                    b = tile(columns, "i1"), i = tile(columns, "i64"), r = tile(1, "f32"),
                    w = fmt::format("tensor<{}xbf16>", columns);
  const std::string text = graphOf(
      fmt::format("(%x: {0}{6}, %y: {1}{6}, %m: {3}{6}, %n: {4}{6}, %z: {2}, %s: {5}, %w: {7}) -> ({0}, {1}, {4}, {5})",
                  h, f, e, b, i, r, kStrided, w),
      fmt::format("%0 = cermet.cast %x : {0} to {1}\n%1 = cermet.broadcast %s : {5} to {1}\n"
                  "%2 = cermet.mul %0, %1 : {1}\n%3 = cermet.cast %z : {2} to {1}\n%4 = cermet.add %2, %3 : {1}\n"
                  "%5 = cermet.select %m, %4, %y : {3}, {1}\n%6 = cermet.cast %5 : {1} to {0}\n"
                  "%7 = cermet.broadcast %w : {6} to {0}\n%8 = cermet.mul %6, %7 : {0}\n"
                  "%9 = cermet.iota 1 : {4}\n%10 = cermet.add %n, %9 : {4}\n%11 = cermet.neg %s : {5}\n"
                  "return %8, %5, %10, %11 : {0}, {1}, {4}, {5}\n",
                  h, f, e, b, i, r, w));
  EXPECT_EQ(planOf(text).steps.size(), 1u);
  expectTurned(text);
  check(text, rows, layouts);
}

INSTANTIATE_TEST_SUITE_P(Widths, Turned, testing::Values(31, 33, 64, 136),
                         [](const auto& info) { return std::to_string(info.param); });

// Two programs of their own rows that share what is turned: one launch.
TEST(TurnedBeside, ProgramsOfTheirOwnRows) {
  const auto of = [](const char* heads) {
    return fmt::format("tensor<?x{}x?x72xbf16, #cermet.symbols<[\"b\", \"s\"]>>", heads);
  };
  const std::string q = of("4"), k = of("2"), c = of("1");
  const std::string text = graphOf(
      fmt::format("(%q: {0}, %k: {1}, %c: {2} {{cermet.strides = array<i64: -1, -1, -1, -1>}}) -> ({0}, {1})", q, k, c),
      fmt::format("%0 = cermet.broadcast %c : {2} to {0}\n%1 = cermet.mul %q, %0 : {0}\n"
                  "%2 = cermet.broadcast %c : {2} to {1}\n%3 = cermet.mul %k, %2 : {1}\n"
                  "return %1, %3 : {0}, {1}\n",
                  q, k, c));
  const Plan plan = planOf(text);
  ASSERT_EQ(plan.steps.size(), 1u);
  ASSERT_EQ(plan.steps[0].programs.size(), 2u);
  EXPECT_EQ(plan.steps[0].programs[0].skeleton, Skeleton::Turned);
  for (bool isSwapped : {false, true})
    check(text, std::vector<Symbols>{{{"b", 2}, {"s", 37}}, {{"b", 2}, {"s", 0}}}, {{0, 0, 1, isSwapped, true}});
}

} // namespace
} // namespace cermet::simt
