// The answer to a match: names, texts and their equality.
#include "patterns/Match.h"
#include "patterns/Registry.h"
#include "ir/text/Text.h"
#include "ir/meaning/Interpreter.h"
#include "ir/dialect/Ops.h"
#include "tests/unit/patterns/Answer.h"
#include "tests/unit/patterns/Texts.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

using namespace mlir;
using nlohmann::json;

namespace cermet {
namespace {

using Strings = std::vector<std::string>;

// A norm as Llama has it, its values and nodes with a suffix. !x, !wide, !row and !w stand for types.
std::string norm(const std::string& x, const std::string& weight, const std::string& suffix,
                 const std::string& eps = "1.0e-5") {
  std::string text = R"(
    %to@ = cermet.cast $X : !x to !wide loc("to@")
    %pow@ = cermet.mul %to@, %to@ : !wide loc("pow@")
    %sum@ = cermet.reduce_sum %pow@ : !wide to !row loc("mean@")
    %n@ = cermet.constant 64.0 : !row loc("mean@")
    %mean@ = cermet.div %sum@, %n@ : !row loc("mean@")
    %eps@ = cermet.constant $EPS : !row loc("add@")
    %var@ = cermet.add %mean@, %eps@ : !row loc("add@")
    %rsqrt@ = cermet.rsqrt %var@ : !row loc("rsqrt@")
    %scale@ = cermet.broadcast %rsqrt@ : !row to !wide loc("mul@")
    %mul@ = cermet.mul %to@, %scale@ : !wide loc("mul@")
    %back@ = cermet.cast %mul@ : !wide to !x loc("back@")
    %w@ = cermet.broadcast $W : !w to !x loc("norm@")
    %norm@ = cermet.mul %w@, %back@ : !x loc("norm@")
)";
  text = replaceAll(std::move(text), "$X", x);
  text = replaceAll(std::move(text), "$W", weight);
  text = replaceAll(std::move(text), "$EPS", eps);
  return replaceAll(std::move(text), "@", suffix);
}

std::string graph(const std::string& arguments, const std::string& results, const std::string& body,
                  const std::string& rows = "2x3", const std::string& symbols = "") {
  std::string text = "module attributes {cermet.version = 1 : i64} {\n  func.func @g(" + arguments + ") -> (" +
                     results + ") {\n" + body + "\n  }\n}\n";
  std::string close = symbols.empty() ? ">" : ", #cermet.symbols<[" + symbols + "]>>";
  text = replaceAll(std::move(text), "!x", "tensor<" + rows + "x64xbf16" + close);
  text = replaceAll(std::move(text), "!wide", "tensor<" + rows + "x64xf32" + close);
  text = replaceAll(std::move(text), "!row", "tensor<" + rows + "x1xf32" + close);
  return replaceAll(std::move(text), "!w", "tensor<64xbf16>");
}

const char* const block = R"(
    %gate = cermet.opaque "linear"(%norm_0) : (!x) -> !x loc("gate")
    %up = cermet.opaque "linear_up"(%norm_0) : (!x) -> !x loc("up")
    %silu = cermet.silu %gate : !x loc("silu")
    %glu = cermet.mul %silu, %up : !x loc("glu")
    %down = cermet.opaque "linear_down"(%glu) : (!x) -> !x loc("down")
    %stream = cermet.add %h, %down : !x loc("stream")
)";

