// Matching groups what compiling groups: also where compiling moves operations, or reads what they make elsewhere.
#include "compiler/Queries.h"
#include "compiler/plan/Plan.h"
#include "compiler/program/Dump.h"
#include "tests/unit/compiler/GraphTexts.h"
#include "tests/unit/compiler/plan/Plans.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

using namespace cermet;
using namespace cermet::tests;
using nlohmann::json;

namespace {

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
                                  chain("cermet.reshape %n : {0} to {1}", {"128", "8", "64"}),
                                  chain("cermet.transpose %n [0, 2, 1, 3] : {0} to {1}", {"2", "8", "64", "64"})}) {
    EXPECT_EQ(kernelsOf(text), 1) << text;
    EXPECT_EQ(regionsOf(text), std::vector<std::string>{"cluster"}) << text;
  }
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

// A frontend's own kernel reads what is repeated number by number; what is as large as the result it reads as a copy
// does.
TEST(Clusters, AProductWithWhatIsRepeatedIsAKernelByItself) {
  const auto product = [](const std::string& rows, const std::string& factor) {
    const std::string x = tensor({rows, "256"}, "f32");
    return fmt::format(
        "module attributes {{cermet.version = 1 : i64, cermet.no_gradient}} {{\n  func.func @f(%x: {0} "
        "loc(\"x\"), %y: {1} loc(\"y\")) -> {0} {{\n    %w = cermet.broadcast %y : {1} to {0} loc(\"mul\")"
        "\n    %m = cermet.mul %x, %w : {0} loc(\"mul\")\n    return %m : {0}\n  }}\n}}\n",
        x, factor);
  };
  const std::vector<std::string> none, one = {"cluster"};
  EXPECT_EQ(regionsOf(product("1024", tensor({"256"}, "f32"))), one);
  EXPECT_EQ(regionsOf(product("1024", tensor({"1024", "1"}, "f32"))), one);
  EXPECT_EQ(regionsOf(product("256", tensor({"256"}, "f32"))), none) << "less than a megabyte";
  EXPECT_EQ(regionsOf(product("1024", tensor({}, "f32"))), none) << "a number";
}

TEST(Clusters, AndSoIsWhatAMaskOfFewerNumbersHides) {
  const auto hidden = [](const std::string& heads) {
    const std::string x = tensor({"4", "8", "64", "256"}, "f32"), shown = tensor({"4", heads, "64", "256"}, "i1"),
                      all = tensor({"4", "8", "64", "256"}, "i1");
    const std::string mask = heads == "8" ? "" : fmt::format(" = cermet.broadcast %s : {} to {} loc(\"where\")", shown, all);
    return fmt::format(
        "module attributes {{cermet.version = 1 : i64, cermet.no_gradient}} {{\n  func.func @f(%x: {0} loc(\"x\"), "
        "%s: {1} loc(\"s\")) -> {0} {{\n    {2}\n    %z = cermet.constant 0.0 : {0} loc(\"where\")\n    %y = "
        "cermet.select {3}, %x, %z : {4}, {0} loc(\"where\")\n    return %y : {0}\n  }}\n}}\n",
        x, shown, mask.empty() ? "" : "%m" + mask, mask.empty() ? "%s" : "%m", all);
  };
  EXPECT_EQ(regionsOf(hidden("1")), std::vector<std::string>{"cluster"});
  EXPECT_EQ(regionsOf(hidden("8")), std::vector<std::string>());
}

// A graph that nobody will differentiate, of three f32 tensors x, y, d, with the private function @body behind it.
std::string launched(const std::string& body, const std::string& results, const std::string& function,
                     const std::string& columns = "256") {
  const std::string t = tensor({"2", "64", columns}, "f32");
  return fmt::format("module attributes {{cermet.version = 1 : i64, cermet.no_gradient}} {{\n  func.func @f(%x: {0} "
                     "loc(\"x\"), %y: {0} loc(\"y\"), %d: {0} loc(\"d\")) -> ({1}) {{\n{2}  }}\n{3}}}\n",
                     t, results, fmt::format(fmt::runtime(body), t), function);
}

