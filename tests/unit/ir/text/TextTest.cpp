// The text form: what is read, what is printed, and what each wrong text is told.
#include "ir/transforms/Decompose.h"
#include "tests/unit/ir/GraphTest.h"
#include <functional>

using namespace mlir;

namespace cermet::ir {
namespace {

using TextTest = GraphTest;

const char* const named = R"(module attributes {cermet.version = 1 : i64} {
  func.func @graph(%x: tensor<?x4xbf16, #cermet.symbols<["r0"]>> {cermet.strides = array<i64: 8, 1>} loc("hidden_states"), %w: tensor<4xbf16>) -> tensor<?x4xf32, #cermet.symbols<["r0"]>> {
    %0 = cermet.cast %x : tensor<?x4xbf16, #cermet.symbols<["r0"]>> to tensor<?x4xf32, #cermet.symbols<["r0"]>> loc("to_1")
    %1 = cermet.neg %0 : tensor<?x4xf32, #cermet.symbols<["r0"]>>
    return %1 : tensor<?x4xf32, #cermet.symbols<["r0"]>>
  }
}
)";

TEST_F(TextTest, NamesAndLinesAreKept) {
  std::string error;
  OwningOpRef<ModuleOp> graph = parseGraph(named, context, error);
  ASSERT_TRUE(graph) << error;
  func::FuncOp function = graphFunction(*graph);
  EXPECT_EQ(argumentName(function, 0), "hidden_states");
  EXPECT_EQ(argumentName(function, 1), "w");
  Operation& cast = function.getBody().front().front();
  EXPECT_EQ(nodeName(cast.getLoc()), "to_1");
  EXPECT_EQ(textLine(cast.getLoc()), 3u);
  EXPECT_EQ(nodeName(cast.getNextNode()->getLoc()), "");
  EXPECT_EQ(textLine(cast.getNextNode()->getLoc()), 4u);
}

TEST_F(TextTest, PrintedWithLocations) {
  std::string error;
  OwningOpRef<ModuleOp> graph = parseGraph(named, context, error);
  ASSERT_TRUE(graph) << error;
  std::string text = printGraph(*graph, true);
  EXPECT_NE(text.find("{cermet.strides = array<i64: 8, 1>} loc(\"hidden_states\")"), std::string::npos) << text;
  EXPECT_NE(text.find("loc(\"to_1\")"), std::string::npos) << text;
  EXPECT_EQ(text.find("unknown"), std::string::npos) << text;
  OwningOpRef<ModuleOp> again = parseGraph(text, context, error);
  ASSERT_TRUE(again) << error << text;
  EXPECT_EQ(printGraph(*again, true), text);
  EXPECT_EQ(printGraph(*again, false), printGraph(*graph, false));
}

TEST_F(TextTest, PrintedWithoutLocationsOnlyArgumentsHaveNames) {
  std::string error;
  OwningOpRef<ModuleOp> graph = parseGraph(named, context, error);
  ASSERT_TRUE(graph) << error;
  std::string text = printGraph(*graph, false);
  EXPECT_NE(text.find("(%hidden_states: tensor<?x4xbf16, #cermet.symbols<[\"r0\"]>>"), std::string::npos) << text;
  EXPECT_NE(text.find("%0 = cermet.cast %hidden_states"), std::string::npos) << text;
  EXPECT_EQ(text.find("loc("), std::string::npos) << text;
  OwningOpRef<ModuleOp> again = parseGraph(text, context, error);
  ASSERT_TRUE(again) << error << text;
  EXPECT_EQ(printGraph(*again, false), text);
  EXPECT_EQ(argumentName(graphFunction(*again), 0), "hidden_states");
}

