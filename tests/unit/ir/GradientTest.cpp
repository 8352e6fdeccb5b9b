// Every gradient against central differences of the forward, both in float64 through the interpreter.
#include "ir/Gradient.h"
#include "tests/unit/ir/GraphTest.h"
#include <cmath>

using namespace mlir;

namespace cermet::ir {
namespace {

struct Case {
  std::string name, function;
  double lowest = -2, highest = 2;
};

std::ostream& operator<<(std::ostream& stream, const Case& c) {
  return stream << c.name;
}

class GradientTest : public GraphTest, public testing::WithParamInterface<Case> {
protected:
  Gradient differentiateAll(ModuleOp graph) {
    std::vector<char> wanted(graphFunction(graph).getNumArguments(), true);
    Gradient gradient;
    std::string error;
    EXPECT_TRUE(differentiate(graph, ArrayRef(reinterpret_cast<bool*>(wanted.data()), wanted.size()), gradient, error))
        << error;
    return gradient;
  }

  // What the backward gets, from a run of the forward.
  // One gradient for each input from the backward's results, which inputs may share.
  std::vector<Array> perInput(const Gradient& gradient, ArrayRef<Array> results, size_t inputs) {
    EXPECT_EQ(results.size(), gradient.backwardOutputs.size());
    std::vector<Array> gradients(inputs);
    size_t found = 0;
    for (auto [shared, result] : llvm::zip(gradient.backwardOutputs, results))
      for (int input : shared) {
        gradients[input] = result;
        ++found;
      }
    EXPECT_EQ(found, inputs);
    return gradients;
  }

  std::vector<Array> backwardInputs(const Gradient& gradient, ArrayRef<Array> inputs, ArrayRef<Array> forward,
                                    ArrayRef<Array> cotangents) {
    std::vector<Array> result;
    for (Gradient::Origin origin : gradient.backwardInputs) {
      switch (origin.from) {
      case Gradient::Origin::Input:
        result.push_back(inputs[origin.index]);
        break;
      case Gradient::Origin::Output:
        result.push_back(forward[origin.index]);
        break;
      case Gradient::Origin::Saved:
        result.push_back(forward[gradient.outputs + origin.index]);
        break;
      case Gradient::Origin::Cotangent:
        result.push_back(cotangents[origin.index]);
        break;
      }
    }
    return result;
  }