json answerOf(const std::string& text) {
  std::string answer, error;
  EXPECT_EQ(matchGraph(text, Dump(), answer, error), CERMET_OK) << error << text;
  return answer.empty() ? json() : json::parse(answer);
}

const std::string kRows = tensor({"r0", "r1", "256"}, "f32"), kTile = tensor({"2", "64", "256"}, "f32");
const std::string kProduct =
    fmt::format("  func.func private @body(%a: {0}, %b: {0}) -> {0} {{\n    %m = cermet.mul %a, %b "
                ": {0}\n    %e = cermet.exp %m : {0}\n    return %e : {0}\n  }}\n",
                kRows);
const std::string kLaunch =
    "    %l = cermet.opaque \"launch\"(%x, %y) {{cermet.body = @body}} : ({0}, {0}) -> {0} loc(\"launch\")\n";

// What rearranges the halves of x, up to the name `turned`.
void expectReadInPlace(const std::string& rearranging, const json& replaced) {
  const std::string body = fmt::format(
      fmt::runtime("    %h = cermet.slice %x [0, 0, 128] : {{0}} to {0} loc(\"high\")\n"
                   "    %n = cermet.neg %h : {0} loc(\"neg\")\n"
                   "    %l = cermet.slice %x [0, 0, 0] : {{0}} to {0} loc(\"low\")\n" +
                   rearranging + "    %a = cermet.add %x, %t : {{0}} loc(\"sum\")\n    return %a : {{0}}\n"),
      tensor({"2", "64", "128"}, "f32"));
  const json found = answerOf(launched(body, kTile, ""))["regions"];
  ASSERT_EQ(found.size(), 1u) << found;
  EXPECT_EQ(found[0]["operands"], json({"x"}));
  EXPECT_EQ(found[0]["replaced"], replaced);
  EXPECT_EQ(kernelsOf(found[0]["text"]), 1) << found[0]["text"];
}

TEST(Clusters, ColumnsAreReadWhereTheyAre) {
  expectReadInPlace("    %t = cermet.concat %n, %l {{{{dim = 2 : i64}}}} : {0}, {0} to {{0}} loc(\"turned\")\n",
                    {"high", "neg", "low", "turned", "sum"});
}

TEST(Clusters, AndSoAreThoseOfAStack) {
  expectReadInPlace(
      "    %u = cermet.reshape %n : {0} to tensor<2x64x128x1xf32> loc(\"stack\")\n"
      "    %v = cermet.reshape %l : {0} to tensor<2x64x128x1xf32> loc(\"stack\")\n"
      "    %c = cermet.concat %u, %v {{{{dim = 3 : i64}}}} : tensor<2x64x128x1xf32>, tensor<2x64x128x1xf32> to "
      "tensor<2x64x128x2xf32> loc(\"stack\")\n"
      "    %t = cermet.reshape %c : tensor<2x64x128x2xf32> to {{0}} loc(\"turned\")\n",
      {"high", "neg", "low", "stack", "turned", "sum"});
}

// Merged, the product would be stored for the second kernel.
TEST(Clusters, EqualNodesAreComputedWhereTheyAreRead) {
  const std::string body = "    %a = cermet.mul %x, %y : {0} loc(\"a\")\n    %e = cermet.exp %a : {0} loc(\"exp\")\n"
                           "    %c = cermet.opaque \"call\"(%e) : ({0}) -> {0} loc(\"call\")\n"
                           "    %b = cermet.mul %x, %y : {0} loc(\"b\")\n    %s = cermet.add %b, %c : {0} "
                           "loc(\"sum\")\n    return %s : {0}\n";
  const json found = answerOf(launched(body, kTile, ""))["regions"];
  ASSERT_EQ(found.size(), 2u) << found;
  EXPECT_EQ(found[0]["replaced"], json({"a", "exp"}));
  EXPECT_EQ(found[1]["replaced"], json({"b", "sum"}));
}