TEST(Match, NamesWhatAFrontendReplaces) {
  json found =
      answer(graph(R"(%h: !x loc("hidden"), %v: !w loc("weight_0"), %w: !w loc("weight_1"))", "!x, !x",
                   norm("%h", "%v", "_0") + block + norm("%stream", "%w", "_1") + "return %norm_1, %stream : !x, !x"));
  EXPECT_EQ(found["format"], "cermet.match.1");
  EXPECT_EQ(found["near_misses"], json::array());
  ASSERT_EQ(found["regions"].size(), 3u);

  const json& first = found["regions"][0];
  EXPECT_EQ(first["pattern"], "rms_norm");
  EXPECT_EQ(first["operands"], (Strings{"hidden", "weight_0"}));
  EXPECT_EQ(first["results"], Strings{"norm_0"});
  EXPECT_EQ(first["replaced"], (Strings{"to_0", "pow_0", "mean_0", "add_0", "rsqrt_0", "mul_0", "back_0", "norm_0"}));

  const json& second = found["regions"][1];
  EXPECT_EQ(second["pattern"], "glu");
  EXPECT_EQ(second["operands"], (Strings{"gate", "up"}));
  EXPECT_EQ(second["results"], Strings{"glu"});
  EXPECT_EQ(second["replaced"], (Strings{"silu", "glu"}));

  const json& third = found["regions"][2];
  EXPECT_EQ(third["pattern"], "add_rms_norm");
  EXPECT_EQ(third["operands"], (Strings{"hidden", "down", "weight_1"}));
  EXPECT_EQ(third["results"], (Strings{"norm_1", "stream"}));
  EXPECT_EQ(third["replaced"],
            (Strings{"stream", "to_1", "pow_1", "mean_1", "add_1", "rsqrt_1", "mul_1", "back_1", "norm_1"}));
}

TEST(Match, TextIsAGraphOfTheRegionAlone) {
  json found = answer(graph("%h: !x, %r: !x, %v: !w", "!x, !x",
                            R"(%stream = cermet.add %h, %r : !x loc("stream"))" + norm("%stream", "%v", "") +
                                "return %norm, %stream : !x, !x"));
  ASSERT_EQ(found["regions"].size(), 1u);
  EXPECT_EQ(found["regions"][0]["text"],
            R"(module attributes {cermet.version = 1 : i64} {
  func.func @add_rms_norm(%x: tensor<?x?x64xbf16, #cermet.symbols<["r0", "r1"]>>, %residual: tensor<?x?x64xbf16, #cermet.symbols<["r0", "r1"]>>, %weight: tensor<64xbf16>) -> (tensor<?x?x64xbf16, #cermet.symbols<["r0", "r1"]>>, tensor<?x?x64xbf16, #cermet.symbols<["r0", "r1"]>>) {
    %result, %sum = cermet.add_rms_norm %x, %residual, %weight {eps = 1.000000e-05 : f64, round_before_weight} : tensor<?x?x64xbf16, #cermet.symbols<["r0", "r1"]>>, tensor<?x?x64xbf16, #cermet.symbols<["r0", "r1"]>>, tensor<64xbf16> to tensor<?x?x64xbf16, #cermet.symbols<["r0", "r1"]>>, tensor<?x?x64xbf16, #cermet.symbols<["r0", "r1"]>>
    return %result, %sum : tensor<?x?x64xbf16, #cermet.symbols<["r0", "r1"]>>, tensor<?x?x64xbf16, #cermet.symbols<["r0", "r1"]>>
  }
}
)");
  MLIRContext context(MLIRContext::Threading::DISABLED);
  ir::registerDialects(context);
  std::string error;
  EXPECT_TRUE(ir::parseGraph(found["regions"][0]["text"].get<std::string>(), context, error)) << error;
}

// One text per meaning: neither names, nor the order of operands, nor the number of rows show.
TEST(Match, SitesOfEqualMeaningHaveEqualText) {
  std::string arguments = "%a: !x, %v: !w";
  std::string text =
      answer(graph(arguments, "!x", norm("%a", "%v", "_7") + "return %norm_7 : !x"))["regions"][0]["text"];
  std::string swapped = replaceAll(norm("%a", "%v", "_9"), "%w_9, %back_9", "%back_9, %w_9");
  swapped = replaceAll(swapped, "%mean_9, %eps_9", "%eps_9, %mean_9");
  for (const std::string& other : {
           graph(arguments, "!x", swapped + "return %norm_9 : !x"),
           graph(arguments, "!x", norm("%a", "%v", "") + "return %norm : !x", "1x1"),
           graph(arguments, "!x", norm("%a", "%v", "") + "return %norm : !x", "?x7", R"("tokens")"),
           graph(arguments, "!x", norm("%a", "%v", "") + "return %norm : !x", "?x?", R"("s", "s")"),
       })
    EXPECT_EQ(answer(other)["regions"][0]["text"], text) << other;
}