TEST_F(TextTest, FoldsThatChangeNoBit) {
  OwningOpRef<ModuleOp> graph = parse(R"(
    func.func @f(%x: tensor<2x4xbf16>, %y: tensor<2x4xf32>) -> (tensor<2x4xbf16>, tensor<2x4xf32>, tensor<2x4xf64>) {
      %0 = cermet.cast %x : tensor<2x4xbf16> to tensor<2x4xf32>
      %1 = cermet.cast %0 : tensor<2x4xf32> to tensor<2x4xbf16>
      %2 = cermet.cast %y : tensor<2x4xf32> to tensor<2x4xbf16>
      %3 = cermet.cast %2 : tensor<2x4xbf16> to tensor<2x4xf32>
      %4 = cermet.cast %0 : tensor<2x4xf32> to tensor<2x4xf64>
      return %1, %3, %4 : tensor<2x4xbf16>, tensor<2x4xf32>, tensor<2x4xf64>
    })");
  ASSERT_TRUE(graph);
  simplify(graphFunction(*graph));
  std::string text = printGraph(*graph, false);
  EXPECT_NE(text.find("return %x, %1, %2"), std::string::npos) << text;
  EXPECT_NE(text.find("%0 = cermet.cast %y"), std::string::npos) << text;
  EXPECT_NE(text.find("cermet.cast %x : tensor<2x4xbf16> to tensor<2x4xf64>"), std::string::npos) << text;
}

// Every f8 is a bf16, an f16 and an f32; a quantised value is none of its source's.
TEST_F(TextTest, CastsOfEightBitFloats) {
  OwningOpRef<ModuleOp> graph = parse(R"(
    func.func @f(%x: tensor<4xf8E4M3FN>, %y: tensor<4xf8E5M2>, %z: tensor<4xbf16>) -> (tensor<4xf32>, tensor<4xf8E5M2>, tensor<4xf8E5M2>, tensor<4xbf16>) {
      %0 = cermet.cast %x : tensor<4xf8E4M3FN> to tensor<4xbf16>
      %1 = cermet.cast %0 : tensor<4xbf16> to tensor<4xf32>
      %2 = cermet.cast %y : tensor<4xf8E5M2> to tensor<4xf16>
      %3 = cermet.cast %2 : tensor<4xf16> to tensor<4xf8E5M2>
      %4 = cermet.cast %x : tensor<4xf8E4M3FN> to tensor<4xf8E5M2>
      %5 = cermet.cast %z : tensor<4xbf16> to tensor<4xf8E4M3FN>
      %6 = cermet.cast %5 : tensor<4xf8E4M3FN> to tensor<4xbf16>
      return %1, %3, %4, %6 : tensor<4xf32>, tensor<4xf8E5M2>, tensor<4xf8E5M2>, tensor<4xbf16>
    })");
  ASSERT_TRUE(graph);
  simplify(graphFunction(*graph));
  std::string text = printGraph(*graph, false), error;
  EXPECT_NE(text.find("%0 = cermet.cast %x : tensor<4xf8E4M3FN> to tensor<4xf32>"), std::string::npos) << text;
  EXPECT_NE(text.find("%1 = cermet.cast %x : tensor<4xf8E4M3FN> to tensor<4xf8E5M2>"), std::string::npos) << text;
  EXPECT_NE(text.find("%3 = cermet.cast %2 : tensor<4xf8E4M3FN> to tensor<4xbf16>"), std::string::npos) << text;
  EXPECT_NE(text.find("return %0, %y, %1, %3"), std::string::npos) << text;
  OwningOpRef<ModuleOp> again = parseGraph(text, context, error);
  ASSERT_TRUE(again) << error << text;
  EXPECT_EQ(printGraph(*again, false), text);
}

//===--- Wrong texts -------------------------------------------------------------------------------------------------//

struct Wrong {
  std::string name, text, message;
};
std::ostream& operator<<(std::ostream& stream, const Wrong& wrong) {
  return stream << wrong.name;
}

class WrongTextTest : public GraphTest, public testing::WithParamInterface<Wrong> {};

TEST_P(WrongTextTest, IsTold) {
  std::string error = parseError(GetParam().text);
  EXPECT_NE(error.find(GetParam().message), std::string::npos) << error.substr(0, 1000);
  EXPECT_EQ(error.find("graph:"), 0u) << error.substr(0, 1000);
}

// A graph of one argument that returns it.
std::string ofType(const std::string& type, const std::string& attributes = "") {
  return graphText("func.func @f(%x: " + type + attributes + ") -> " + type + " { return %x : " + type + " }");
}

std::string repeated(const std::string& text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i)
    result += text;
  return result;
}

