// Where matching groups what compiling groups, and where a region ends though a plan of the whole would go on: at what
// compiling moves through operations or makes of them, of which no node of a frontend's graph is the original.
#include "compiler/Queries.h"
#include "compiler/plan/Plan.h"
#include "compiler/program/Dump.h"
#include "tests/unit/compiler/GraphTexts.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

using namespace cermet;
using namespace cermet::tests;
using nlohmann::json;

namespace {

size_t kernelsOf(const std::string& text) {
  std::string answer, error;
  EXPECT_EQ(compileGraph(text, "sm_90", Dump(), answer, error), CERMET_OK) << error << text;
  return answer.empty() ? 0 : json::parse(answer)["steps"].size();
}

std::vector<std::string> regionsOf(const std::string& text) {
  std::string answer, error;
  EXPECT_EQ(matchGraph(text, Dump(), answer, error), CERMET_OK) << error << text;
  std::vector<std::string> result;
  for (const json& region : answer.empty() ? json::array() : json::parse(answer)["regions"])
    result.push_back(region["pattern"]);
  return result;
}

// neg, then `between`, then exp, each a node of its own.
std::string chain(const std::string& between, const std::vector<std::string>& to) {
  const std::string x = tensor({"2", "64", "8", "64"}, "f32"), y = tensor(to, "f32");
  return graph("f", "%x: " + x + " loc(\"x\")", y,
               "    %n = cermet.neg %x : " + x + " loc(\"neg\")\n    %m = " + fmt::format(fmt::runtime(between), x, y) +
                   " loc(\"between\")\n    %y = cermet.exp %m : " + y + " loc(\"exp\")\n    return %y : " + y + "\n");
}

TEST(Clusters, MatchingGroupsWhatCompilingDoes) {
  for (const std::string& text : {chain("cermet.abs %n : {0}", {"2", "64", "8", "64"}),
                                  chain("cermet.reshape %n : {0} to {1}", {"128", "8", "64"})}) {
    EXPECT_EQ(kernelsOf(text), 1u) << text;
    EXPECT_EQ(regionsOf(text), std::vector<std::string>{"cluster"}) << text;
  }
}

TEST(Clusters, ButEndsWhereCompilingMovesTransposes) {
  const std::string text = chain("cermet.transpose %n [0, 2, 1, 3] : {0} to {1}", {"2", "8", "64", "64"});
  EXPECT_EQ(kernelsOf(text), 1u) << text;
  EXPECT_EQ(regionsOf(text), std::vector<std::string>()) << text;
}

// Of two products that are both read, the second would read the first from the chip: five tensors where it was six.
TEST(Clusters, WhatDoesNotGainEnoughIsANearMiss) {
  const std::string x = tensor({"64", "256"}, "f32");
  const std::string text =
      graph("f", "%x: " + x + ", %y: " + x + ", %z: " + x, x + ", " + x,
            "    %a = cermet.mul %x, %y : " + x + " loc(\"a\")\n    %b = cermet.mul %a, %z : " + x +
                " loc(\"b\")\n    return %a, %b : " + x + ", " + x + "\n");
  EXPECT_EQ(regionsOf(text), std::vector<std::string>());
  std::string answer, error;
  ASSERT_EQ(matchGraph(text, Dump(), answer, error), CERMET_OK) << error;
  const json misses = json::parse(answer)["near_misses"];
  ASSERT_EQ(misses.size(), 1u) << answer;
  EXPECT_EQ(misses[0]["at"], "b");
  EXPECT_EQ(misses[0]["condition"],
            "one kernel moves 327680 bytes where its operations move 393216, expected at most 80 %");
}

} // namespace