TEST(Match, SitesOfOtherMeaningHaveOtherText) {
  std::string arguments = "%a: !x, %v: !w";
  std::string body = norm("%a", "%v", "") + "return %norm : !x";
  std::string text = answer(graph(arguments, "!x", body))["regions"][0]["text"];
  std::string narrower = graph(arguments, "!x", body);
  for (auto [from, to] : {std::pair("x64x", "x32x"), std::pair("<64x", "<32x"), std::pair("64.0", "32.0")})
    narrower = replaceAll(narrower, from, to);
  for (const std::string& other : {
           graph(arguments, "!x", norm("%a", "%v", "", "1.0e-6") + "return %norm : !x"),
           graph(arguments, "!x", body, "2"),
           narrower,
           replaceAll(graph(arguments, "!x", body), "bf16", "f16"),
       })
    EXPECT_NE(answer(other)["regions"][0]["text"], text) << other;
}

// What the text computes on a site's operands is what the site computes.
TEST(Match, TextComputesWhatTheSiteDoes) {
  MLIRContext context(MLIRContext::Threading::DISABLED);
  ir::registerDialects(context);
  std::string error, site = graph("%a: !x, %v: !w", "!x", norm("%a", "%v", "") + "return %norm : !x");
  auto whole = ir::parseGraph(site, context, error);
  ASSERT_TRUE(whole) << error;
  auto region = ir::parseGraph(answer(site)["regions"][0]["text"].get<std::string>(), context, error);
  ASSERT_TRUE(region) << error;
  ir::Array x{{2, 3, 64}, {}}, weight{{64}, {}};
  for (int i = 0; i < 2 * 3 * 64; ++i)
    x.data.push_back(std::rand() / double(RAND_MAX) - 0.5);
  for (int i = 0; i < 64; ++i)
    weight.data.push_back(std::rand() / double(RAND_MAX) + 0.5);
  std::vector<ir::Array> expected, actual;
  ASSERT_TRUE(ir::interpret(*whole, {x, weight}, true, expected, error)) << error;
  ASSERT_TRUE(ir::interpret(*region, {x, weight}, true, actual, error)) << error;
  EXPECT_EQ(expected[0].data, actual[0].data);
}

TEST(Match, NearMissesHaveNameAndCondition) {
  json found =
      answer(graph("%a: !x, %v: !w", "!x, !wide",
                   norm("%a", "%v", "_3") +
                       "%other = cermet.neg %mul_3 : !wide loc(\"neg_9\")\nreturn %norm_3, %other : !x, !wide"));
  EXPECT_EQ(found["regions"], json::array());
  EXPECT_EQ(found["near_misses"], json::array({{{"pattern", "rms_norm"},
                                                {"at", "norm_3"},
                                                {"condition", "inner value `mul_3` has another user: neg_9"}}}));
}

TEST(Match, ResultsOfOneNodeAreNumbered) {
  json found = answer(graph("%a: !x", "!x", R"(
    %parts:2 = cermet.opaque "chunk"(%a) : (!x) -> (!x, !x) loc("chunk_2")
    %silu = cermet.silu %parts#0 : !x loc("silu")
    %y = cermet.mul %silu, %parts#1 : !x loc("glu")
    return %y : !x)"));
  ASSERT_EQ(found["regions"].size(), 1u);
  EXPECT_EQ(found["regions"][0]["operands"], (Strings{"chunk_2#0", "chunk_2#1"}));
}

// Both halves of one tensor: the tensor is what a frontend hands over.
TEST(Match, HalvesOfOneTensorAreOneOperand) {
  std::string body = R"(
    %up = cermet.slice %gate_up [0, 0, 0] : !packed to !x loc("chunk#0")
    %gate = cermet.slice %gate_up [0, 0, 64] : !packed to !x loc("chunk#1")
    %act = cermet.gelu %gate : !x loc("gelu")
    %y = cermet.mul %act, %up : !x loc("glu")
    return %y : !x)";
  std::string packed = "tensor<2x3x128xbf16>";
  json found = answer(graph("%gate_up: " + packed, "!x", replaceAll(body, "!packed", packed)));
  ASSERT_EQ(found["regions"].size(), 1u);
  const json& region = found["regions"][0];
  EXPECT_EQ(region["pattern"], "glu");
  EXPECT_EQ(region["operands"], Strings{"gate_up"});
  EXPECT_EQ(region["results"], Strings{"glu"});
  EXPECT_EQ(region["replaced"], (Strings{"chunk#0", "chunk#1", "gelu", "glu"}));
  EXPECT_EQ(region["text"],
            R"(module attributes {cermet.version = 1 : i64} {
  func.func @glu(%packed: tensor<?x?x128xbf16, #cermet.symbols<["r0", "r1"]>>) -> tensor<?x?x64xbf16, #cermet.symbols<["r0", "r1"]>> {
    %0 = cermet.packed_glu %packed {activation = "gelu", up_first} : tensor<?x?x128xbf16, #cermet.symbols<["r0", "r1"]>> to tensor<?x?x64xbf16, #cermet.symbols<["r0", "r1"]>>
    return %0 : tensor<?x?x64xbf16, #cermet.symbols<["r0", "r1"]>>
  }
}
)");
}

