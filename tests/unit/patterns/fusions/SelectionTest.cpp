// Regions that are selections of operations: rotary embeddings and losses, found by what they compute.
#include "tests/unit/patterns/Answer.h"
#include "tests/unit/patterns/Texts.h"

using nlohmann::json;

namespace cermet {
namespace {

using Strings = std::vector<std::string>;

json answer(const std::string& arguments, const std::string& results, const std::string& body) {
  std::string text = "module attributes {cermet.version = 1 : i64} {\n  func.func @g(" + arguments + ") -> (" +
                     results + ") {\n" + body + "  }\n}\n";
  text = replaceAll(text, "!q", "tensor<2x4x5x8xbf16>");
  text = replaceAll(text, "!k", "tensor<2x2x5x8xbf16>");
  text = replaceAll(text, "!table", "tensor<2x1x5x8xbf16>");
  text = replaceAll(text, "!logits", "tensor<6x32xf32>");
  text = replaceAll(text, "!row", "tensor<6x1xf32>");
  return cermet::answer(text);
}

// x * cos + (-second half, first half) * sin, of `x` of type !T, its nodes with a suffix.
std::string rope(const std::string& x, const std::string& type, const std::string& half, const std::string& suffix,
                 const std::string& sign = "neg") {
  std::string text = R"(
    %cosb@ = cermet.broadcast %cos : !table to !T loc("plain@")
    %plain@ = cermet.mul $X, %cosb@ : !T loc("plain@")
    %low@ = cermet.slice $X [0, 0, 0, 0] : !T to $H loc("low@")
    %high@ = cermet.slice $X [0, 0, 0, 4] : !T to $H loc("high@")
    %signed@ = cermet.$SIGN %high@ : $H loc("signed@")
    %rotated@ = cermet.concat %signed@, %low@ {dim = 3 : i64} : $H, $H to !T loc("rotated@")
    %sinb@ = cermet.broadcast %sin : !table to !T loc("turned@")
    %turned@ = cermet.mul %rotated@, %sinb@ : !T loc("turned@")
    %result@ = cermet.add %plain@, %turned@ : !T loc("result@")
)";
  text = replaceAll(text, "!T", type);
  text = replaceAll(text, "$X", x);
  text = replaceAll(text, "$H", half);
  text = replaceAll(text, "$SIGN", sign);
  return replaceAll(text, "@", suffix);
}

const char* const kTables = R"(, %cos: !table loc("cos"), %sin: !table loc("sin"))";
const std::string kQueryHalf = "tensor<2x4x5x4xbf16>", kKeyHalf = "tensor<2x2x5x4xbf16>";

TEST(Rope, QueriesAndKeysAreOneRegion) {
  json found = answer(R"(%q: !q loc("q"), %k: !k loc("k"))" + std::string(kTables), "!q, !k",
                      rope("%q", "!q", kQueryHalf, "_q") + rope("%k", "!k", kKeyHalf, "_k") +
                          "return %result_q, %result_k : !q, !k\n");
  ASSERT_EQ(found["regions"].size(), 1u) << found.dump(1);
  const json& region = found["regions"][0];
  EXPECT_EQ(region["pattern"], "rope");
  EXPECT_EQ(region["counts"], json({{"rope", 1}}));
  EXPECT_EQ(region["operands"], (Strings{"cos", "q", "sin", "k"}));
  EXPECT_EQ(region["results"], (Strings{"result_q", "result_k"}));
  EXPECT_EQ(region["replaced"].size(), 14u);
  // Heads differ, rows are symbols, the head's columns are numbers.
  EXPECT_NE(region["text"].get<std::string>().find("tensor<?x?x?x8xbf16"), std::string::npos);
}

TEST(Rope, EqualShapesGiveEqualTextWhateverTheSizesAre) {
  const std::string body = rope("%q", "!q", kQueryHalf, "") + "return %result : !q\n";
  const std::string arguments = R"(%q: !q loc("q"))" + std::string(kTables);
  json first = answer(arguments, "!q", body);
  auto resized = [](std::string text) {
    text = replaceAll(replaceAll(text, "!q", "tensor<4x4x7x8xbf16>"), kQueryHalf, "tensor<4x4x7x4xbf16>");
    return replaceAll(text, "!table", "tensor<4x1x7x8xbf16>");
  };
  json second = answer(resized(arguments), resized("!q"), resized(body)); // batch and heads are one number here
  ASSERT_EQ(first["regions"].size(), 1u);
  ASSERT_EQ(second["regions"].size(), 1u);
  EXPECT_EQ(first["regions"][0]["text"], second["regions"][0]["text"]);
}

TEST(Rope, WithoutASignChangeThereIsNoRotation) {
  json found = answer(R"(%q: !q loc("q"))" + std::string(kTables), "!q",
                      rope("%q", "!q", kQueryHalf, "", "exp") + "return %result : !q\n");
  EXPECT_EQ(found["regions"], json::array());
}

TEST(Rope, AnInnerValueThatIsReadElsewhereKeepsIt) {
  json found = answer(R"(%q: !q loc("q"))" + std::string(kTables), "!q, !q",
                      rope("%q", "!q", kQueryHalf, "") + "return %result, %turned : !q, !q\n");
  EXPECT_EQ(found["regions"], json::array());
  ASSERT_EQ(found["near_misses"].size(), 1u);
  EXPECT_EQ(found["near_misses"][0]["condition"], "inner value `turned` is read elsewhere");
}

TEST(Rope, AWriteInBetweenKeepsIt) {
  std::string body = rope("%q", "!q", kQueryHalf, "");
  const std::string write = R"(
    %written = cermet.opaque "add_"(%plain) {effect = "write", versions = 1 : i64} : (!q) -> !q loc("written"))";
  body.insert(body.find("    %low"), write + "\n");
  json found =
      answer(R"(%q: !q loc("q"))" + std::string(kTables), "!q, !q", body + "return %result, %written : !q, !q\n");
  EXPECT_EQ(found["regions"], json::array());
  ASSERT_EQ(found["near_misses"].size(), 1u);
  EXPECT_EQ(found["near_misses"][0]["condition"], "inner value `plain` is written in place by `written`");
}