// Aliases `#a0` to `#a<count>`, each of the one before it, as a graph's text before its module.
std::string aliases(int count, const std::string& first, const std::function<std::string(const std::string&)>& next) {
  std::string result = "#a0 = " + first + "\n";
  for (int i = 0; i < count; ++i)
    result += "#a" + std::to_string(i + 1) + " = " + next("#a" + std::to_string(i)) + "\n";
  return result;
}
std::string nestedAliases(int count) {
  return aliases(count, "1", [](const std::string& name) { return "[" + name + "]"; });
}
std::string doubledAliases(int count) {
  return aliases(count, "[\"0123456789\"]", [](const std::string& name) { return "[" + name + ", " + name + "]"; });
}
// A graph of one opaque operation with that attribute, or with that on its function or its module.
std::string withAttribute(const std::string& operation, const std::string& function = "",
                          const std::string& module = "") {
  return "module attributes {cermet.version = 1 : i64" + module +
         "} { func.func @f(%x: tensor<4xf32>) -> tensor<4xf32>" +
         (function.empty() ? "" : " attributes {" + function + "}") +
         " {\n  %0 = cermet.opaque \"g\"(%x) {effect = \"pure\"" + operation +
         "} : (tensor<4xf32>) -> tensor<4xf32>\n  return %0 : tensor<4xf32>\n} }";
}
std::string withConstant(const std::string& number) {
  return graphText("func.func @f() -> tensor<4xf32> {\n  %0 = cermet.constant " + number +
                   " : tensor<4xf32>\n  return %0 : tensor<4xf32> }");
}