TEST(Clusters, ATransposeThatNothingComputesWithIsAView) {
  const std::string rows = tensor({"2", "64", "1"}, "f32"), turned = tensor({"64", "2", "256"}, "f32");
  const std::string body = fmt::format(
      "    %e = cermet.exp %x : {{0}} loc(\"exp\")\n    %t = cermet.transpose %e [1, 0, 2] : {{0}} to {0} loc(\"t\")\n"
      "    %c = cermet.opaque \"call\"(%t) : ({0}) -> {0} loc(\"call\")\n"
      "    %s = cermet.reduce_sum %x : {{0}} to {1} loc(\"sum\")\n    return %c, %s : {0}, {1}\n",
      turned, rows);
  const json found = answerOf(launched(body, turned + ", " + rows, ""))["regions"];
  ASSERT_EQ(found.size(), 1u) << found;
  EXPECT_EQ(found[0]["replaced"], json({"exp", "sum"}));
}

TEST(Clusters, WhatReadsARegionLeavesItWhole) {
  const std::string q = tensor({"2", "4", "64", "64"}, "f32"), half = tensor({"2", "4", "64", "32"}, "f32");
  const std::string rope =
      "    %p = cermet.mul %q, %c : {0} loc(\"plain\")\n    %h = cermet.slice %q [0, 0, 0, 32] : {0} to {1} "
      "loc(\"high\")\n    %g = cermet.neg %h : {1} loc(\"signed\")\n    %l = cermet.slice %q [0, 0, 0, 0] : {0} to "
      "{1} loc(\"low\")\n    %t = cermet.concat %g, %l {{dim = 3 : i64}} : {1}, {1} to {0} loc(\"rotated\")\n"
      "    %m = cermet.mul %t, %s : {0} loc(\"turned\")\n    %r = cermet.add %p, %m : {0} loc(\"result\")\n"
      "    %n = cermet.neg %r : {0} loc(\"neg\")\n    %e = cermet.exp %n : {0} loc(\"exp\")\n    return %e : {0}\n";
  const json found = answerOf(graph("f", fmt::format("%q: {0} loc(\"q\"), %c: {0} loc(\"c\"), %s: {0} loc(\"s\")", q),
                                    q, fmt::format(fmt::runtime(rope), q, half)))["regions"];
  ASSERT_EQ(found.size(), 2u) << found;
  EXPECT_EQ(found[0]["pattern"], "rope");
  EXPECT_EQ(found[1]["replaced"], json({"neg", "exp"}));
}

TEST(Clusters, ALaunchIsTakenApartAsIfItsOperationsStoodThere) {
  const std::string sum = "    %s = cermet.add %l, %d : {0} loc(\"sum\")\n    return %s : {0}\n";
  const json found = answerOf(launched(kLaunch + sum, kTile, kProduct))["regions"];
  ASSERT_EQ(found.size(), 1u) << found;
  EXPECT_EQ(found[0]["operands"], json({"x", "y", "d"}));
  EXPECT_EQ(found[0]["results"], json({"sum"}));
  EXPECT_EQ(found[0]["replaced"], json({"launch", "sum"}));
  const std::string small =
      "    %m = cermet.mul %x, %y : {0} loc(\"mul\")\n    %l = cermet.exp %m : {0} loc(\"exp\")\n";
  EXPECT_EQ(found[0]["text"], answerOf(launched(small + sum, kTile, ""))["regions"][0]["text"]);
}