TEST(Rope, HeadNormsBelongToIt) {
  const std::string norm = R"(
    %nq = cermet.rms_norm %q, %w {eps = 1.0e-6 : f64, round_before_weight} : !q, tensor<8xbf16> to !q loc("nq"))";
  const std::string arguments = R"(%q: !q loc("q"), %w: tensor<8xbf16> loc("w"))" + std::string(kTables);
  json found = answer(arguments, "!q", norm + rope("%nq", "!q", kQueryHalf, "") + "return %result : !q\n");
  ASSERT_EQ(found["regions"].size(), 1u) << found.dump(1);
  EXPECT_EQ(found["regions"][0]["pattern"], "qk_norm_rope");
  EXPECT_EQ(found["regions"][0]["counts"], json({{"qk_norm_rope", 1}, {"rope", 1}}));
  // A norm that others read as well stays alone, and is a norm of heads by what it feeds.
  found = answer(arguments, "!q, !q", norm + rope("%nq", "!q", kQueryHalf, "") + "return %result, %nq : !q, !q\n");
  ASSERT_EQ(found["regions"].size(), 1u) << found.dump(1);
}

// The mean over rows of the labels' losses, the logits scaled before.
const char* const kLoss = R"(
    %two = cermet.constant 2.0 : !logits loc("scaled")
    %scaled = cermet.mul %x, %two : !logits loc("scaled")
    %m = cermet.reduce_max %scaled : !logits to !row loc("loss")
    %mb = cermet.broadcast %m : !row to !logits loc("loss")
    %d = cermet.sub %scaled, %mb : !logits loc("loss")
    %e = cermet.exp %d : !logits loc("loss")
    %s = cermet.reduce_sum %e : !logits to !row loc("loss")
    %l = cermet.log %s : !row loc("loss")
    %lb = cermet.broadcast %l : !row to !logits loc("loss")
    %p = cermet.sub %d, %lb : !logits loc("loss")
    %c = cermet.iota 1 : tensor<6x32xi64> loc("loss")
    %t1 = cermet.reshape %t : tensor<6xi64> to tensor<6x1xi64> loc("loss")
    %tb = cermet.broadcast %t1 : tensor<6x1xi64> to tensor<6x32xi64> loc("loss")
    %here = cermet.compare "eq", %c, %tb : tensor<6x32xi64> to tensor<6x32xi1> loc("loss")
    %zero = cermet.constant 0.0 : !logits loc("loss")
    %picked = cermet.select %here, %p, %zero : tensor<6x32xi1>, !logits loc("loss")
    %score = cermet.reduce_sum %picked : !logits to !row loc("loss")
    %n = cermet.neg %score : !row loc("loss")
    %total = cermet.sum_rows %n : !row to tensor<1xf32> loc("loss")
    %loss = cermet.reshape %total : tensor<1xf32> to tensor<f32> loc("loss")
    %by = cermet.constant 6.0 : tensor<f32> loc("mean")
    %mean = cermet.div %loss, %by : tensor<f32> loc("mean")
)";
const char* const kLogits = R"(%x: !logits loc("logits"), %t: tensor<6xi64> loc("labels"))";

