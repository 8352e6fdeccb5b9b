// What a backward reads, what a forward saves, and what has no gradient.
#include "ir/gradient/Gradient.h"
#include "tests/unit/ir/gradient/GradientTest.h"
#include <cmath>

using namespace mlir;

namespace cermet::ir {
namespace {

class GradientPlanTest : public GraphTest {
protected:
  bool differentiateText(const std::string& function, std::initializer_list<bool> wanted) {
    graph = parse(function);
    return graph && differentiate(*graph, ArrayRef(wanted.begin(), wanted.size()), gradient, error);
  }
  std::string origins() const {
    std::string text;
    for (Gradient::Origin origin : gradient.backwardInputs)
      text += "IOSC"[origin.from] + std::to_string(origin.index) + " ";
    return text;
  }

  OwningOpRef<ModuleOp> graph;
  Gradient gradient;
  std::string error;
};

TEST_F(GradientPlanTest, RmsNormSavesOneNumberPerRow) {
  ASSERT_TRUE(differentiateText(norm("bf16", "bf16", "bf16", ", round_before_weight"), {true, true})) << error;
  EXPECT_EQ(origins(), "I0 I1 S0 C0 ");
  EXPECT_EQ(gradient.outputs, 1);
  EXPECT_EQ(gradient.saved, 1);
  func::FuncOp forward = graphFunction(*gradient.forward), backward = graphFunction(*gradient.backward);
  EXPECT_EQ(forward.getName(), "norm_forward");
  EXPECT_EQ(backward.getName(), "norm_backward");
  std::string saved;
  llvm::raw_string_ostream(saved) << forward.getResultTypes()[1];
  EXPECT_EQ(saved, "tensor<?x1xf32, #cermet.symbols<[\"r0\"]>>");
  EXPECT_EQ(argumentName(backward, 0), "x");
  EXPECT_EQ(argumentName(backward, 2), "saved0");
  EXPECT_EQ(argumentName(backward, 3), "grad_0");
}

TEST_F(GradientPlanTest, AddRmsNormReadsItsSum) {
  ASSERT_TRUE(
      differentiateText(addNorm("bf16", "bf16", "bf16", "bf16", "bf16", ", round_before_weight"), {true, true, true}))
      << error;
  EXPECT_EQ(origins(), "I2 O1 S0 C0 C1 ");
  EXPECT_EQ(gradient.backwardOutputs, (std::vector<std::vector<int>>{{0, 1}, {2}}));
}

TEST_F(GradientPlanTest, GluSavesNothingAndStaysFused) {
  ASSERT_TRUE(differentiateText("func.func @glu(%g: tensor<3x4xbf16>, %u: tensor<3x4xbf16>) -> tensor<3x4xbf16> { %0 = "
                                "cermet.glu %g, %u : tensor<3x4xbf16> return %0 : tensor<3x4xbf16> }",
                                {true, true}))
      << error;
  EXPECT_EQ(origins(), "I0 I1 C0 ");
  EXPECT_NE(printGraph(*gradient.forward, false).find("cermet.glu"), std::string::npos);
}

TEST_F(GradientPlanTest, ExpReadsItsOutput) {
  ASSERT_TRUE(differentiateText("func.func @f(%x: tensor<3xf32>) -> tensor<3xf32> { %0 = cermet.exp %x : tensor<3xf32> "
                                "return %0 : tensor<3xf32> }",
                                {true}))
      << error;
  EXPECT_EQ(origins(), "O0 C0 ");
}

TEST_F(GradientPlanTest, UnwantedInputsCostNothing) {
  ASSERT_TRUE(differentiateText(norm("bf16", "bf16", "bf16", ", round_before_weight"), {false, true})) << error;
  EXPECT_EQ(origins(), "I0 S0 C0 ");
  EXPECT_EQ(gradient.backwardOutputs, (std::vector<std::vector<int>>{{1}}));
}

TEST_F(GradientPlanTest, NothingReachesAnInput) {
  ASSERT_TRUE(
      differentiateText("func.func @f(%x: tensor<3xf32>, %y: tensor<3xf32>) -> tensor<3xf32> { %0 = cermet.cast "
                        "%x : tensor<3xf32> to tensor<3xi32> %1 = cermet.cast %0 : tensor<3xi32> to "
                        "tensor<3xf32> %2 = cermet.add %1, %y : tensor<3xf32> return %2 : tensor<3xf32> }",
                        {true, true}))
      << error;
  Array ones{{3}, {1, 2, 3}};
  std::vector<Array> gradients = run(*gradient.backward, {ones}, true);
  EXPECT_EQ(gradients[0].data, (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(gradients[1].data, ones.data);
}

TEST_F(GradientPlanTest, StridesOfInputsAreKept) {
  ASSERT_TRUE(differentiateText("func.func @f(%x: tensor<3x4xf32> {cermet.strides = array<i64: 8, 1>}) -> "
                                "tensor<3x4xf32> { %0 = cermet.mul %x, %x : tensor<3x4xf32> return %0 : "
                                "tensor<3x4xf32> }",
                                {true}))
      << error;
  EXPECT_TRUE(graphFunction(*gradient.backward).getArgAttr(0, "cermet.strides"));
}

TEST_F(GradientPlanTest, Refusals) {
  EXPECT_FALSE(differentiateText("func.func @f(%x: tensor<3xi64>) -> tensor<3xf32> { %0 = cermet.cast %x : "
                                 "tensor<3xi64> to tensor<3xf32> return %0 : tensor<3xf32> }",
                                 {true}));
  EXPECT_NE(error.find("input 0 (x) has type 'tensor<3xi64>', expected a float tensor"), std::string::npos) << error;
  EXPECT_FALSE(
      differentiateText("func.func @f(%x: tensor<3xf32>) -> tensor<3xf32> { %0 = cermet.opaque \"aten.erf\"(%x)"
                        " : (tensor<3xf32>) -> tensor<3xf32> return %0 : tensor<3xf32> }",
                        {true}));
  EXPECT_NE(error.find("graph:2:"), std::string::npos) << error;
  EXPECT_NE(error.find("\"aten.erf\" lies between a wanted input and an output"), std::string::npos) << error;
  EXPECT_FALSE(differentiateText(
      R"(func.func @f(%x: tensor<?x4xf32, #cermet.symbols<["a"]>>, %y: tensor<?x4xf32, #cermet.symbols<["b"]>>) -> tensor<?x4xf32, #cermet.symbols<["b"]>> {
      %0 = cermet.slice %x [1, 0] : tensor<?x4xf32, #cermet.symbols<["a"]>> to tensor<?x4xf32, #cermet.symbols<["b"]>>
      %1 = cermet.mul %0, %y : tensor<?x4xf32, #cermet.symbols<["b"]>>
      return %1 : tensor<?x4xf32, #cermet.symbols<["b"]>> })",
      {true, true}));
  EXPECT_NE(error.find("from [a, 4] to [b, 4] has no gradient in the dialect: expected dimension 0, of symbol a, to be "
                       "taken whole"),
            std::string::npos)
      << error;
  EXPECT_FALSE(differentiateText("func.func @f(%x: tensor<3xf32>) -> tensor<3xf32> { return %x : tensor<3xf32> }", {}));
  EXPECT_NE(error.find("has 1 inputs, given `wanted` for 0"), std::string::npos) << error;
}

// The input is not read; its number of rows is.
TEST_F(GradientPlanTest, InputsBindSymbols) {
  ASSERT_TRUE(differentiateText("func.func @f(%x: tensor<?x4xf32, #cermet.symbols<[\"a\"]>>) -> tensor<4xf32> { %0 = "
                                "cermet.sum_rows %x : tensor<?x4xf32, #cermet.symbols<[\"a\"]>> to tensor<4xf32> "
                                "return %0 : tensor<4xf32> }",
                                {true}))
      << error;
  EXPECT_EQ(origins(), "I0 C0 ");
}

// Slices that share nothing leave one tensor, joined and not added.
TEST_F(GradientPlanTest, HalvesAreJoined) {
  ASSERT_TRUE(differentiateText("func.func @f(%x: tensor<2x8xbf16>) -> tensor<2x4xbf16> { %0 = cermet.packed_glu %x : "
                                "tensor<2x8xbf16> to tensor<2x4xbf16> return %0 : tensor<2x4xbf16> }",
                                {true}))
      << error;
  EXPECT_EQ(origins(), "I0 C0 ");
  std::string text = printGraph(*gradient.backward, false);
  EXPECT_NE(printGraph(*gradient.forward, false).find("cermet.packed_glu"), std::string::npos);
  EXPECT_EQ(text.find("cermet.constant 0.000000e+00"), std::string::npos) << text;
  size_t concat = text.find("cermet.concat");
  ASSERT_NE(concat, std::string::npos) << text;
  EXPECT_EQ(text.find("cermet.concat", concat + 1), std::string::npos) << text;
}

// A softmax's backward is given its rows' extreme and sum.
TEST_F(GradientPlanTest, ExtremesOfRowsAreSaved) {
  ASSERT_TRUE(differentiateText(R"(func.func @f(%x: tensor<3x5xf32>) -> tensor<3x5xf32> {
      %0 = cermet.reduce_max %x : tensor<3x5xf32> to tensor<3x1xf32>
      %1 = cermet.broadcast %0 : tensor<3x1xf32> to tensor<3x5xf32>
      %2 = cermet.sub %x, %1 : tensor<3x5xf32>
      %3 = cermet.mul %2, %2 : tensor<3x5xf32>
      return %3 : tensor<3x5xf32> })",
                                {true}))
      << error;
  EXPECT_EQ(origins(), "I0 S0 S1 C0 ");
  std::string text = printGraph(*gradient.backward, false);
  EXPECT_EQ(text.find("cermet.reduce_max"), std::string::npos) << text;
}

//===--- Where a function has no slope -------------------------------------------------------------------------------//

class GradientEdgeTest : public GraphTest {
protected:
  // The gradients of all inputs for cotangents of 1.
  std::vector<Array> gradientsAt(const std::string& function, ArrayRef<Array> inputs) {
    OwningOpRef<ModuleOp> graph = parse(function);
    Gradient gradient;
    std::string error;
    SmallVector<bool> wanted(inputs.size(), true);
    if (!graph || !differentiate(*graph, wanted, gradient, error)) {
      ADD_FAILURE() << error;
      return {};
    }
    std::vector<Array> forward = run(*gradient.forward, inputs, false), given, results(inputs.size());
    for (Gradient::Origin origin : gradient.backwardInputs) {
      Array one = forward[0];
      one.data.assign(one.data.size(), 1);
      given.push_back(origin.from == Gradient::Origin::Input    ? inputs[origin.index]
                      : origin.from == Gradient::Origin::Output ? forward[origin.index]
                      : origin.from == Gradient::Origin::Saved  ? forward[gradient.outputs + origin.index]
                                                                : one);
    }
    std::vector<Array> gradients = run(*gradient.backward, given, false);
    for (auto [shared, result] : llvm::zip(gradient.backwardOutputs, gradients))
      for (int input : shared)
        results[input] = result;
    return results;
  }
  std::vector<double> unaryAt(const std::string& op, std::vector<double> x) {
    std::string type = "tensor<" + std::to_string(x.size()) + "xf64>";
    std::vector<Array> gradients = gradientsAt("func.func @f(%x: " + type + ") -> " + type + " { %0 = cermet." + op +
                                                   " %x : " + type + " return %0 : " + type + " }",
                                               Array{{int64_t(x.size())}, x});
    return gradients.empty() ? std::vector<double>() : gradients[0].data;
  }
  std::vector<Array> binaryAt(const std::string& op, std::vector<double> x, std::vector<double> y) {
    std::string type = "tensor<" + std::to_string(x.size()) + "xf64>";
    return gradientsAt("func.func @f(%x: " + type + ", %y: " + type + ") -> " + type + " { %0 = cermet." + op +
                           " %x, %y : " + type + " return %0 : " + type + " }",
                       {Array{{int64_t(x.size())}, x}, Array{{int64_t(y.size())}, y}});
  }
  std::vector<double> rowAt(const std::string& op, std::vector<double> x) {
    std::string size = std::to_string(x.size());
    return gradientsAt("func.func @f(%x: tensor<1x" + size + "xf64>) -> tensor<1x1xf64> { %0 = cermet." + op +
                           " %x : tensor<1x" + size + "xf64> to tensor<1x1xf64> return %0 : tensor<1x1xf64> }",
                       Array{{1, int64_t(x.size())}, x})[0]
        .data;
  }
  static Array numbers(std::vector<double> data) { return {{int64_t(data.size())}, data}; }
};

TEST_F(GradientEdgeTest, Elementwise) {
  EXPECT_EQ(unaryAt("relu", {-1, -0.0, 0, 1}), (std::vector<double>{0, 0, 0, 1}));
  EXPECT_EQ(unaryAt("relu", {NAN}), (std::vector<double>{1}));
  EXPECT_EQ(unaryAt("abs", {-1, -0.0, 0, 1}), (std::vector<double>{-1, 0, 0, 1}));
  EXPECT_EQ(unaryAt("sqrt", {0}), (std::vector<double>{INFINITY}));
}

TEST_F(GradientEdgeTest, MaxAndMinShareATie) {
  std::vector<Array> max = binaryAt("max", {1, 2, 3, NAN}, {2, 2, 2, 1});
  EXPECT_TRUE(sameBits(max[0], numbers({0, 0.5, 1, 1})));
  EXPECT_TRUE(sameBits(max[1], numbers({1, 0.5, 0, 1})));
  std::vector<Array> min = binaryAt("min", {1, 2, 3, NAN}, {2, 2, 2, 1});
  EXPECT_TRUE(sameBits(min[0], numbers({1, 0.5, 0, 1})));
  EXPECT_TRUE(sameBits(min[1], numbers({0, 0.5, 1, 1})));
}

TEST_F(GradientEdgeTest, PowAtZero) {
  std::vector<Array> pow = binaryAt("pow", {0, 0, 0, 0, 3, -2}, {0, 2, 1, 0.5, 0, 2});
  EXPECT_TRUE(sameBits(pow[0], numbers({0, 0, 1, INFINITY, 0, -4})));
  EXPECT_TRUE(sameBits(pow[1], numbers({0, 0, 0, 0, std::log(3.0), NAN})));
}

TEST_F(GradientEdgeTest, EqualExtremesShare) {
  EXPECT_EQ(rowAt("reduce_max", {1, 4, 2, 4, 4, 4}), (std::vector<double>{0, 0.25, 0, 0.25, 0.25, 0.25}));
  EXPECT_EQ(rowAt("reduce_min", {1, 4, 1}), (std::vector<double>{0.5, 0, 0.5}));
  for (double value : rowAt("reduce_max", {1, NAN, 2}))
    EXPECT_TRUE(std::isnan(value));
}

// More rows than the index's type can count: -1 is no row, and the last one is not it.
TEST_F(GradientPlanTest, GatherOfANarrowIndex) {
  ASSERT_TRUE(differentiateText(
      "func.func @f(%x: tensor<256x1xf32>, %i: tensor<3xi8>) -> tensor<3x1xf32> { %0 = cermet.gather %x, %i : "
      "tensor<256x1xf32>, tensor<3xi8> to tensor<3x1xf32> return %0 : tensor<3x1xf32> }",
      {true, false}))
      << error;
  EXPECT_EQ(origins(), "I1 C0 ");
  Array expected{{256, 1}, std::vector<double>(256, 0.0)};
  expected.data[5] = 3;
  EXPECT_TRUE(sameBits(run(*gradient.backward, {Array{{3}, {5, -1, 5}}, Array{{3, 1}, {1, 4, 2}}}, true)[0], expected));
}

} // namespace
} // namespace cermet::ir