TEST(Clusters, WhatNobodyReadsOfALaunchIsNotInItsText) {
  const std::string body =
      fmt::format("  func.func private @body(%a: {0}, %b: {0}) -> ({0}, {0}) {{\n    %m = cermet.mul %a, %b : {0}\n"
                  "    %e = cermet.exp %m : {0}\n    %n = cermet.neg %m : {0}\n    return %e, %n : {0}, {0}\n  }}\n",
                  kRows);
  const std::string graph = "    %l:2 = cermet.opaque \"launch\"(%x, %y) {{cermet.body = @body}} : ({0}, {0}) -> ({0}, "
                            "{0}) loc(\"launch\")\n    %s = cermet.add %l#0, %d : {0} loc(\"sum\")\n"
                            "    return %s : {0}\n";
  const json found = answerOf(launched(graph, kTile, body))["regions"];
  ASSERT_EQ(found.size(), 1u) << found;
  EXPECT_EQ(found[0]["results"], json({"sum"}));
  EXPECT_EQ(std::string(found[0]["text"]).find("cermet.neg"), std::string::npos) << found[0]["text"];
}

// A launch that pads x by a row behind each 64, and one before all 2 of these.
const std::string kPadding = fmt::format(
    "  func.func private @pad(%a: {0}) -> {2} {{\n    %z = cermet.constant 0.0 : {3}\n    %c = cermet.concat %a, %z "
    "{{dim = 1 : i64}} : {0}, {3} to {1}\n    %w = cermet.constant 0.0 : {4}\n    %p = cermet.concat %w, %c "
    "{{dim = 0 : i64}} : {4}, {1} to {2}\n    return %p : {2}\n  }}\n",
    kTile, tensor({"2", "65", "256"}, "f32"), tensor({"3", "65", "256"}, "f32"), tensor({"2", "1", "256"}, "f32"),
    tensor({"1", "65", "256"}, "f32"));
const std::string kPad = fmt::format("    %p = cermet.opaque \"pad\"(%s) {{{{cermet.body = @pad}}}} : ({{0}}) -> {0} "
                                     "loc(\"pad\")\n",
                                     tensor({"3", "65", "256"}, "f32"));

TEST(Clusters, WhatALaunchPadsIsStoredWhereThePaddedTensorHasIt) {
  const std::string padded = tensor({"3", "65", "256"}, "f32");
  const std::string sum = "    %s = cermet.add %x, %y : {0} loc(\"sum\")\n";
  const std::string result = fmt::format("    return %p : {0}\n", padded);
  const json found = answerOf(launched(sum + kPad + result, padded, kPadding))["regions"];
  ASSERT_EQ(found.size(), 1u) << found;
  EXPECT_EQ(found[0]["operands"], json({"x", "y"}));
  EXPECT_EQ(found[0]["results"], json({"pad"}));
  EXPECT_EQ(found[0]["replaced"], json({"sum", "pad"}));
  EXPECT_EQ(kernelsOf(found[0]["text"]), 1) << found[0]["text"];
}

TEST(Clusters, WhatOthersReadTooIsPaddedByItself) {
  const std::string padded = tensor({"3", "65", "256"}, "f32");
  const std::string sum = "    %s = cermet.add %x, %y : {0} loc(\"sum\")\n";
  const std::string results = fmt::format("    return %p, %s : {0}, {{0}}\n", padded);
  EXPECT_EQ(answerOf(launched(sum + kPad + results, padded + ", " + kTile, kPadding))["regions"], json::array());
}

TEST(Clusters, ALaunchWithoutNeighboursStays) {
  EXPECT_EQ(answerOf(launched(kLaunch + "    return %l : {0}\n", kTile, kProduct))["regions"], json::array());
  const std::string apart = "    %n = cermet.neg %d : {0} loc(\"neg\")\n    return %l, %n : {0}, {0}\n";
  EXPECT_EQ(answerOf(launched(kLaunch + apart, kTile + ", " + kTile, kProduct))["regions"], json::array());
}

