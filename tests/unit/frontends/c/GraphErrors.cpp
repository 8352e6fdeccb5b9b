// What cermet_compile refuses, with the real compiler: every text that is wrong ends with a status, a place and a
// reason, and soon. tests/errors has the texts that are wrong in one word; here are those that are wrong as a whole.
#include "tests/unit/frontends/c/ContextTest.h"
#include <chrono>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <string>

namespace {

struct GraphErrors : cermet::ContextTest {
  static void SetUpTestSuite() { useCompiler(COMPILER); }

  // The message, or "compiled".
  std::string compile(const std::string& text, cermet_status expected, const char* target = "host") {
    cermet_plan* plan = nullptr;
    const auto start = std::chrono::steady_clock::now();
    const cermet_status status = cermet_compile(context, text.data(), text.size(), target, &plan);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    EXPECT_LT(took.count(), 10) << text.substr(0, 100);
    EXPECT_EQ(status, expected) << text.substr(0, 500);
    cermet_plan_destroy(plan);
    return status == CERMET_OK ? "compiled" : cermet_error_message();
  }
};

const std::string kHead = "module attributes {cermet.version = 1 : i64} {\n";

std::string repeated(const std::string& text, int times) {
  std::string result;
  for (int turn = 0; turn < times; ++turn)
    result += text;
  return result;
}

std::string negation(const std::string& shape, const std::string& operation = "cermet.neg") {
  return fmt::format("{}  func.func @f(%x: tensor<{}>) -> tensor<{}> {{\n    %y = {} %x : tensor<{}>\n"
                     "    return %y : tensor<{}>\n  }}\n}}\n",
                     kHead, shape, shape, operation, shape, shape);
}

std::string sum(const std::string& left, const std::string& right, const std::string& body) {
  return fmt::format("{}  func.func @f(%x: tensor<{}>, %y: tensor<{}>) -> tensor<{}> {{\n{}  }}\n}}\n", kHead, left,
                     right, left, body);
}

#define EXPECT_STARTS(text, start) EXPECT_TRUE(std::string(text).starts_with(start)) << (text)

TEST_F(GraphErrors, NoTextIsNoGraph) {
  for (const std::string& text : {std::string(), std::string("  \n\n")})
    EXPECT_EQ(compile(text, CERMET_INVALID_GRAPH),
              "graph:1:1: the text is empty, expected a module with one func.func");
  EXPECT_STARTS(compile("// nothing\n", CERMET_INVALID_GRAPH), "graph:1:1: expected one `module");
  EXPECT_STARTS(compile(std::string(3, '\0'), CERMET_INVALID_GRAPH), "graph:1:1: ");
}

TEST_F(GraphErrors, WhatIsNotUtf8IsPlaced) {
  EXPECT_EQ(compile(kHead + "  // \xff", CERMET_INVALID_GRAPH), "graph:2:6: the text is not UTF-8 here");
  EXPECT_EQ(compile(kHead + "\"\xc0\x80\"", CERMET_INVALID_GRAPH), "graph:2:2: the text is not UTF-8 here");
  EXPECT_EQ(compile(kHead + "\xed\xa0\x80", CERMET_INVALID_GRAPH), "graph:2:1: the text is not UTF-8 here");
}

// Everywhere that a text can have a literal. What its escapes say goes into JSON and into C strings.
std::string withLiteral(const char* place, const std::string& literal) {
  const std::string symbol = place == std::string("symbol") ? literal : "rows";
  const std::string node = place == std::string("node") ? literal : "y";
  const std::string argument = place == std::string("argument") ? literal : "x";
  const std::string function = place == std::string("function") ? literal : "f";
  const std::string target = place == std::string("target") ? literal : "aten.frob";
  const std::string attribute = place == std::string("attribute") ? literal : "value";
  const std::string key = place == std::string("key") ? literal : "key";
  const std::string type = fmt::format("tensor<?x8xf32, #cermet.symbols<[\"{}\"]>>", symbol);
  return fmt::format("{}  func.func @\"{}\"(%x: {} loc(\"{}\")) -> {} {{\n"
                     "    %y = cermet.opaque \"{}\"(%x) {{\"{}\" = \"{}\"}} : ({}) -> {} loc(\"{}\")\n"
                     "    return %y : {}\n  }}\n}}\n",
                     kHead, function, type, argument, type, target, key, attribute, type, type, node, type);
}

constexpr const char* kPlaces[] = {"symbol", "node", "argument", "function", "target", "attribute", "key"};

TEST_F(GraphErrors, WhatALiteralSaysIsUtf8) {
  for (const char* place : kPlaces) {
    for (const char* literal :
         {"caf\\C3\\A9", "\xc3\xa9", "\\F0\\9F\\A6\\80", "a \\\\FF b", "tab\\tand\\22quotes\\22"}) {
      const std::string text = withLiteral(place, literal);
      EXPECT_EQ(compile(text, CERMET_OK), "compiled") << text;
      char* json = nullptr;
      EXPECT_EQ(cermet_match(context, text.data(), text.size(), &json), CERMET_OK) << text << cermet_error_message();
      cermet_string_free(json);
    }
    for (const char* literal : {"\\FF", "a\\C3", "\\ED\\A0\\80", "\\C0\\80", "\\e9t\\e9", "\xc3\xa9\\A9"}) {
      const std::string text = withLiteral(place, literal);
      const std::string message = compile(text, CERMET_INVALID_GRAPH);
      EXPECT_STARTS(message, "graph:");
      EXPECT_TRUE(message.ends_with(": what this escape stands for is not UTF-8")) << place << ": " << message;
      char* json = nullptr;
      EXPECT_EQ(cermet_match(context, text.data(), text.size(), &json), CERMET_INVALID_GRAPH);
      EXPECT_EQ(cermet_error_message(), message);
      const uint8_t wanted = 1;
      EXPECT_EQ(cermet_differentiate(context, text.data(), text.size(), &wanted, 1, &json), CERMET_INVALID_GRAPH);
      EXPECT_EQ(cermet_error_message(), message);
    }
  }
  const std::string text = withLiteral("node", "ab\\FF");
  const size_t at = text.find("\\FF");
  EXPECT_EQ(compile(text, CERMET_INVALID_GRAPH),
            fmt::format("graph:3:{}: what this escape stands for is not UTF-8", at - text.rfind('\n', at)));
}

// In C `a\00b` and `a\00c` would be one name.
TEST_F(GraphErrors, ANameHasNoZero) {
  for (const char* place : kPlaces)
    for (const std::string& literal : {std::string("a\\00b"), std::string("a\0b", 3), std::string("\\00")}) {
      const std::string message = compile(withLiteral(place, literal), CERMET_INVALID_GRAPH);
      EXPECT_STARTS(message, "graph:");
      EXPECT_TRUE(message.ends_with(": a name has a zero here, where it would end in C; leave it out"))
          << place << ": " << message;
    }
  const std::string text = withLiteral("argument", "a\\00");
  const size_t at = text.find("\\00");
  EXPECT_EQ(compile(text, CERMET_INVALID_GRAPH),
            fmt::format("graph:2:{}: a name has a zero here, where it would end in C; leave it out",
                        at - text.rfind('\n', at)));
}

TEST_F(GraphErrors, UnknownOperationsAreNamed) {
  EXPECT_EQ(compile(negation("4x8xf32", "cermet.frob"), CERMET_INVALID_GRAPH),
            "graph:3:10: custom op 'cermet.frob' is unknown");
  EXPECT_STARTS(compile(negation("4x8xf32", "foo.bar"), CERMET_INVALID_GRAPH), "graph:3:10: Dialect `foo' not found");
}

TEST_F(GraphErrors, ACycleIsAValueUsedBeforeItIs) {
  EXPECT_STARTS(
      compile(sum("4x8xf32", "4x8xf32",
                  "    %a = cermet.add %x, %b : tensor<4x8xf32>\n    %b = cermet.add %a, %y : tensor<4x8xf32>\n"
                  "    return %b : tensor<4x8xf32>\n"),
              CERMET_INVALID_GRAPH),
      "graph:3:10: operand #1 does not dominate this use");
  EXPECT_STARTS(compile(sum("4x8xf32", "4x8xf32",
                            "    %a = cermet.add %x, %a : tensor<4x8xf32>\n    return %a : tensor<4x8xf32>\n"),
                        CERMET_INVALID_GRAPH),
                "graph:3:10: operand #1 does not dominate this use");
}

TEST_F(GraphErrors, TypesAndShapesThatDifferArePlaced) {
  const char* body = "    %a = cermet.add %x, %y : tensor<4x8xf32>\n    return %a : tensor<4x8xf32>\n";
  for (const char* other : {"4x9xf32", "4x8xbf16", "8xf32"})
    EXPECT_STARTS(
        compile(sum("4x8xf32", other, body), CERMET_INVALID_GRAPH),
        fmt::format("graph:3:25: use of value '%y' expects different type than prior uses: 'tensor<4x8xf32>' vs "
                    "'tensor<{}>'",
                    other));
}

TEST_F(GraphErrors, RanksAndSizesHaveLimits) {
  EXPECT_EQ(compile(negation("f32"), CERMET_OK), "compiled");
  EXPECT_EQ(compile(negation("2x2x2x2x2x2x2x8xf32"), CERMET_OK), "compiled");
  EXPECT_STARTS(compile(negation("2x2x2x2x2x2x2x2x8xf32"), CERMET_INVALID_GRAPH), "graph:2:16: ");
  EXPECT_STARTS(compile(negation("0x8xf32"), CERMET_INVALID_GRAPH), "graph:2:16: ");
  EXPECT_STARTS(compile(negation("-4x8xf32"), CERMET_INVALID_GRAPH), "graph:2:27: ");
  EXPECT_EQ(compile(negation("99999999999999999999999x8xf32"), CERMET_INVALID_GRAPH), "graph:2:27: invalid dimension");
  for (const char* shape : {"9223372036854775807x8xf32", "4611686018427387904x4611686018427387904xf32"})
    EXPECT_NE(compile(negation(shape), CERMET_INVALID_GRAPH).find("has more elements than 2^60"), std::string::npos);
}

TEST_F(GraphErrors, AWeightIsAsLongAsItsRows) {
  const std::string text = kHead + "  func.func @f(%x: tensor<4x256xf32>, %w: tensor<255xf32>) -> tensor<4x256xf32> {\n"
                                   "    %y = cermet.rms_norm %x, %w {eps = 1.0e-5 : f64} : tensor<4x256xf32>, "
                                   "tensor<255xf32> to tensor<4x256xf32>\n    return %y : tensor<4x256xf32>\n  }\n}\n";
  const std::string message = compile(text, CERMET_INVALID_GRAPH);
  EXPECT_STARTS(message, "graph:3:10: ");
  EXPECT_NE(message.find("weight has 255 elements, expected 256 (last dimension of x)"), std::string::npos) << message;
}

TEST_F(GraphErrors, UnknownTargetsAreNamed) {
  for (const char* target : {"sm_91", "", "SM_90", "cuda", "host:pdp11"}) {
    const std::string message = compile(negation("4x8xf32"), CERMET_INVALID_ARGUMENT, target);
    EXPECT_NE(message.find(fmt::format("'{}'", target)), std::string::npos) << message;
  }
}

TEST_F(GraphErrors, NestingHasALimit) {
  constexpr int kDeep = 100000;
  const std::string texts[] = {
      repeated("module {", kDeep),
      kHead + repeated("module {", kDeep) + repeated("}", kDeep),
      "module attributes {a = " + repeated("[", kDeep) + "1" + repeated("]", kDeep) + "} {}",
      "module attributes {a = " + repeated("{b = ", kDeep) + "1" + repeated("}", kDeep) + "} {}",
      "module attributes {a = " + repeated("(() -> ", kDeep) + "f32" + repeated(")", kDeep) + "} {}",
      "module attributes {a = #cermet.symbols<" + repeated("<", kDeep) + repeated(">", kDeep) + "} {}",
      kHead + "  func.func @f(%x: " + repeated("tuple<", kDeep) + "f32" + repeated(">", kDeep) + ") {}\n}",
      kHead + "} loc(" + repeated("fused[", kDeep),
  };
  for (const std::string& text : texts) {
    const std::string message = compile(text, CERMET_INVALID_GRAPH);
    EXPECT_STARTS(message, "graph:");
    EXPECT_NE(message.find("brackets nest deeper than 256"), std::string::npos) << message;
  }
}

TEST_F(GraphErrors, ALargeTextIsRefusedAtOnce) {
  for (const char* piece : {"x", " ", "// a comment\n", "module {}\n"}) {
    std::string text;
    text.reserve(100000100);
    while (text.size() < 100000000)
      text += piece;
    const std::string message = compile(text, CERMET_INVALID_GRAPH);
    EXPECT_EQ(message, fmt::format("graph:1:1: the text has {} bytes, expected at most 67108864", text.size()));
  }
}

// More than 1,024 values, as a whole model has.
TEST_F(GraphErrors, APlanHasManyValues) {
  std::string names, types;
  for (int i = 0; i < 3000; ++i) {
    names += i ? ", %x" : "%x";
    types += i ? ", tensor<1x8xf32>" : "tensor<1x8xf32>";
  }
  compile(fmt::format("module attributes {{cermet.version = 1 : i64}} {{ func.func @f(%x: tensor<1x8xf32>) -> "
                      "tensor<3000x8xf32> {{ %0 = cermet.concat {} {{dim = 0 : i64}} : {} to tensor<3000x8xf32> "
                      "return %0 : tensor<3000x8xf32> }} }}",
                      names, types),
          CERMET_OK);
}

} // namespace
