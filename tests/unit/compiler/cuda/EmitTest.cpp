// What the text of a kernel says of how exactly it computes.
#include "compiler/cuda/Emit.h"
#include "compiler/plan/Plan.h"
#include "compiler/program/Dump.h"
#include "compiler/program/Schedule.h"
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

using namespace cermet;

namespace {

// exp(x + more) / row, of which rows of `result` are stored; with the rows' sums in f32, too, where `sums`.
std::string program(const std::string& more, const std::string& result, bool sums = false) {
  const auto rows = [](const std::string& element) {
    return fmt::format("tensor<?x1024x{}, #cermet.symbols<[\"rows\"]>>", element);
  };
  const std::string wide = rows("f32"), sum = "tensor<?x1xf32, #cermet.symbols<[\"rows\"]>>";
  const auto cast = [&](const char* to, const char* from, const std::string& element) {
    return fmt::format("    {} = cermet.cast {} : {} to {}\n", to, from, rows(element), wide);
  };
  std::string text = fmt::format("module attributes {{cermet.version = 1 : i64}} {{\n  func.func @f(%x: {}, %more: {}, "
                                 "%row: {}) -> ({}{}) {{\n",
                                 rows("bf16"), rows(more), sum, rows(result), sums ? ", " + sum : "");
  text += cast("%0", "%x", "bf16");
  if (more != "f32")
    text += cast("%1", "%more", more);
  text += fmt::format("    %2 = cermet.add %0, {} : {}\n    %3 = cermet.exp %2 : {}\n", more == "f32" ? "%more" : "%1",
                      wide, wide);
  text += fmt::format("    %4 = cermet.broadcast %row : {} to {}\n    %5 = cermet.div %3, %4 : {}\n", sum, wide, wide);
  if (result != "f32")
    text += fmt::format("    %6 = cermet.cast %5 : {} to {}\n", wide, rows(result));
  if (sums)
    text += fmt::format("    %7 = cermet.reduce_sum %3 : {} to {}\n", wide, sum);
  text += fmt::format("    return {}{} : {}{}\n  }}\n}}\n", result == "f32" ? "%5" : "%6", sums ? ", %7" : "",
                      rows(result), sums ? ", " + sum : "");
  return text;
}

std::string cuda(const std::string& text) {
  std::string answer, error;
  EXPECT_EQ(compileGraph(text, "sm_90", Dump(), answer, error), CERMET_OK) << error << text;
  const nlohmann::json plan = nlohmann::json::parse(answer);
  KernelSpec spec;
  EXPECT_EQ(plan["steps"].size(), 1U);
  EXPECT_EQ(parse(plan["steps"][0]["spec"].get<std::string>(), spec), "");
  const std::string all = emitCuda(spec);
  return all.substr(all.find("struct Program")); // behind the prelude, which defines all functions
}

struct Grade {
  bool exponential, division; // whether it is the fast one
};

Grade grade(const std::string& text) {
  const std::string kernel = cuda(text);
  const auto has = [&](const char* call) { return kernel.find(call) != std::string::npos; };
  EXPECT_NE(has("fast_exp"), has("exact_exp"));
  EXPECT_NE(has("fast_row_divide("), has("exact_divide"));
  return {has("fast_exp"), has("exact_divide") == false};
}

TEST(Emit, WhatIsRoundedIsComputedFastWhateverItReads) {
  for (const auto& [more, result] : {std::pair("bf16", "bf16"), std::pair("f32", "bf16"), std::pair("f32", "f16")}) {
    EXPECT_TRUE(grade(program(more, result)).exponential) << more << result;
    EXPECT_TRUE(grade(program(more, result)).division) << more << result;
  }
}

TEST(Emit, WhatIsStoredInF32IsComputedExactly) {
  for (const char* more : {"bf16", "f32"}) {
    EXPECT_FALSE(grade(program(more, "f32")).exponential) << more;
    EXPECT_FALSE(grade(program(more, "f32")).division) << more;
  }
}

TEST(Emit, OnlyWhatIsStoredInF32IsComputedExactly) {
  const Grade both = grade(program("f32", "bf16", /*sums=*/true)); // of exponentials
  EXPECT_FALSE(both.exponential);
  EXPECT_TRUE(both.division);
}

TEST(Emit, SumsBesideNarrowTilesAreFast) {
  EXPECT_TRUE(grade(program("bf16", "bf16", /*sums=*/true)).exponential);
}

} // namespace