TEST(Clusters, ALaunchThatCannotJoinLeavesItsNeighboursTheirKernel) {
  const std::string body =
      fmt::format("  func.func private @body(%a: {0}, %b: {0}) -> {0} {{\n    %c = cermet.concat %a, %b "
                  "{{dim = 2 : i64}} : {0}, {0} to {1}\n    %h = cermet.slice %c [0, 0, 128] : {1} to "
                  "{0}\n    %e = cermet.exp %h : {0}\n    return %e : {0}\n  }}\n",
                  kRows, tensor({"r0", "r1", "512"}, "f32"));
  const std::string chain = "    %n = cermet.neg %l : {0} loc(\"neg\")\n    %s = cermet.add %n, %d : {0} loc(\"sum\")\n"
                            "    return %s : {0}\n";
  const json found = answerOf(launched(kLaunch + chain, kTile, body))["regions"];
  ASSERT_EQ(found.size(), 1u) << found;
  EXPECT_EQ(found[0]["operands"], json({"launch", "d"}));
  EXPECT_EQ(found[0]["replaced"], json({"neg", "sum"}));
}

// A step of `back`, which waits for a product behind `act`, would be computed with what `act` is made of.
TEST(Clusters, AStepOfWhatWaitsLeavesWholeNodesTheirKernel) {
  const std::string rest =
      "    %s = cermet.silu %l : {0} loc(\"act\")\n"
      "    %g = cermet.opaque \"product\"(%s) : ({0}) -> {0} loc(\"product\")\n"
      "    %b = cermet.sigmoid %l : {0} loc(\"back\")\n    %r = cermet.mul %b, %g : {0} loc(\"back\")\n"
      "    return %r : {0}\n";
  const json found = answerOf(launched(kLaunch + rest, kTile, kProduct))["regions"];
  ASSERT_EQ(found.size(), 1u) << found;
  EXPECT_EQ(found[0]["replaced"], json({"launch", "act"}));
  EXPECT_EQ(found[0]["results"], json({"launch", "act"}));
}

// `back`, which waits for another product, would be computed with what `exp` is made of: behind what reads `exp`.
TEST(Clusters, WhatIsReadTooEarlyIsAKernelByItself) {
  const std::string rest = "    %a = cermet.abs %x : {0} loc(\"abs\")\n    %e = cermet.exp %a : {0} loc(\"exp\")\n"
                           "    %u = cermet.opaque \"product\"(%e) : ({0}) -> {0} loc(\"early\")\n"
                           "    %g = cermet.opaque \"product\"(%y) : ({0}) -> {0} loc(\"product\")\n"
                           "    %r = cermet.mul %e, %g : {0} loc(\"back\")\n    return %u, %r : {0}, {0}\n";
  const json found = answerOf(launched(rest, kTile + ", " + kTile, ""))["regions"];
  ASSERT_EQ(found.size(), 1u) << found;
  EXPECT_EQ(found[0]["replaced"], json({"abs", "exp"}));
  EXPECT_EQ(found[0]["results"], json({"exp"}));
}