  double loss(ModuleOp graph, ArrayRef<Array> inputs, ArrayRef<Array> cotangents) {
    std::vector<Array> outputs = run(graph, inputs, false);
    double sum = 0;
    for (size_t k = 0; k < outputs.size(); ++k)
      for (size_t i = 0; i < outputs[k].data.size(); ++i)
        sum += outputs[k].data[i] * cotangents[k].data[i];
    return sum;
  }
};

TEST_P(GradientTest, EqualsCentralDifferences) {
  OwningOpRef<ModuleOp> graph = parse(GetParam().function);
  ASSERT_TRUE(graph);
  std::vector<Array> inputs = randomInputs(*graph, GetParam().lowest, GetParam().highest), cotangents;
  std::vector<Array> outputs = run(*graph, inputs, false);
  for (const Array& output : outputs)
    cotangents.push_back(random(output.shape));

  Gradient gradient = differentiateAll(*graph);
  ASSERT_TRUE(gradient.backward);
  std::vector<Array> forward = run(*gradient.forward, inputs, false);
  ASSERT_EQ(forward.size(), outputs.size() + gradient.saved);
  for (size_t k = 0; k < outputs.size(); ++k)
    EXPECT_LE(relativeError(forward[k], outputs[k]), 1e-14);
  std::vector<Array> gradients = run(*gradient.backward, backwardInputs(gradient, inputs, forward, cotangents), false);
  gradients = perInput(gradient, gradients, inputs.size());

  constexpr double step = 1e-5;
  for (size_t k = 0; k < inputs.size(); ++k) {
    ASSERT_EQ(gradients[k].shape, inputs[k].shape);
    for (size_t i = 0; i < inputs[k].data.size(); ++i) {
      std::vector<Array> moved = inputs;
      moved[k].data[i] = inputs[k].data[i] + step;
      double above = loss(*graph, moved, cotangents);
      moved[k].data[i] = inputs[k].data[i] - step;
      double expected = (above - loss(*graph, moved, cotangents)) / (2 * step);
      EXPECT_NEAR(gradients[k].data[i], expected, 2e-7 * (1 + std::fabs(expected)))
          << "input " << k << ", element " << i << "\n"
          << printGraph(*gradient.backward, false);
    }
  }
}

// The rounded program's gradient stays as near the true one as its own types allow, and its forward is the original,
// bit for bit.
TEST_P(GradientTest, RoundsLittle) {
  OwningOpRef<ModuleOp> graph = parse(GetParam().function);
  ASSERT_TRUE(graph);
  std::vector<Array> inputs = randomInputs(*graph, GetParam().lowest, GetParam().highest), cotangents;
  for (auto [input, type] : llvm::zip(inputs, graphFunction(*graph).getArgumentTypes()))
    for (double& value : input.data)
      value = roundTo(cast<RankedTensorType>(type).getElementType(), value);
  std::vector<Array> outputs = run(*graph, inputs, true);
  for (auto [output, type] : llvm::zip(outputs, graphFunction(*graph).getResultTypes())) {
    cotangents.push_back(random(output.shape));
    for (double& value : cotangents.back().data)
      value = roundTo(cast<RankedTensorType>(type).getElementType(), value);
  }
  Gradient gradient = differentiateAll(*graph);
  ASSERT_TRUE(gradient.backward);
  std::vector<Array> exactForward = run(*gradient.forward, inputs, false),
                     forward = run(*gradient.forward, inputs, true);
  for (size_t k = 0; k < outputs.size(); ++k)
    EXPECT_EQ(forward[k].data, outputs[k].data);
  std::vector<Array> exact = run(*gradient.backward, backwardInputs(gradient, inputs, exactForward, cotangents), false);
  std::vector<Array> rounded = run(*gradient.backward, backwardInputs(gradient, inputs, forward, cotangents), true);
  for (size_t k = 0; k < exact.size(); ++k)
    EXPECT_LE(relativeError(rounded[k], exact[k]), 0.02) << "input " << k;
}

// Both texts stand for themselves: printed and read again they say the same and compute the same.
TEST_P(GradientTest, TextsAreGraphs) {
  OwningOpRef<ModuleOp> graph = parse(GetParam().function);
  ASSERT_TRUE(graph);
  Gradient gradient = differentiateAll(*graph);
  ASSERT_TRUE(gradient.backward);
  for (ModuleOp part : {*gradient.forward, *gradient.backward}) {
    std::string text = printGraph(part, false), error;
    OwningOpRef<ModuleOp> again = parseGraph(text, context, error);
    ASSERT_TRUE(again) << error << "\n" << text;
    EXPECT_EQ(printGraph(*again, false), text);
    std::vector<Array> inputs = randomInputs(part, 0.5, 2);
    std::vector<Array> first = run(part, inputs, true), second = run(*again, inputs, true);
    for (size_t k = 0; k < first.size(); ++k)
      EXPECT_EQ(first[k].data, second[k].data);
  }
}

Case unary(const std::string& op, double lowest = -2, double highest = 2) {
  return {op,
          "func.func @f(%x: tensor<3x4xf32>) -> tensor<3x4xf32> { %0 = cermet." + op +
              " %x : tensor<3x4xf32> return %0 : tensor<3x4xf32> }",
          lowest, highest};
}

Case binary(const std::string& op, double lowest = -2, double highest = 2) {
  return {op,
          "func.func @f(%x: tensor<3x4xf64>, %y: tensor<3x4xf64>) -> tensor<3x4xf64> { %0 = cermet." + op +
              " %x, %y : tensor<3x4xf64> return %0 : tensor<3x4xf64> }",
          lowest, highest};
}

// One operation from a shape to another, times an input of the result's shape, so that its cotangent is no constant.
Case shaped(const std::string& name, const std::string& op, std::string from, std::string to) {
  from = "tensor<" + from + ">", to = "tensor<" + to + ">";
  return {name, "func.func @f(%x: " + from + ", %y: " + to + ") -> " + to + " { %0 = cermet." + op + " %x : " + from +
                    " to " + to + " %1 = cermet.mul %0, %y : " + to + " return %1 : " + to + " }"};
}

Case matmul(const std::string& name, const std::string& lhs, const std::string& rhs, const std::string& result,
            const std::string& attributes) {
  return {name, "func.func @f(%x: tensor<" + lhs + "xf32>, %y: tensor<" + rhs + "xf32>) -> tensor<" + result +
                    "xf32> { %0 = cermet.matmul %x, %y " + attributes + " : tensor<" + lhs + "xf32>, tensor<" + rhs +
                    "xf32> to tensor<" + result + "xf32> return %0 : tensor<" + result + "xf32> }"};
}

INSTANTIATE_TEST_SUITE_P(Elementwise, GradientTest,
                         testing::Values(binary("add"), binary("sub"), binary("mul"), binary("div", 0.5, 2),
                                         unary("neg"), unary("exp"), unary("rsqrt", 0.5, 3), unary("sigmoid"),
                                         unary("silu", -4, 4), shaped("cast", "cast", "3x4xf32", "3x4xbf16"),
                                         Case{"square", "func.func @f(%x: tensor<3x4xf32>) -> tensor<3x4xf32> { %0 = "
                                                        "cermet.mul %x, %x : tensor<3x4xf32> return %0 : "
                                                        "tensor<3x4xf32> }"}),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Shapes, GradientTest,
    testing::Values(
        shaped("columns", "broadcast", "4xf32", "3x4xf32"), shaped("rows", "broadcast", "3x1xf32", "3x4xf32"),
        shaped("scalar", "broadcast", "f32", "3x4xf32"), shaped("one", "broadcast", "1xf32", "2x3x4xf32"),
        shaped("matrix", "broadcast", "3x4xf32", "2x3x4xf32"), shaped("outer", "broadcast", "2x1x1xf32", "2x3x4xf32"),
        shaped("both_ends", "broadcast", "1x3x1xf32", "2x3x4xf32"),
        shaped("leading_ones", "broadcast", "3x4xf32", "1x3x4xf32"),
        shaped("symbolic_rows", "broadcast", "?x1xf32, #cermet.symbols<[\"r\"]>", "?x4xf32, #cermet.symbols<[\"r\"]>"),
        shaped("symbolic_columns", "broadcast", "4xf32", "?x?x4xf32, #cermet.symbols<[\"a\", \"b\"]>"),
        shaped("reshape", "reshape", "3x4xf32", "2x6xf32"),
        shaped("reduce_sum", "reduce_sum", "2x3x4xf32", "2x3x1xf32"),
        shaped("sum_rows", "sum_rows", "2x3x4xf32", "4xf32"), matmul("matmul", "3x4", "4x2", "3x2", ""),
        matmul("matmul_batch", "2x3x4", "4x2", "2x3x2", ""),
        matmul("matmul_transpose_rhs", "2x3x4", "2x4", "2x3x2", "{transpose_rhs}"),
        matmul("matmul_transpose_lhs", "2x3x4", "2x3x5", "4x5", "{transpose_lhs}")),
    [](const auto& info) { return info.param.name; });

std::string norm(const std::string& x, const std::string& weight, const std::string& result, const std::string& extra) {
  auto tensor = [](const std::string& element) { return "tensor<?x5x" + element + ", #cermet.symbols<[\"r0\"]>>"; };
  return "func.func @norm(%x: " + tensor(x) + ", %w: tensor<5x" + weight + ">) -> " + tensor(result) +
         " { %0 = cermet.rms_norm %x, %w {eps = 1.0e-2 : f64" + extra + "} : " + tensor(x) + ", tensor<5x" + weight +
         "> to " + tensor(result) + " return %0 : " + tensor(result) + " }";
}

std::string addNorm(const std::string& x, const std::string& residual, const std::string& sum,
                    const std::string& weight, const std::string& result, const std::string& extra) {
  auto tensor = [](const std::string& element) { return "tensor<2x?x5x" + element + ", #cermet.symbols<[\"r0\"]>>"; };
  return "func.func @add_norm(%x: " + tensor(x) + ", %residual: " + tensor(residual) + ", %w: tensor<5x" + weight +
         ">) -> (" + tensor(result) + ", " + tensor(sum) +
         ") { %0:2 = cermet.add_rms_norm %x, %residual, %w {eps = 1.0e-2 : f64" + extra + "} : " + tensor(x) + ", " +
         tensor(residual) + ", tensor<5x" + weight + "> to " + tensor(result) + ", " + tensor(sum) +
         " return %0#0, %0#1 : " + tensor(result) + ", " + tensor(sum) + " }";
}

INSTANTIATE_TEST_SUITE_P(
    Fused, GradientTest,
    testing::Values(Case{"rms_norm_f32", norm("f32", "f32", "f32", "")},
                    Case{"rms_norm_f64", norm("f64", "f64", "f64", ", round_before_weight")},
                    Case{"rms_norm_bf16", norm("bf16", "bf16", "bf16", ", round_before_weight")},
                    Case{"rms_norm_mixed", norm("bf16", "f32", "f32", ", round_before_weight")},
                    Case{"rms_norm_gemma", norm("f16", "f16", "f16", ", weight_offset = 1.0 : f64")},
                    Case{"add_rms_norm_f32", addNorm("f32", "f32", "f32", "f32", "f32", "")},
                    Case{"add_rms_norm_bf16", addNorm("bf16", "bf16", "bf16", "bf16", "bf16", ", round_before_weight")},
                    Case{"add_rms_norm_mixed", addNorm("bf16", "f32", "f32", "f32", "f32", ", round_before_weight")},
                    Case{"glu_f32", "func.func @glu(%gate: tensor<3x4xf32>, %up: tensor<3x4xf32>) -> tensor<3x4xf32> { "
                                    "%0 = cermet.glu %gate, %up : tensor<3x4xf32> return %0 : tensor<3x4xf32> }"},
                    Case{"glu_bf16",
                         "func.func @glu(%gate: tensor<3x4xbf16>, %up: tensor<3x4xbf16>) -> tensor<3x4xbf16> { "
                         "%0 = cermet.glu %gate, %up : tensor<3x4xbf16> return %0 : tensor<3x4xbf16> }"}),
    [](const auto& info) { return info.param.name; });

//===--- What a backward reads ---------------------------------------------------------------------------------------//

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
  EXPECT_FALSE(
      differentiateText("func.func @f(%x: tensor<2x1x4xf32>) -> tensor<2x3x4xf32> { %0 = cermet.broadcast %x : "
                        "tensor<2x1x4xf32> to tensor<2x3x4xf32> return %0 : tensor<2x3x4xf32> }",
                        {true}));
  EXPECT_NE(error.find("expected the repeated dimensions outermost or innermost"), std::string::npos) << error;
  EXPECT_FALSE(differentiateText("func.func @f(%x: tensor<3xf32>) -> tensor<3xf32> { return %x : tensor<3xf32> }", {}));
  EXPECT_NE(error.find("has 1 inputs, given `wanted` for 0"), std::string::npos) << error;
}

} // namespace
} // namespace cermet::ir
