// The CUDA text of real plans, run on the CPU by the machine of Machine.h under AddressSanitizer and UBSan, against the
// float64 interpreter. ControlTest.cpp has the controls.
#include "frontends/tools/Numbers.h"
#include "tests/simt/Truth.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace cermet::simt {
namespace {

using nlohmann::json;

class Simt : public testing::TestWithParam<TileCase> {
protected:
  Symbols symbols() const { return {{"r0", GetParam().r0}, {"r1", GetParam().r1}}; }
};

TEST_P(Simt, RmsNorm) {
  const std::string text = rmsNorm(GetParam().columns, GetParam().dtype, false);
  const json both = gradient(text, {1, 1});
  check(both["forward"], symbols());
  check(both["backward"], symbols());
}

TEST_P(Simt, AddRmsNorm) {
  const std::string text = rmsNorm(GetParam().columns, GetParam().dtype, true);
  check(text, symbols());
  check(gradient(text, {1, 1, 1})["backward"], symbols());
}

TEST_P(Simt, Glu) {
  const std::string text = glu(GetParam().columns, GetParam().dtype);
  check(text, symbols());
  check(gradient(text, {1, 1})["backward"], symbols());
}

// Widths on both sides of every edge: below one vector, a warp or less a row, several rows a block, a block a row,
// ragged ends, odd widths, rows too long for registers.
INSTANTIATE_TEST_SUITE_P(Widths, Simt,
                         testing::Values(TileCase{1, "f32", 1, 1}, TileCase{3, "bf16", 1, 5},
                                         TileCase{64, "bf16", 3, 7}, TileCase{128, "f16", 5, 9},
                                         TileCase{1000, "bf16", 2, 2}, TileCase{4095, "bf16", 1, 3},
                                         TileCase{4096, "bf16", 2, 2}, TileCase{1536, "f32", 2, 2},
                                         TileCase{70000, "bf16", 1, 2}),
                         [](const auto& info) { return fmt::format("{}{}", info.param.dtype, info.param.columns); });

const Symbols kFewRows{{"r0", 5}, {"r1", 7}};
std::string rowOf(const std::string& dtype) {
  return tile(1, dtype);
}

TEST(SimtValues, LargestAndSmallest) {
  for (int64_t columns : {3, 100, 1536}) {
    const std::string t = tile(columns, "f32"), r = rowOf("f32");
    check(graphOf(fmt::format("(%x: {0}) -> ({0}, {1})", t, r),
                  fmt::format("%0 = cermet.reduce_max %x : {0} to {1}\n%1 = cermet.reduce_min %x : {0} to {1}\n"
                              "%2 = cermet.broadcast %0 : {1} to {0}\n%3 = cermet.sub %x, %2 : {0}\n"
                              "return %3, %1 : {0}, {1}\n",
                              t, r)),
          kFewRows);
  }
}

TEST(SimtValues, Softmax) {
  const std::string t = tile(200, "f32"), r = rowOf("f32");
  const std::string text =
      graphOf(fmt::format("(%x: {0}) -> {0}", t),
              fmt::format("%0 = cermet.reduce_max %x : {0} to {1}\n%1 = cermet.broadcast %0 : {1} to {0}\n"
                          "%2 = cermet.sub %x, %1 : {0}\n%3 = cermet.exp %2 : {0}\n"
                          "%4 = cermet.reduce_sum %3 : {0} to {1}\n%5 = cermet.broadcast %4 : {1} to {0}\n"
                          "%6 = cermet.div %3, %5 : {0}\nreturn %6 : {0}\n",
                          t, r));
  check(text, kFewRows);
  check(gradient(text, {1})["backward"], kFewRows);
}

// Divided by the largest of its row, whatever that is: the reciprocal of a number from 2^126 on, or of one that is not
// normal, is none.
TEST(SimtValues, DividedByARowsNumberOfAnySize) {
  const std::string h = tile(200, "bf16"), t = tile(200, "f32"), r = rowOf("f32");
  for (const char* size : {"4.0E+37", "1.0", "1.0E-41"})
    check(graphOf(fmt::format("(%x: {0}) -> {0}", h),
                  fmt::format("%0 = cermet.cast %x : {0} to {1}\n%1 = cermet.constant {3} : {1}\n"
                              "%2 = cermet.mul %0, %1 : {1}\n%3 = cermet.abs %2 : {1}\n"
                              "%4 = cermet.reduce_max %3 : {1} to {2}\n%5 = cermet.broadcast %4 : {2} to {1}\n"
                              "%6 = cermet.div %2, %5 : {1}\n%7 = cermet.cast %6 : {1} to {0}\nreturn %7 : {0}\n",
                              h, t, r, size)),
          kFewRows);
}

TEST(SimtValues, Conditions) {
  const std::string t = tile(48, "bf16"), b = tile(48, "i1");
  check(graphOf(fmt::format("(%x: {0}, %y: {0}, %m: {1}) -> ({0}, {1})", t, b),
                fmt::format("%0 = cermet.compare \"lt\", %x, %y : {0} to {1}\n%1 = cermet.min %0, %m : {1}\n"
                            "%2 = cermet.select %1, %x, %y : {1}, {0}\nreturn %2, %1 : {0}, {1}\n",
                            t, b)),
        kFewRows);
}

TEST(SimtValues, IntegersOfEveryWidth) {
  for (const ElementType& type : kElementTypes) {
    if (type.format.valueClass != ValueClass::Integer)
      continue;
    SCOPED_TRACE(type.name);
    const std::string t = tile(40, type.graphName), f = tile(40, "f32");
    check(
        graphOf(fmt::format("(%x: {0}, %y: {0}) -> ({0}, {1})", t, f),
                fmt::format("%0 = cermet.mul %x, %y : {0}\n%1 = cermet.sub %0, %y : {0}\n%2 = cermet.max %1, %x : {0}\n"
                            "%3 = cermet.cast %x : {0} to {1}\nreturn %2, %3 : {0}, {1}\n",
                            t, f)),
        kFewRows);
  }
}

// Over all their exponents, rounded exactly once, and back.
TEST(SimtValues, FloatsOfEightBits) {
  const std::string f = tile(64, "f32"), a = tile(64, "f8E4M3FN"), b = tile(64, "f8E5M2"), h = tile(64, "bf16");
  const std::string text =
      graphOf(fmt::format("(%x: {0}, %p: {1}, %q: {2}) -> ({0}, {1}, {2}, {3}, {0})", f, a, b, h),
              fmt::format("%0 = cermet.iota 2 : {0}\n%1 = cermet.constant -32.0 : {0}\n%2 = cermet.add %0, %1 : {0}\n"
                          "%3 = cermet.constant 2.0 : {0}\n%4 = cermet.pow %3, %2 : {0}\n%5 = cermet.mul %x, %4 : {0}\n"
                          "%6 = cermet.cast %5 : {0} to {1}\n%7 = cermet.cast %5 : {0} to {2}\n"
                          "%8 = cermet.cast %p : {1} to {3}\n%9 = cermet.cast %q : {2} to {0}\n"
                          "return %5, %6, %7, %8, %9 : {0}, {1}, {2}, {3}, {0}\n",
                          f, a, b, h));
  const Plan plan = planOf(text);
  const PlanKernels kernels(plan);
  const Outcome run = runPlan(plan, kernels, kFewRows, PlanOptions(), Layout());
  ASSERT_EQ(run.machineError, "");
  const std::vector<double> scaled = run.tensors[3].values();
  for (int output : {4, 5}) {
    const cermet_dtype dtype = run.tensors[output].dtype;
    const std::vector<double> have = run.tensors[output].values();
    for (size_t i = 0; i < scaled.size(); ++i)
      ASSERT_EQ(have[i], roundTo(dtype, scaled[i])) << scaled[i];
  }
  EXPECT_EQ(run.tensors[6].values(), run.tensors[1].values());
  EXPECT_EQ(run.tensors[7].values(), run.tensors[2].values());
}

// Eight bits with a scale for each row, to bf16 and to eight bits with another scale.
TEST(SimtValues, RowsAreQuantisedAgain) {
  for (int64_t columns : {24, 100, 1536}) {
    const std::string f = tile(columns, "f32"), a = tile(columns, "f8E4M3FN"), r = rowOf("f32"),
                      h = tile(columns, "bf16");
    const std::string text =
        graphOf(fmt::format("(%x: {1}, %y: {3}, %s: {2}) -> ({1}, {2}, {3})", f, a, r, h),
                fmt::format("%0 = cermet.cast %x : {1} to {0}\n%1 = cermet.broadcast %s : {2} to {0}\n"
                            "%2 = cermet.mul %0, %1 : {0}\n%3 = cermet.cast %2 : {0} to {3}\n"
                            "%4 = cermet.add %3, %y : {3}\n%5 = cermet.cast %4 : {3} to {0}\n"
                            "%6 = cermet.abs %5 : {0}\n%7 = cermet.reduce_max %6 : {0} to {2}\n"
                            "%8 = cermet.constant 448.0 : {2}\n%9 = cermet.div %7, %8 : {2}\n"
                            "%10 = cermet.broadcast %9 : {2} to {0}\n%11 = cermet.div %5, %10 : {0}\n"
                            "%12 = cermet.cast %11 : {0} to {1}\nreturn %12, %9, %4 : {1}, {2}, {3}\n",
                            f, a, r, h));
    check(text, kFewRows);
    check(gradient(text, {1, 1, 0})["backward"], kFewRows);
  }
}

// A product with 1 leaves the memory alone that it goes to: a NaN that arithmetic would make a quiet one stays.
TEST(SimtValues, AProductInItsOwnMemory) {
  const std::string t = "tensor<?x24xbf16, #cermet.symbols<[\"r0\"]>>",
                    f = "tensor<?x24xf32, #cermet.symbols<[\"r0\"]>>";
  const Plan plan =
      planOf(graphOf(fmt::format("(%x: {0}, %s: tensor<f32>) -> {0}", t),
                     fmt::format("%0 = cermet.cast %x : {0} to {1}\n%1 = cermet.broadcast %s : tensor<f32> to {1}\n"
                                 "%2 = cermet.mul %0, %1 : {1}\n%3 = cermet.cast %2 : {1} to {0}\nreturn %3 : {0}\n",
                                 t, f)));
  const PlanKernels kernels(plan);
  for (float scale : {1.0f, 0.5f}) {
    std::vector<uint16_t> values(7 * 24, 0x4040), other(values.size()); // 3
    values[5] = 0x7f81;
    const int64_t sizes[] = {7, 24}, strides[] = {24, 1};
    const auto tensor = [&](std::vector<uint16_t>& memory) {
      return cermet_tensor{memory.data(), sizes, strides, 2, CERMET_BF16};
    };
    const cermet_tensor number{&scale, nullptr, nullptr, 0, CERMET_F32};
    ASSERT_EQ(run(plan, kernels, {tensor(values), number, tensor(other)}, PlanOptions()), "");
    ASSERT_EQ(run(plan, kernels, {tensor(values), number, tensor(values)}, PlanOptions()), "");
    EXPECT_EQ(values[0], scale == 1 ? 0x4040 : 0x3fc0);
    EXPECT_EQ(values[0], other[0]);
    EXPECT_EQ(values[5] == 0x7f81, scale == 1);
    EXPECT_NE(other[5], 0x7f81);
  }
}

TEST(SimtValues, AStridedOperand) {
  const std::string t = tile(33, "f16");
  for (int64_t step : {1, 2, 5})
    check(graphOf(fmt::format("(%x: {0} {{cermet.strides = array<i64: -1, -1, -1>}}, %y: {0}) -> {0}", t),
                  fmt::format("%0 = cermet.mul %x, %y : {0}\nreturn %0 : {0}\n", t)),
          kFewRows, step);
}

TEST(SimtValues, AnIndexOperand) {
  const std::string t = tile(16, "f32"), i = tile(16, "i64"), b = tile(16, "i1");
  check(graphOf(fmt::format("(%x: {0}) -> {0}", t),
                fmt::format("%0 = cermet.iota 1 : {1}\n%1 = cermet.iota 2 : {1}\n"
                            "%2 = cermet.compare \"ge\", %0, %1 : {1} to {2}\n%3 = cermet.constant -1.0e4 : {0}\n"
                            "%4 = cermet.select %2, %x, %3 : {2}, {0}\nreturn %4 : {0}\n",
                            t, i, b)),
        kFewRows);
}

TEST(SimtValues, ViewsAndPartsOfOneTensor) {
  const std::string whole = tile(64, "bf16"), half = tile(32, "bf16");
  check(
      graphOf(fmt::format("(%x: {0}) -> {0}", whole),
              fmt::format("%0 = cermet.slice %x [0, 0, 0] : {0} to {1}\n%1 = cermet.slice %x [0, 0, 32] : {0} to {1}\n"
                          "%2 = cermet.neg %1 : {1}\n%3 = cermet.concat %2, %0 {{dim = 2 : i64}} : {1}, {1} to {0}\n"
                          "return %3 : {0}\n",
                          whole, half)),
      kFewRows);
}

// Sums of rows by parts of a list, some of them of nothing: alone, added to a tensor, normed, summed over rows where
// copies are staged.
TEST(SimtValues, EmbeddingBags) {
  for (int64_t columns : {3, 64, 1536}) {
    SCOPED_TRACE(columns);
    const std::string t = fmt::format("tensor<?x{}xbf16, #cermet.symbols<[\"r0\"]>>", columns),
                      f = fmt::format("tensor<?x{}xf32, #cermet.symbols<[\"r0\"]>>", columns),
                      sums = fmt::format("tensor<{}xf32>", columns), w = fmt::format("tensor<{}xbf16>", columns),
                      list = "tensor<?xui8, #cermet.symbols<[\"m\"]>>",
                      bounds = "tensor<?xi8, #cermet.symbols<[\"r0\"]>>",
                      table = fmt::format("tensor<?x{}xbf16, #cermet.symbols<[\"n\"]>>", columns),
                      given = fmt::format("%x: {}, %i: {}, %b: {}, %e: {}", table, list, bounds, bounds),
                      strided = fmt::format("%x: {} {{cermet.strides = array<i64: -1, -1>}}, %i: {}, %b: {}, %e: {}",
                                            table, list, bounds, bounds),
                      bag = fmt::format("%0 = cermet.embedding_bag %x, %i, %b, %e : {}, {}, {} to {}\n", table, list,
                                        bounds, t);
    const Symbols symbols{{"r0", 35}, {"m", 90}, {"n", 254}};
    // The sums of parts are drawn, too, and fewer than there could be: what is taken of them shows.
    const std::string parts = fmt::format("tensor<?x{}xf32, #cermet.symbols<[\"p\"]>>", columns);
    for (int64_t count : {1, 2})
      check(graphOf(fmt::format("({}, %s: {}) -> {}", given, parts, f),
                    fmt::format("%0 = cermet.embedding_bag %x, %i, %b, %e sums %s : {}, {}, {} sums {} to {}\n"
                                "return %0 : {}\n",
                                table, list, bounds, parts, f, f)),
            Symbols{{"r0", 128}, {"m", 300}, {"n", 254}, {"p", count}});
    check(graphOf(fmt::format("({}) -> {}", given, t), bag + fmt::format("return %0 : {}\n", t)), symbols);
    check(graphOf(fmt::format("({}, %y: {}) -> {}", strided, t, t),
                  bag + fmt::format("%1 = cermet.add %0, %y : {0}\nreturn %1 : {0}\n", t)),
          symbols, 3);
    check(graphOf(fmt::format("({}, %w: {}) -> {}", given, w, t),
                  bag + fmt::format("%1 = cermet.rms_norm %0, %w {{eps = 1.0e-6, round_before_weight}} : {0}, {1} to "
                                    "{0}\nreturn %1 : {0}\n",
                                    t, w)),
          symbols);
    check(graphOf(fmt::format("({}, %y: {}) -> {}", given, t, sums),
                  bag + fmt::format("%1 = cermet.mul %0, %y : {0}\n%2 = cermet.cast %1 : {0} to {1}\n"
                                    "%3 = cermet.sum_rows %2 : {1} to {2}\nreturn %3 : {2}\n",
                                    t, f, sums)),
          symbols);
  }
}

// Rows of a table by numbers of which some are no row's: elementwise, normed, summed over rows where copies are staged.
TEST(SimtValues, GatheredRows) {
  for (int64_t columns : {3, 64, 1536}) {
    SCOPED_TRACE(columns);
    const std::string t = tile(columns, "bf16"), f = tile(columns, "f32"), b = tile(columns, "i1"),
                      sums = fmt::format("tensor<{}xf32>", columns), w = fmt::format("tensor<{}xbf16>", columns),
                      ids = "tensor<?x?xi8, #cermet.symbols<[\"r0\", \"r1\"]>>",
                      table = fmt::format("tensor<?x{}xbf16, #cermet.symbols<[\"v\"]>>", columns);
    const std::string body =
        fmt::format("%0 = cermet.gather %x, %i : {0}, {1} to {2}\n%1 = cermet.compare \"eq\", %0, %0 : {2} to {3}\n"
                    "%2 = cermet.constant 0.5 : {2}\n%3 = cermet.select %1, %0, %2 : {3}, {2}\n",
                    table, ids, t, b);
    const Symbols symbols{{"r0", 5}, {"r1", 7}, {"v", 40}};
    check(graphOf(fmt::format("(%x: {0}, %i: {1}) -> {2}", table, ids, t), body + fmt::format("return %3 : {}\n", t)),
          symbols);
    check(graphOf(fmt::format("(%x: {0} {{cermet.strides = array<i64: -1, -1>}}, %i: {1}) -> {2}", table, ids, t),
                  body + fmt::format("return %3 : {}\n", t)),
          symbols, 3);
    check(graphOf(
              fmt::format("(%x: {0}, %i: {1}, %w: {2}) -> {3}", table, ids, w, t),
              body + fmt::format("%4 = cermet.rms_norm %3, %w {{eps = 1.0e-6, round_before_weight}} : {0}, {1} to {0}\n"
                                 "return %4 : {0}\n",
                                 t, w)),
          symbols);
    const std::string summed =
        graphOf(fmt::format("(%x: {0}, %i: {1}, %g: {2}) -> {3}", table, ids, f, sums),
                body + fmt::format("%4 = cermet.cast %3 : {0} to {1}\n%5 = cermet.mul %4, %g : {1}\n"
                                   "%6 = cermet.sum_rows %5 : {1} to {2}\nreturn %6 : {2}\n",
                                   t, f, sums));
    check(summed, symbols);
    KernelSpec spec;
    ASSERT_EQ(parse(planOf(summed).steps[0].spec, spec), "");
    EXPECT_EQ(spec.programs[0].schedule.stages > 0, columns > 3);
  }
}

//===--- Programs side by side ------------------------------------------------------------------------------------===//

// Queries of four heads and keys of two by a factor that they share, elementwise or after a norm of their own; a third
// program shares it with them. `s` and `t` are their tokens.
std::string besideGraph(int64_t columns, const std::string& dtype, bool isNormed) {
  const auto of = [&](int heads, const std::string& tokens) {
    const std::string symbol = tokens.empty() ? "" : fmt::format(", \"{}\"", tokens);
    return fmt::format("tensor<?x{}x{}x{}x{}, #cermet.symbols<[\"b\"{}]>>", heads, tokens.empty() ? "1" : "?", columns,
                       dtype, symbol);
  };
  const std::string q = of(4, "s"), k = of(2, "t"), v = of(3, ""), c = of(1, ""),
                    w = fmt::format("tensor<{}x{}>", columns, dtype);
  std::string body;
  for (const auto& [name, type] : {std::pair{"q", q}, {"k", k}, {"v", v}}) {
    if (isNormed)
      body += fmt::format("%n{0} = cermet.rms_norm %{0}, %w {{eps = 1.0e-6, round_before_weight}} : {1}, {2} to {1}\n",
                          name, type, w);
    body += fmt::format("%c{0} = cermet.broadcast %c : {1} to {2}\n%r{0} = cermet.mul %{3}{0}, %c{0} : {2}\n", name, c,
                        type, isNormed ? "n" : "");
  }
  return graphOf(fmt::format("(%q: {0}, %k: {1}, %v: {2}, %c: {3}, %w: {4}) -> ({0}, {1}, {2})", q, k, v, c, w),
                 body + fmt::format("return %rq, %rk, %rv : {}, {}, {}\n", q, k, v));
}

TEST(SimtBeside, ProgramsOfTheirOwnRows) {
  for (bool isNormed : {false, true})
    for (const auto& [columns, dtype] : {std::pair<int64_t, const char*>{64, "bf16"}, {3, "f32"}, {200, "f16"}}) {
      const std::string text = besideGraph(columns, dtype, isNormed);
      SCOPED_TRACE(text);
      const Plan plan = planOf(text);
      ASSERT_EQ(plan.steps.size(), 1u);
      ASSERT_EQ(plan.steps[0].programs.size(), 3u);
      check(text, {{"b", 2}, {"s", 5}, {"t", 7}});
      check(text, {{"b", 2}, {"s", 5}, {"t", 7}}, 1, true);
    }
}

// Rotary position embedding of queries and keys that lie as [tokens, heads]: one launch.
TEST(SimtBeside, QueriesAndKeysAreTurned) {
  const auto of = [](int heads, int64_t columns) {
    return fmt::format("tensor<?x{}x?x{}xbf16, #cermet.symbols<[\"b\", \"s\"]>>", heads, columns);
  };
  const std::string q = of(4, 64), k = of(2, 64), c = of(1, 64);
  std::string body;
  for (const auto& [name, heads] : {std::pair{"q", 4}, {"k", 2}})
    body += fmt::format("%cos{0} = cermet.broadcast %cos : {3} to {1}\n%sin{0} = cermet.broadcast %sin : {3} to {1}\n"
                        "%plain{0} = cermet.mul %{0}, %cos{0} : {1}\n"
                        "%low{0} = cermet.slice %{0} [0, 0, 0, 0] : {1} to {2}\n"
                        "%high{0} = cermet.slice %{0} [0, 0, 0, 32] : {1} to {2}\n"
                        "%negated{0} = cermet.neg %high{0} : {2}\n"
                        "%rotated{0} = cermet.concat %negated{0}, %low{0} {{dim = 3 : i64}} : {2}, {2} to {1}\n"
                        "%turned{0} = cermet.mul %rotated{0}, %sin{0} : {1}\n"
                        "%new{0} = cermet.add %plain{0}, %turned{0} : {1}\n",
                        name, of(heads, 64), of(heads, 32), c);
  const std::string text = graphOf(fmt::format("(%q: {0}, %k: {1}, %cos: {2}, %sin: {2}) -> ({0}, {1})", q, k, c),
                                   body + fmt::format("return %newq, %newk : {}, {}\n", q, k));
  const Plan plan = planOf(text);
  ASSERT_EQ(plan.steps.size(), 1u);
  ASSERT_EQ(plan.steps[0].programs.size(), 2u);
  for (bool isSwapped : {false, true})
    check(text, {{"b", 2}, {"s", 5}}, 1, isSwapped);
}

TEST(SimtBeside, AProgramWithoutRows) {
  for (bool isNormed : {false, true}) {
    const std::string text = besideGraph(64, "bf16", isNormed);
    check(text, {{"b", 2}, {"s", 0}, {"t", 7}});
    check(text, {{"b", 2}, {"s", 5}, {"t", 0}});
    check(text, {{"b", 0}, {"s", 5}, {"t", 7}});
  }
}

// An index goes with its rows when they are walked in another order than the graph's.
TEST(SimtValues, AnIndexOfRowsThatLieInAnotherOrder) {
  const std::string t = "tensor<?x3x?x16xf32, #cermet.symbols<[\"b\", \"s\"]>>",
                    i = "tensor<?x3x?x16xi64, #cermet.symbols<[\"b\", \"s\"]>>";
  for (int dim : {0, 1, 2})
    check(graphOf(fmt::format("(%x: {0}) -> {0}", t),
                  fmt::format("%0 = cermet.iota {0} : {2}\n%1 = cermet.cast %0 : {2} to {1}\n"
                              "%2 = cermet.mul %x, %1 : {1}\nreturn %2 : {1}\n",
                              dim, t, i)),
          {{"b", 2}, {"s", 5}}, 1, true);
}

// Random numbers are those of the graph's rows, in whatever order these are walked; of symbolic columns, too.
TEST(SimtValues, RandomNumbersOfRowsThatLieInAnotherOrder) {
  for (const char* columns : {"16", "?"}) {
    const std::string shape = fmt::format("?x3x?x{}", columns),
                      symbols = columns[0] == '?' ? ", #cermet.symbols<[\"b\", \"s\", \"c\"]>"
                                                  : ", #cermet.symbols<[\"b\", \"s\"]>",
                      t = fmt::format("tensor<{}xf32{}>", shape, symbols),
                      i = fmt::format("tensor<{}xi64{}>", shape, symbols),
                      k = fmt::format("tensor<{}xi1{}>", shape, symbols);
    check(graphOf(fmt::format("(%x: {0}, %s: tensor<1xi64>) -> {0}", t),
                  fmt::format("%0 = cermet.random %s : tensor<1xi64> to {1}\n%1 = cermet.constant 2147483648.0 : {1}\n"
                              "%2 = cermet.compare \"ge\", %0, %1 : {1} to {2}\n%3 = cermet.constant 2.0 : {0}\n"
                              "%4 = cermet.constant 0.0 : {0}\n%5 = cermet.select %2, %3, %4 : {2}, {0}\n"
                              "%6 = cermet.mul %x, %5 : {0}\nreturn %6 : {0}\n",
                              t, i, k)),
          {{"b", 2}, {"s", 5}, {"c", 7}}, 1, true);
  }
}

} // namespace
} // namespace cermet::simt