// The gradients that one call of a layer norm gives, each a node of its own: x1, w1 and b1 of the cotangent %g.
std::string normGradients(const std::string& number, const std::string& g) {
  const std::string half = tensor({"8", "196", "64"}, "bf16"), wide = tensor({"8", "196", "64"}, "f32");
  const std::string rows = tensor({"8", "196", "1"}, "f32"), columns = tensor({"64"}, "f32");
  const std::string weight = tensor({"64"}, "bf16");
  std::string text;
  auto add = [&](char node, const std::string& line) {
    text += fmt::format(fmt::runtime("    %" + line + " loc(\"{1}{0}\")\n"), number, node, half, wide, rows, columns,
                        weight, g);
  };
  add('x', "g{0} = cermet.cast %{7} : {2} to {3}");
  add('x', "f{0} = cermet.cast %i{0} : {2} to {3}");
  add('x', "m{0} = cermet.broadcast %mean{0} : {4} to {3}");
  add('x', "r{0} = cermet.broadcast %scale{0} : {4} to {3}");
  add('x', "c{0} = cermet.sub %f{0}, %m{0} : {3}");
  add('x', "h{0} = cermet.mul %c{0}, %r{0} : {3}");
  add('x', "v{0} = cermet.cast %weight{0} : {6} to {5}");
  add('x', "u{0} = cermet.broadcast %v{0} : {5} to {3}");
  add('x', "p{0} = cermet.mul %g{0}, %u{0} : {3}");
  add('x', "q{0} = cermet.mul %p{0}, %h{0} : {3}");
  add('x', "s{0} = cermet.reduce_sum %q{0} : {3} to {4}");
  add('x', "t{0} = cermet.broadcast %s{0} : {4} to {3}");
  add('x', "y{0} = cermet.mul %h{0}, %t{0} : {3}");
  add('x', "d{0} = cermet.sub %p{0}, %y{0} : {3}");
  add('x', "o{0} = cermet.cast %d{0} : {3} to {2}");
  add('w', "k{0} = cermet.mul %g{0}, %h{0} : {3}");
  add('w', "kw{0} = cermet.sum_rows %k{0} : {3} to {5}");
  add('w', "ow{0} = cermet.cast %kw{0} : {5} to {6}");
  add('b', "kb{0} = cermet.sum_rows %g{0} : {3} to {5}");
  add('b', "ob{0} = cermet.cast %kb{0} : {5} to {6}");
  return text;
}

// Two norms behind one another have more operands and results than a kernel may, all but one of them not: what then
// reads a step of a call's takes it along with the call's other results.
TEST(Clusters, ACallsResultsAreOneKernelWhereNeighboursFillAnother) {
  const std::string half = tensor({"8", "196", "64"}, "bf16"), rows = tensor({"8", "196", "1"}, "f32");
  const std::string weight = tensor({"64"}, "bf16");
  std::string arguments = fmt::format("%l: {0}, %r: {0}, %y: {0}", half);
  for (int i : {1, 2})
    arguments += fmt::format(", %i{0}: {1}, %mean{0}: {2}, %scale{0}: {2}, %weight{0}: {3}", i, half, rows, weight);
  const std::string text = fmt::format(
      "module attributes {{cermet.version = 1 : i64, cermet.no_gradient}} {{\n"
      "  func.func @f({0}) -> ({1}, {1}, {2}, {2}, {2}, {2}) {{\n    %a = cermet.add %l, %r : {1} loc(\"first\")\n{3}"
      "    %e = cermet.add %y, %o1 : {1} loc(\"second\")\n{4}"
      "    %k = cermet.opaque \"product\"(%e) : ({1}) -> {1} loc(\"product\")\n"
      "    return %k, %o2, %ow1, %ob1, %ow2, %ob2 : {1}, {1}, {2}, {2}, {2}, {2}\n  }}\n}}\n",
      arguments, half, weight, normGradients("1", "a"), normGradients("2", "e"));
  const json found = answerOf(text)["regions"];
  ASSERT_EQ(found.size(), 2u) << found;
  EXPECT_EQ(found[0]["results"], json({"w1", "b1", "second"}));
  EXPECT_EQ(found[1]["results"], json({"x2", "w2", "b2"}));
}

// A mask that is made of nothing is computed in each kernel that reads it, also in one that waits for the other.
TEST(Clusters, WhatIsMadeOfNothingIsComputedByWhoReadsIt) {
  const std::string rest =
      "    %i = cermet.iota 2 : tensor<2x64x256xi64> loc(\"mask\")\n    %j = cermet.iota 1 : tensor<2x64x256xi64> "
      "loc(\"mask\")\n"
      "    %m = cermet.compare \"le\", %i, %j : tensor<2x64x256xi64> to tensor<2x64x256xi1> loc(\"mask\")\n"
      "    %w = cermet.select %m, %x, %y : tensor<2x64x256xi1>, {0} loc(\"where\")\n    %a = cermet.exp %w : {0} "
      "loc(\"exp\")\n"
      "    %g = cermet.opaque \"product\"(%a) : ({0}) -> {0} loc(\"product\")\n"
      "    %v = cermet.select %m, %g, %y : tensor<2x64x256xi1>, {0} loc(\"again\")\n    %b = cermet.exp %v : {0} "
      "loc(\"exp_1\")\n"
      "    return %b : {0}\n";
  const json found = answerOf(launched(rest, kTile, ""))["regions"];
  ASSERT_EQ(found.size(), 2u) << found;
  EXPECT_EQ(found[0]["results"], json({"exp"}));
  EXPECT_EQ(found[1]["results"], json({"exp_1"}));
}

