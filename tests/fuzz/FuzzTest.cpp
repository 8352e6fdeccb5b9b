// The controls: a defect in one operation must be found among random graphs and made small, and what is printed must
// repeat it.
#include "tests/fuzz/Shrink.h"
#include <gtest/gtest.h>

namespace cermet::fuzz {
namespace {

constexpr ShrinkLimits kLimits{.trials = 200};

// The first failure of graphs that the compiler is given with `from` for `to`, after shrinking.
std::pair<Case, Failure> planted(const std::string& from, const std::string& to, int operations,
                                 bool gradient = false) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Case made;
    made.seed = seed;
    made.gradient = gradient;
    RandomGraph graph = randomGraph(seed, {operations, gradient});
    if (graph.text.find(from) == std::string::npos)
      continue;
    made.text = graph.text;
    made.sizes = graph.sizes;
    made.plant = {from, to};
    auto once = [](const Case& given) { return checkApart(given); };
    if (Failure failure = once(made); failure.kind == "numbers") {
      Case small = shrink(made, failure, once, kLimits);
      return {small, failure};
    }
  }
  return {};
}

TEST(FuzzControl, AWrongFunctionIsFoundAndShrunk) {
  auto [small, failure] = planted("cermet.tanh ", "cermet.erf ", 15);
  ASSERT_EQ(failure.kind, "numbers") << "nothing was found";
  EXPECT_LE(operationCount(small.text), 2) << small.text;
  EXPECT_NE(small.text.find("cermet.tanh"), std::string::npos) << small.text;
  small.plant = {};
  int compared = 0;
  EXPECT_EQ(check(small, compared).message, "");
  EXPECT_EQ(compared, 1);
}

TEST(FuzzControl, AWrongReductionIsFoundAndShrunk) {
  auto [small, failure] = planted("cermet.reduce_max ", "cermet.reduce_min ", 15);
  ASSERT_EQ(failure.kind, "numbers") << "nothing was found";
  EXPECT_LE(operationCount(small.text), 2) << small.text;
}

TEST(FuzzControl, AWrongComparisonIsFoundAndShrunk) {
  auto [small, failure] = planted("compare \"lt\"", "compare \"le\"", 15);
  ASSERT_EQ(failure.kind, "numbers") << "nothing was found";
  EXPECT_LE(operationCount(small.text), 3) << small.text;
}

// One element in a hundred that differs by a rounding of its type is not enough to see; a lost digit is.
TEST(FuzzControl, AnApproximationIsFoundInFullPrecision) {
  Case given;
  given.text = "module attributes {cermet.version = 1 : i64} {\n"
               "  func.func @f(%x0: tensor<9x33xf32>) -> tensor<9x33xf32> {\n"
               "    %0 = cermet.gelu %x0 : tensor<9x33xf32>\n    return %0 : tensor<9x33xf32>\n  }\n}\n";
  given.sizes.emplace_back();
  int compared = 0;
  EXPECT_EQ(check(given, compared).message, "");
  given.plant = {"cermet.gelu ", "cermet.gelu_tanh "};
  EXPECT_EQ(check(given, compared).kind, "numbers");
}

// Far out a kernel's gelu_tanh is off by what its argument was rounded by, tens of units in the last place; not by
// more.
TEST(FuzzControl, ATailIsAsFarOffAsItsArgument) {
  Case given;
  given.text = "module attributes {cermet.version = 1 : i64} {\n"
               "  func.func @f(%whole0: tensor<1xf32>) -> tensor<1xf32> {\n"
               "    %0 = cermet.constant 0.0 : tensor<1xf32>\n    %1 = cermet.mul %whole0, %0 : tensor<1xf32>\n"
               "    %2 = cermet.constant 8.0 : tensor<1xf32>\n    %3 = cermet.sub %1, %2 : tensor<1xf32>\n"
               "    %4 = cermet.gelu_tanh %3 : tensor<1xf32>\n    return %4 : tensor<1xf32>\n  }\n}\n";
  given.sizes.emplace_back();
  given.host = false;
  given.simt = true;
  int compared = 0;
  EXPECT_EQ(check(given, compared).message, "");
  given.plant = {"8.0", "8.00001"};
  EXPECT_EQ(check(given, compared).kind, "numbers");
}

TEST(FuzzControl, ACrashIsAFailureLikeAnother) {
  Case given;
  given.text = "not a graph";
  given.sizes.emplace_back();
  EXPECT_EQ(checkApart(given).kind, "compile");
}

// One that takes a check's whole time in each trial is printed as it is, not made small for ever.
TEST(FuzzControl, AFailureIsMadeSmallForALimitedTime) {
  Case given;
  given.text = randomGraph(1, {}).text;
  given.sizes = {{}, {}};
  int checked = 0;
  auto failing = [&](const Case&) {
    ++checked;
    return Failure{"crash", "Alarm clock"};
  };
  Failure failure = failing(given);
  EXPECT_EQ(shrink(given, failure, failing, {.seconds = 0}).text, given.text);
  EXPECT_EQ(checked, 1);
  EXPECT_LT(shrink(given, failure, failing, {}).text.size(), given.text.size());
}

TEST(FuzzGenerator, AGraphIsItsSeed) {
  for (uint64_t seed : {1, 2, 3}) {
    RandomGraph first = randomGraph(seed, {}), second = randomGraph(seed, {});
    EXPECT_EQ(first.text, second.text);
    EXPECT_EQ(first.sizes, second.sizes);
  }
}

TEST(FuzzGenerator, EveryOperationIsDrawn) {
  std::string all;
  for (uint64_t seed = 1; seed <= 300; ++seed)
    all += randomGraph(seed, {}).text;
  for (const char* operation :
       {"add",        "sub",        "mul",      "div",       "pow",       "max",     "min",    "neg",
        "abs",        "exp",        "log",      "sqrt",      "rsqrt",     "tanh",    "erf",    "relu",
        "sigmoid",    "softplus",   "silu",     "gelu",      "gelu_tanh", "compare", "select", "cast",
        "constant",   "broadcast",  "reshape",  "transpose", "slice",     "concat",  "iota",   "reduce_sum",
        "reduce_max", "reduce_min", "sum_rows", "random",    "cumsum"})
    EXPECT_NE(all.find(std::string("cermet.") + operation + " "), std::string::npos) << operation;
}

} // namespace
} // namespace cermet::fuzz