TEST(CrossEntropy, IsEverythingFromTheLogitsToANumber) {
  json found = answer(kLogits, "tensor<f32>", std::string(kLoss) + "return %mean : tensor<f32>\n");
  ASSERT_EQ(found["regions"].size(), 1u) << found.dump(1);
  const json& region = found["regions"][0];
  EXPECT_EQ(region["pattern"], "cross_entropy");
  EXPECT_EQ(region["operands"], (Strings{"logits", "labels"}));
  EXPECT_EQ(region["results"], Strings{"mean"});
  EXPECT_EQ(region["replaced"], (Strings{"scaled", "loss", "mean"}));
}

TEST(CrossEntropy, ScaledLogitsThatAreReadElsewhereAreItsOperand) {
  json found =
      answer(kLogits, "tensor<f32>, !logits", std::string(kLoss) + "return %mean, %scaled : tensor<f32>, !logits\n");
  ASSERT_EQ(found["regions"].size(), 1u) << found.dump(1);
  EXPECT_EQ(found["regions"][0]["operands"], (Strings{"scaled", "labels"}));
}

// A cap before the loss has a name of its own once it is raised, and is part of the loss all the same.
TEST(CrossEntropy, TakesInACapThatNothingElseReads) {
  const std::string capped = replaceAll(kLoss, "%scaled = cermet.mul %x, %two : !logits loc(\"scaled\")", R"(
    %part = cermet.div %x, %two : !logits loc("part")
    %bent = cermet.tanh %part : !logits loc("bent")
    %scaled = cermet.mul %bent, %two : !logits loc("scaled"))");
  json found = answer(kLogits, "tensor<f32>", capped + "return %mean : tensor<f32>\n");
  ASSERT_EQ(found["regions"].size(), 1u) << found.dump(1);
  EXPECT_EQ(found["regions"][0]["pattern"], "cross_entropy");
  EXPECT_EQ(found["regions"][0]["operands"], (Strings{"logits", "labels"}));
  EXPECT_EQ(found["regions"][0]["replaced"], (Strings{"part", "bent", "scaled", "loss", "mean"}));
  found = answer(kLogits, "tensor<f32>, !logits", capped + "return %mean, %scaled : tensor<f32>, !logits\n");
  ASSERT_EQ(found["regions"].size(), 2u) << found.dump(1);
  EXPECT_EQ(found["regions"][0]["pattern"], "softcap");
  EXPECT_EQ(found["regions"][1]["operands"], (Strings{"scaled", "labels"}));
}

TEST(CrossEntropy, WithoutLabelsItIsNone) {
  std::string body =
      replaceAll(kLoss, "cermet.select %here, %p, %zero : tensor<6x32xi1>, !logits", "cermet.exp %p : !logits");
  json found = answer(kLogits, "tensor<f32>", body + "return %mean : tensor<f32>\n");
  EXPECT_EQ(found["regions"], json::array()) << found.dump(1);
}

} // namespace
} // namespace cermet