// A launch of which a part alone fits with others, here with what its last operand is made of, leaves these theirs.
TEST(Clusters, ALaunchThatIsInAGroupInPartLeavesTheOthersTheirKernel) {
  const std::string rest =
      "    %n = cermet.opaque \"launch\"(%x, %y) {{cermet.body = @body}} : ({0}, {0}) -> {0} loc(\"first\")\n"
      "    %a = cermet.abs %n : {0} loc(\"abs\")\n"
      "    %g = cermet.opaque \"product\"(%a) : ({0}) -> {0} loc(\"product\")\n"
      "    %l = cermet.opaque \"launch\"(%a, %g) {{cermet.body = @body}} : ({0}, {0}) -> {0} loc(\"launch\")\n"
      "    return %l : {0}\n";
  const std::string body =
      fmt::format("  func.func private @body(%a: {0}, %b: {0}) -> {0} {{\n    %e = cermet.exp %a : {0}\n"
                  "    %m = cermet.mul %e, %b : {0}\n    return %m : {0}\n  }}\n",
                  kRows);
  const json found = answerOf(launched(rest, kTile, body))["regions"];
  ASSERT_EQ(found.size(), 1u) << found;
  EXPECT_EQ(found[0]["replaced"], json({"first", "abs"}));
}

// Two launches that read the halves of one tensor, of which the second joins what it computes: each half is read once,
// and the joined ones are stored where the whole has them.
TEST(Clusters, HalvesThatTwoLaunchesReadAreReadOnce) {
  const std::string whole = tensor({"r0", "r1", "2048"}, "f32"), half = tensor({"r0", "r1", "1024"}, "f32");
  const std::string tile = tensor({"2", "64", "2048"}, "f32"), part = tensor({"2", "64", "1024"}, "f32");
  const std::string halves = fmt::format(
      "    %h = cermet.slice %a [0, 0, 0] : {0} to {1}\n    %u = cermet.slice %a [0, 0, 1024] : {0} to {1}\n", whole,
      half);
  const std::string bodies = fmt::format(
      "  func.func private @gated(%a: {0}) -> {1} {{\n{2}    %s = cermet.silu %h : {1}\n"
      "    %m = cermet.mul %s, %u : {1}\n    return %m : {1}\n  }}\n"
      "  func.func private @gradients(%a: {0}, %b: {1}) -> {0} {{\n{2}    %s = cermet.silu %h : {1}\n"
      "    %m = cermet.mul %b, %s : {1}\n    %t = cermet.mul %b, %u : {1}\n    %g = cermet.sigmoid %h : {1}\n"
      "    %n = cermet.mul %t, %g : {1}\n    %c = cermet.concat %n, %m {{dim = 2 : i64}} : {1}, {1} to {0}\n"
      "    return %c : {0}\n  }}\n",
      whole, half, halves);
  const std::string rest = fmt::format(
      "    %g = cermet.opaque \"gated\"(%x) {{{{cermet.body = @gated}}}} : ({{0}}) -> {0} loc(\"gated\")\n"
      "    %b = cermet.opaque \"product\"(%y) : ({{0}}) -> {0} loc(\"product\")\n"
      "    %c = cermet.opaque \"gradients\"(%x, %b) {{{{cermet.body = @gradients}}}} : ({{0}}, {0}) -> {{0}} "
      "loc(\"gradients\")\n    return %g, %c : {0}, {{0}}\n",
      part);
  const json found = answerOf(launched(rest, part + ", " + tile, bodies, "2048"))["regions"];
  ASSERT_EQ(found.size(), 1u) << found;
  EXPECT_EQ(found[0]["operands"], json({"x", "product"}));
  EXPECT_EQ(found[0]["replaced"], json({"gated", "gradients"}));
  EXPECT_EQ(kernelsOf(found[0]["text"]), 1) << found[0]["text"];
}