INSTANTIATE_TEST_SUITE_P(
    Text, WrongTextTest,
    testing::Values(
        Wrong{"Empty", "", "graph:1:1: the text is empty"}, Wrong{"Blank", " \n\t ", "graph:1:1: the text is empty"},
        Wrong{"NotUtf8", "module {\n  \xff }", "graph:2:3: the text is not UTF-8"},
        Wrong{"Nonsense", "import torch", "graph:1:1: "}, Wrong{"Zeros", std::string(100, '\0'), "graph:1:1: "},
        Wrong{"Huge", std::string((64 << 20) + 1, ' '), "bytes, expected at most 67108864"},
        Wrong{"DeepAttributes", repeated("[", 1000000), "brackets nest deeper than 256"},
        Wrong{"DeepTypes", graphText("func.func @f(%x: " + repeated("tuple<", 100000)),
              "brackets nest deeper than 256"},
        Wrong{"DeepRegions", repeated("module {", 100000), "brackets nest deeper than 256"},
        Wrong{"Affine", "module attributes {a = affine_map<(d) -> (" + repeated("-", 100000) + "d)>} {}",
              "affine expressions have no place"},
        Wrong{"LongNumber", withConstant("1." + std::string(40000, '7')),
              "graph:3:24: a word of 40002 characters, expected numbers, shapes and names of at most 1024"},
        Wrong{"LongNumberBehindAString", withAttribute(", a = \"\\\"\", b = 0." + std::string(40000, '0') + "1"),
              "a word of 40003 characters"},
        Wrong{"LongInteger", withAttribute(", a = " + std::string(40000, '9')), "a word of 40000 characters"},
        Wrong{"LongShape", ofType("tensor<" + repeated("1x", 80000) + "f32>"),
              "graph:2:25: a word of 160003 characters"},
        Wrong{"LongSymbolicShape", ofType("tensor<?" + repeated("x1", 80000) + "xf32>"), "a word of 160004 characters"},
        Wrong{"LongName", graphText("func.func @" + std::string(1025, 'f') + "() { return }"),
              "graph:2:12: a word of 1025 characters"},
        Wrong{"WideInteger", ofType("i1025"), "graph:2:18: i1025 is an integer type of more bits than 1024"},
        Wrong{"WideIntegers", ofType("tensor<2x4xui16777215>"), "2x4xui16777215 is an integer type of more bits"},
        Wrong{"WidestInteger", withAttribute(", a = 1 : si" + std::string(1000, '9')), "more bits than 1024"},
        Wrong{"DeepAliases", nestedAliases(257) + withAttribute(""),
              "graph:258:10: brackets nest deeper than 256 with #a256 written out"},
        Wrong{"DeepAliasInAnOperation", nestedAliases(256) + withAttribute(", a = #a256"),
              "brackets nest deeper than 256 with #a256 written out"},
        Wrong{"DeepAliasInAFunction", nestedAliases(256) + withAttribute("", "a = #a256"),
              "brackets nest deeper than 256 with #a256 written out"},
        Wrong{"DeepAliasInAModule", nestedAliases(256) + withAttribute("", "", ", a = #a256"),
              "brackets nest deeper than 256 with #a256 written out"},
        Wrong{"DeeperAliases", nestedAliases(100000) + withAttribute(", a = #a100000"),
              "brackets nest deeper than 256"},
        Wrong{"DeepTypeAliases",
              "!t0 = f32\n!t1 = tuple<!t0>\n!t2 = " + repeated("tuple<", 255) + "!t1" + repeated(">", 255) + "\n" +
                  withAttribute(", a = !t2"),
              "brackets nest deeper than 256 with !t2 written out"},
        Wrong{"DoubledAliases", doubledAliases(40) + withAttribute(""),
              "graph:23:15: with its aliases written out the text has more bytes than 67108864"},
        Wrong{"DoubledAliasesInAnOperation", doubledAliases(21) + withAttribute(", a = [#a21, #a21]"),
              "with its aliases written out the text has more bytes than 67108864"},
        Wrong{"DoubledStrings",
              aliases(40, "@\"0123456789\"", [](const std::string& name) { return "[" + name + ", " + name + "]"; }) +
                  withAttribute(""),
              "with its aliases written out the text has more bytes than 67108864"},
        Wrong{"DoubledLocations",
              aliases(40, "loc(\"x\")",
                      [](const std::string& name) { return "loc(fused[" + name + ", " + name + "])"; }) +
                  withAttribute(""),
              "with its aliases written out the text has more bytes than 67108864"},
        Wrong{"LocationsBehind",
              graphText("func.func @f() {\n  return loc(#l)\n}") + "#l = loc(" + repeated("fused[", 253) + "\"x\"" +
                  repeated("]", 253) + ")",
              "brackets nest deeper than 256"},
        Wrong{"Resources", withAttribute("") + "\n{-# dialect_resources: { builtin: { a: \"0x08000000\" } } #-}",
              "graph:5:1: resources have no place in a graph"},
        Wrong{"Truncated", "module attributes {cermet.version = 1 : i64} { func.func @f(", "graph:1:"},
        Wrong{"NoVersion", "module { func.func @f() { return } }", "expected `cermet.version = 1 : i64`"},
        Wrong{"OtherVersion", "module attributes {cermet.version = 2 : i64} { func.func @f() { return } }",
              "cermet.version is 2, expected 1"},
        Wrong{"NoFunction", "module attributes {cermet.version = 1 : i64} {}", "the module has 0 operations"},
        Wrong{"TwoFunctions", graphText("func.func @f() { return } func.func @g() { return }"), "has 2 operations"},
        Wrong{"TwoModules", graphText("func.func @f() { return }") + "module {}", "graph:"},
        Wrong{"Declaration", graphText("func.func private @f()"), "expected a body of one"},
        Wrong{"Recursion", graphText("func.func @f() { call @f() : () -> () return }"),
              "'func.call' has no place in a graph"},
        Wrong{"UnknownOperation",
              graphText(
                  "func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {\n  %0 = cermet.frobnicate %x : tensor<4xf32>\n"
                  "return %0 : tensor<4xf32> }"),
              "graph:3:8: "},
        Wrong{"WrongReturn",
              graphText("func.func @f(%x: tensor<4xf32>) -> tensor<4xbf16> { return %x : tensor<4xf32> }"),
              "graph:2:"}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Types, WrongTextTest,
    testing::Values(
        Wrong{"Unnamed", ofType("tensor<?x4xf32>"), "argument 0 (x) 'tensor<?x4xf32>' has 1 unnamed dimensions"},
        Wrong{"TooFewNames", ofType("tensor<?x?xf32, #cermet.symbols<[\"a\"]>>"),
              "names 1 dimensions, the tensor type has 2"},
        Wrong{"TooManyNames", ofType("tensor<4xf32, #cermet.symbols<[\"a\"]>>"),
              "names 1 dimensions, the tensor type has 0"},
        Wrong{"EmptyName", ofType("tensor<?xf32, #cermet.symbols<[\"\"]>>"), "has an empty name"},
        Wrong{"OtherEncoding", ofType("tensor<4xf32, \"dense\">"), "expected #cermet.symbols"},
        Wrong{"Rank9", ofType("tensor<1x1x1x1x1x1x1x1x1xf32>"), "has rank 9, expected at most 8"},
        Wrong{"Unranked", ofType("tensor<*xf32>"), "has no rank"},
        Wrong{"ZeroSize", ofType("tensor<0x4xf32>"), "has a dimension of size 0"},
        Wrong{"Overflow", ofType("tensor<4611686018427387904x4611686018427387904xf32>"), "more elements than 2^60"},
        Wrong{"TooManyStrides", ofType("tensor<4xf32>", " {cermet.strides = array<i64: 1, 1>}"),
              "has 2 strides, expected 1"},
        Wrong{"NegativeStride", ofType("tensor<4xf32>", " {cermet.strides = array<i64: -2>}"), "has stride -2"},
        Wrong{"StridesOfAnotherKind", ofType("tensor<4xf32>", " {cermet.strides = 1 : i64}"),
              "expected array<i64: ...>"}),
    [](const auto& info) { return info.param.name; });

// One operation, on line 3, column 8 (or 10 with two results).
std::string withOp(const std::string& arguments, const std::string& op, const std::string& result) {
  return graphText("func.func @f(" + arguments + ") -> " + result + " {\n  %0 = " + op + "\nreturn %0 : " + result +
                   " }");
}

INSTANTIATE_TEST_SUITE_P(
    Verifiers, WrongTextTest,
    testing::Values(
        Wrong{"Cast", withOp("%x: tensor<4xf32>", "cermet.cast %x : tensor<4xf32> to tensor<5xbf16>", "tensor<5xbf16>"),
              "graph:3:8: 'cermet.cast' op result has shape [5], expected [4] (operand's)"},
        Wrong{
            "CastSymbol",
            withOp(
                "%x: tensor<?xf32, #cermet.symbols<[\"a\"]>>",
                "cermet.cast %x : tensor<?xf32, #cermet.symbols<[\"a\"]>> to tensor<?xbf16, #cermet.symbols<[\"b\"]>>",
                "tensor<?xbf16, #cermet.symbols<[\"b\"]>>"),
            "graph:3:8: 'cermet.cast' op result has shape [b], expected [a] (operand's)"},
        Wrong{"MixedTypes",
              withOp("%x: tensor<4xf32>, %y: tensor<4xbf16>", "cermet.add %x, %y : tensor<4xf32>", "tensor<4xf32>"),
              "use of value '%y' expects different type than prior uses: 'tensor<4xf32>' vs 'tensor<4xbf16>'"},
        Wrong{"BroadcastShape",
              withOp("%x: tensor<3xf32>", "cermet.broadcast %x : tensor<3xf32> to tensor<2x4xf32>", "tensor<2x4xf32>"),
              "operand has shape [3], expected one that extends to the result's shape [2, 4]"},
        Wrong{
            "BroadcastElement",
            withOp("%x: tensor<4xf32>", "cermet.broadcast %x : tensor<4xf32> to tensor<2x4xbf16>", "tensor<2x4xbf16>"),
            "result has element type 'bf16', expected 'f32' (operand's)"},
        Wrong{"Reshape",
              withOp("%x: tensor<3x4xf32>", "cermet.reshape %x : tensor<3x4xf32> to tensor<5xf32>", "tensor<5xf32>"),
              "result has 5 elements [5], expected the operand's 12 [3, 4]"},
        Wrong{"ReduceSum",
              withOp("%x: tensor<3x4xf32>", "cermet.reduce_sum %x : tensor<3x4xf32> to tensor<3xf32>", "tensor<3xf32>"),
              "'cermet.reduce_sum' op result has shape [3], expected [3, 1]"},
        Wrong{"SumRows",
              withOp("%x: tensor<3x4xf32>", "cermet.sum_rows %x : tensor<3x4xf32> to tensor<3xf32>", "tensor<3xf32>"),
              "'cermet.sum_rows' op result has shape [3], expected [4] (operand's last dimension)"},
        Wrong{"ReduceScalar",
              withOp("%x: tensor<f32>", "cermet.reduce_sum %x : tensor<f32> to tensor<f32>", "tensor<f32>"),
              "operand has rank 0"},
        Wrong{"Matmul",
              withOp("%x: tensor<3x4xf32>, %y: tensor<5x2xf32>",
                     "cermet.matmul %x, %y : tensor<3x4xf32>, tensor<5x2xf32> to tensor<3x2xf32>", "tensor<3x2xf32>"),
              "rhs has shape [5, 2], expected dimension 0 to be lhs's last, lhs is [3, 4]"},
        Wrong{"MatmulBoth",
              withOp("%x: tensor<4x4xf32>",
                     "cermet.matmul %x, %x {transpose_lhs, transpose_rhs} : tensor<4x4xf32>, "
                     "tensor<4x4xf32> to tensor<4x4xf32>",
                     "tensor<4x4xf32>"),
              "expected at most one"},
        Wrong{"IntegerArithmetic", withOp("%x: tensor<4xi32>", "cermet.exp %x : tensor<4xi32>", "tensor<4xi32>"),
              "'cermet.exp' op operand #0 must be"},
        Wrong{"OpaqueEffect",
              withOp("%x: tensor<4xf32>",
                     "cermet.opaque \"aten.foo\"(%x) {effect = \"mild\"} : (tensor<4xf32>) -> tensor<4xf32>",
                     "tensor<4xf32>"),
              "effect is \"mild\", expected \"pure\", \"effectful\" or \"write\""},
        Wrong{"OpaqueVersions",
              withOp("%x: tensor<4xf32>",
                     "cermet.opaque \"aten.add_\"(%x) {effect = \"write\", versions = 2 : i64} : (tensor<4xf32>) -> "
                     "tensor<4xf32>",
                     "tensor<4xf32>"),
              "versions is 2, expected 1 to the smaller of 1 operands and 1 results"},
        Wrong{"OpaqueVersionType",
              withOp("%x: tensor<4xf32>",
                     "cermet.opaque \"aten.add_\"(%x) {effect = \"write\", versions = 1 : i64} : (tensor<4xf32>) -> "
                     "tensor<2xf32>",
                     "tensor<2xf32>"),
              "result 0 has type 'tensor<2xf32>', expected 'tensor<4xf32>' (a new version of operand 0)"},
        Wrong{"RmsNormWeight",
              withOp("%x: tensor<3x4xf32>, %w: tensor<3xf32>",
                     "cermet.rms_norm %x, %w {eps = 1.0e-5 : f64} : tensor<3x4xf32>, tensor<3xf32> to tensor<3x4xf32>",
                     "tensor<3x4xf32>"),
              "'cermet.rms_norm' op weight has 3 elements, expected 4 (last dimension of x)"},
        Wrong{"RmsNormEps",
              withOp("%x: tensor<3x4xf32>, %w: tensor<4xf32>",
                     "cermet.rms_norm %x, %w {eps = -1.0 : f64} : tensor<3x4xf32>, tensor<4xf32> to tensor<3x4xf32>",
                     "tensor<3x4xf32>"),
              "eps is -1.000000e+00, expected a finite number that is not negative"},
        Wrong{"RmsNormColumns",
              withOp(
                  "%x: tensor<3x?xf32, #cermet.symbols<[\"n\"]>>, %w: tensor<4xf32>",
                  "cermet.rms_norm %x, %w {eps = 1.0 : f64} : tensor<3x?xf32, #cermet.symbols<[\"n\"]>>, tensor<4xf32> "
                  "to tensor<3x?xf32, #cermet.symbols<[\"n\"]>>",
                  "tensor<3x?xf32, #cermet.symbols<[\"n\"]>>"),
              "x has shape [3, n], expected a static last dimension"},
        Wrong{"GluActivation",
              withOp("%x: tensor<4xf32>", "cermet.glu %x, %x {activation = \"tanh\"} : tensor<4xf32>", "tensor<4xf32>"),
              "activation is \"tanh\", expected \"silu\", \"gelu\" or \"gelu_tanh\""}),
    [](const auto& info) { return info.param.name; });

// The largest of each kind is read, and what is printed of it too.
TEST_F(TextTest, LimitsAreReached) {
  const std::string numbers[] = {"1." + std::string(1022, '7'), "0." + std::string(1021, '0') + "1",
                                 std::string(1022, '9') + ".0", "1.5e-" + std::string(1000, '9'), "1.0e308"};
  const std::string symbols = "#s = #cermet.symbols<[\"r0\"]>\n!t = tensor<?x4xf32, #s>\n";
  std::vector<std::string> texts = {
      nestedAliases(253) + withAttribute(", a = #a253"),
      doubledAliases(18) + withAttribute(", a = [#a18, #a18]"),
      ofType("i1024"),
      graphText("func.func @" + std::string(1024, 'f') + "() { return }"),
      symbols + graphText("func.func @f(%x: !t loc(\"" + std::string(5000, 'n') + "\")) -> !t { return %x : !t }"),
      graphText("func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {\n  %0 = cermet.neg %x : tensor<4xf32> loc(#l)\n"
                "return %0 : tensor<4xf32> }") +
          "#l = loc(\"x\")\n"};
  for (const std::string& number : numbers)
    texts.push_back(withConstant(number));
  for (const std::string& text : texts)
    for (bool withLocations : {true, false}) {
      std::string error;
      OwningOpRef<ModuleOp> graph = parseGraph(text, context, error);
      ASSERT_TRUE(graph) << error << text.substr(0, 1000);
      const std::string printed = printGraph(*graph, withLocations);
      OwningOpRef<ModuleOp> again = parseGraph(printed, context, error);
      ASSERT_TRUE(again) << error << printed.substr(0, 1000);
      EXPECT_EQ(printGraph(*again, withLocations), printed);
    }
}

TEST_F(TextTest, AddRmsNormTypes) {
  std::string error = parseError(graphText(R"(
    func.func @f(%x: tensor<3x4xbf16>, %r: tensor<3x4xf32>, %w: tensor<4xf32>) -> tensor<3x4xf32> {
      %0:2 = cermet.add_rms_norm %x, %r, %w {eps = 1.0e-5 : f64} : tensor<3x4xbf16>, tensor<3x4xf32>, tensor<4xf32> to tensor<3x4xf32>, tensor<3x4xbf16>
      return %0#0 : tensor<3x4xf32>
    })"));
  EXPECT_NE(error.find("sum has element type 'bf16', expected 'f32' (promoted from x's and residual's)"),
            std::string::npos)
      << error;
}

// Damaged text is refused with a place, or read and printed as a fixed point; nothing else happens.
TEST_F(TextTest, DamagedTextNeverCrashes) {
  const std::string pieces[] = {"<",
                                ">",
                                "?",
                                "\"",
                                "#cermet.symbols<",
                                "tensor<",
                                "9223372036854775807",
                                "-1",
                                "%x",
                                "{",
                                "}",
                                "loc(",
                                "0x",
                                "\\",
                                "cermet.rms_norm",
                                "array<i64: ",
                                "1.0e400",
                                "f64",
                                "return"};
  auto at = [&](const std::string& text) { return generator() % (text.size() + 1); };
  for (int i = 0; i < 3000; ++i) {
    std::string text = named;
    for (int damage = generator() % 4; damage >= 0; --damage) {
      size_t position = at(text), length = generator() % 12;
      if (generator() % 3 == 0)
        text.erase(position, length);
      else if (generator() % 2)
        text.insert(position, pieces[generator() % std::size(pieces)]);
      else
        text.insert(at(text), text.substr(position, length));
    }
    std::string error;
    OwningOpRef<ModuleOp> graph = parseGraph(text, context, error);
    if (!graph) {
      ASSERT_EQ(error.find("graph:"), 0u) << error << "\n" << text;
      continue;
    }
    for (bool withLocations : {true, false}) {
      std::string printed = printGraph(*graph, withLocations);
      OwningOpRef<ModuleOp> again = parseGraph(printed, context, error);
      ASSERT_TRUE(again) << error << "\n" << printed;
      ASSERT_EQ(printGraph(*again, withLocations), printed);
    }
  }
}

TEST_F(TextTest, StringsArePrintedAsTheyAre) {
  OwningOpRef<ModuleOp> graph = parse(R"text(func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = cermet.opaque "a \" loc(unknown)"(%x) : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32> })text");
  ASSERT_TRUE(graph);
  std::string text = printGraph(*graph, true);
  EXPECT_NE(text.find(R"text(cermet.opaque "a \22 loc(unknown)")text"), std::string::npos) << text;
}

// A named node is found by name and by line.
TEST_F(TextTest, ErrorOfANamedNodeHasItsPlace) {
  std::string error = parseError(graphText(
      "func.func @f(%x: tensor<3x4xf32>) -> tensor<4xf32> {\n  %0 = cermet.reduce_sum %x : tensor<3x4xf32> to "
      "tensor<4xf32> loc(\"sum_3\")\nreturn %0 : tensor<4xf32> }"));
  EXPECT_EQ(error.find("graph:3:8: 'cermet.reduce_sum' op result has shape [4]"), 0u) << error;
}

} // namespace
} // namespace cermet::ir