// The ends of a region are values of the graph, of the shapes that they have there.
TEST(Match, ReshapesInsideKeepTheShapesOfTheEnds) {
  std::string merged = norm("%view", "%v", "_1");
  for (auto [from, to] :
       {std::pair("!x", "!b"), std::pair("!wide", "tensor<6x64xf32>"), std::pair("!row", "tensor<6x1xf32>")})
    merged = replaceAll(merged, from, to);
  std::string body = R"(%sum = cermet.add %a, %b : !x loc("stream")
    %view = cermet.reshape %sum : !x to !b loc("view_1"))" +
                     merged + R"(%back = cermet.reshape %norm_1 : !b to !x loc("view_2")
    return %back, %sum : !x, !x)";
  json found = answer(graph("%a: !x, %b: !x, %v: !w", "!x, !x", replaceAll(body, "!b", "tensor<6x64xbf16>")));
  ASSERT_EQ(found["regions"].size(), 1u) << found;
  EXPECT_EQ(found["regions"][0]["pattern"], "add_rms_norm");
  EXPECT_EQ(found["regions"][0]["operands"], (Strings{"a", "b", "v"}));
  EXPECT_EQ(found["regions"][0]["results"], (Strings{"view_2", "stream"}));
}

// The sum of one norm is what the next one reads: it keeps the name of the addition.
TEST(Match, ResultsOfRegionsKeepTheirNames) {
  json found = answer(graph("%a: !x, %b: !x, %v: !w", "!x, !x",
                            R"(%sum = cermet.add %a, %b : !x loc("stream"))" + norm("%sum", "%v", "_1") +
                                norm("%sum", "%v", "_2") + "return %norm_1, %norm_2 : !x, !x"));
  ASSERT_EQ(found["regions"].size(), 2u);
  EXPECT_EQ(found["regions"][0]["pattern"], "add_rms_norm");
  EXPECT_EQ(found["regions"][0]["results"], (Strings{"norm_1", "stream"}));
  EXPECT_EQ(found["regions"][1]["pattern"], "rms_norm");
  EXPECT_EQ(found["regions"][1]["operands"], (Strings{"stream", "v"}));
}

TEST(Match, PlacesWithoutNamesAreLines) {
  json found =
      answer(graph("%a: !x, %v: !w", "!x",
                   std::string("%silu = cermet.silu %a : !x\n%y = cermet.mul %silu, %silu : !x\nreturn %y : !x")));
  ASSERT_EQ(found["near_misses"].size(), 1u);
  EXPECT_EQ(found["near_misses"][0]["at"], "mul at line 4");
}

TEST(Match, ANameMayHoldAnyCharacter) {
  json found = answer(graph("%a: !x, %b: !x", "!x", R"(
    %silu = cermet.silu %a : !x loc("s\C3\BF\01\22")
    %y = cermet.mul %silu, %b : !x loc("glu")
    return %y : !x)"));
  EXPECT_EQ(found["regions"].size(), 1u);
}

} // namespace
} // namespace cermet
