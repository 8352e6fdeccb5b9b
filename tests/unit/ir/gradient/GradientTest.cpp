// Every gradient against central differences of the forward, both in float64 through the interpreter.
#include "tests/unit/ir/gradient/GradientTest.h"
#include "ir/dialect/ElementTypes.h"
#include <cmath>

using namespace mlir;

namespace cermet::ir {

static std::ostream& operator<<(std::ostream& stream, const Case& c) {
  return stream << c.name;
}

static SmallVector<bool> floatInputs(ModuleOp graph) {
  SmallVector<bool> result;
  for (Type type : graphFunction(graph).getArgumentTypes())
    result.push_back(isa<FloatType>(cast<RankedTensorType>(type).getElementType()));
  return result;
}

std::vector<Array> GradientTest::caseInputs(ModuleOp graph) {
  auto [name, function, lowest, highest, apart] = GetParam();
  std::vector<Array> inputs = randomInputs(graph, lowest, highest);
  if (!apart)
    return inputs;
  std::vector<double*> numbers;
  for (Array& input : inputs)
    for (double& value : input.data)
      numbers.push_back(&value);
  std::shuffle(numbers.begin(), numbers.end(), generator);
  // An even number of cells has a border in the middle of the range.
  double cell = (highest - lowest) / (numbers.size() + numbers.size() % 2);
  std::uniform_real_distribution<double> inCell(0.25, 0.75);
  for (size_t i = 0; i < numbers.size(); ++i)
    *numbers[i] = lowest + cell * (i + inCell(generator));
  return inputs;
}

Gradient GradientTest::differentiateAll(ModuleOp graph) {
  Gradient gradient;
  std::string error;
  EXPECT_TRUE(differentiate(graph, floatInputs(graph), gradient, error)) << error;
  return gradient;
}

std::vector<Array> GradientTest::perInput(const Gradient& gradient, ArrayRef<Array> results, size_t inputs) {
  EXPECT_EQ(results.size(), gradient.backwardOutputs.size());
  std::vector<Array> gradients(inputs);
  for (auto [shared, result] : llvm::zip(gradient.backwardOutputs, results))
    for (int input : shared)
      gradients[input] = result;
  return gradients;
}

std::vector<Array> GradientTest::backwardInputs(const Gradient& gradient, ArrayRef<Array> inputs,
                                                ArrayRef<Array> forward, ArrayRef<Array> cotangents) {
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

double GradientTest::loss(ModuleOp graph, ArrayRef<Array> inputs, ArrayRef<Array> cotangents) {
  std::vector<Array> outputs = run(graph, inputs, false);
  double sum = 0;
  for (size_t k = 0; k < outputs.size(); ++k)
    for (size_t i = 0; i < outputs[k].data.size(); ++i)
      sum += outputs[k].data[i] * cotangents[k].data[i];
  return sum;
}

std::vector<Array> GradientTest::gradientsAt(ModuleOp graph, ArrayRef<Array> inputs, ArrayRef<Array> cotangents) {
  Gradient gradient = differentiateAll(graph);
  if (!gradient.backward)
    return {};
  std::vector<Array> forward = run(*gradient.forward, inputs, false);
  return perInput(gradient, run(*gradient.backward, backwardInputs(gradient, inputs, forward, cotangents), false),
                  inputs.size());
}

namespace {

TEST_P(GradientTest, EqualsCentralDifferences) {
  OwningOpRef<ModuleOp> graph = parse(GetParam().function);
  ASSERT_TRUE(graph);
  std::vector<Array> inputs = caseInputs(*graph), cotangents;
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
  SmallVector<bool> isFloat = floatInputs(*graph);
  for (size_t k = 0; k < inputs.size(); ++k) {
    if (!isFloat[k])
      continue;
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
  std::vector<Array> inputs = caseInputs(*graph), cotangents;
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
      EXPECT_TRUE(sameBits(first[k], second[k]));
  }
}

} // namespace
} // namespace cermet::ir