TEST(Clusters, AReshapeOfAResultIsNoSecondResult) {
  const std::string body =
      "    %n = cermet.neg %x : {0} loc(\"neg\")\n    %e = cermet.exp %n : {0} loc(\"exp\")\n    %v = "
      "cermet.reshape %e : {0} to tensor<128x256xf32> loc(\"view\")\n    %s = cermet.sum_rows %v : "
      "tensor<128x256xf32> to tensor<256xf32> loc(\"sum\")\n    return %e, %v, %s : {0}, "
      "tensor<128x256xf32>, tensor<256xf32>\n";
  const json found = answerOf(launched(body, kTile + ", tensor<128x256xf32>, tensor<256xf32>", ""))["regions"];
  ASSERT_EQ(found.size(), 1u) << found;
  EXPECT_EQ(found[0]["results"], json({"exp", "sum"}));
}

TEST(Clusters, BytesAreThoseOfTheSizesThatTheTextSays) {
  const std::string body =
      "module attributes {{cermet.version = 1 : i64, cermet.no_gradient, cermet.sizes = {{a = 4 : i64, b = {0} : i64, "
      "\"a*b\" = {1} : i64}}}} {{\n  func.func @f(%x: {2} loc(\"x\"), %g: {2} loc(\"g\")) -> ({3}, tensor<640xf32>) "
      "{{\n"
      "    %v = cermet.reshape %x : {2} to {3} loc(\"v\")\n    %w = cermet.reshape %g : {2} to {3} loc(\"w\")\n"
      "    %e = cermet.exp %v : {3} loc(\"y\")\n    %y = cermet.mul %e, %w : {3} loc(\"y\")\n"
      "    %s = cermet.sum_rows %y : {3} to tensor<640xf32> loc(\"s\")\n    return %y, %s : {3}, tensor<640xf32>\n  "
      "}}\n}}\n";
  auto of = [&](int b) {
    return answerOf(fmt::format(fmt::runtime(body), b, 4 * b, tensor({"a*b", "640"}, "f32"),
                                tensor({"a", "b", "640"}, "f32")))["regions"]
        .size();
  };
  EXPECT_EQ(of(96), 1u) << "a product of symbols is as large as they are";
  EXPECT_EQ(of(1), 0u) << "ten kilobytes are not worth a kernel";
}

TEST(Clusters, RowsOfATableAreReadWhereTheyAreAdded) {
  const std::string body = "    %t = cermet.opaque \"table\"() : () -> tensor<30000x256xf32> loc(\"table\")\n    %i = "
                           "cermet.opaque \"ids\"() : () "
                           "-> tensor<2x64xi64> loc(\"ids\")\n    %e = cermet.gather %t, %i : tensor<30000x256xf32>, "
                           "tensor<2x64xi64> to {0} "
                           "loc(\"rows\")\n    %a = cermet.add %e, %x : {0} loc(\"sum\")\n    return %a : {0}\n";
  const json found = answerOf(launched(body, kTile, ""))["regions"];
  ASSERT_EQ(found.size(), 1u) << found;
  EXPECT_EQ(found[0]["operands"], json({"table", "ids", "x"}));
  const std::string text = found[0]["text"];
  for (const std::string& type :
       {tensor({"r0", "256"}, "f32"), tensor({"r1", "r2"}, "i64"), tensor({"r1", "r2", "256"}, "f32")})
    EXPECT_NE(text.find(type), std::string::npos) << type << " is not in\n" << text;
}

} // namespace
