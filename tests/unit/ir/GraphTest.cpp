#include "tests/unit/ir/GraphTest.h"
#include "ir/dialect/Shape.h"
#include <cmath>
#include <cstdlib>

using namespace mlir;

namespace cermet::ir {

static unsigned freshSeed() {
  const char* given = std::getenv("CERMET_SEED");
  return given ? std::strtoul(given, nullptr, 10) : std::random_device()();
}

GraphTest::GraphTest()
    : seed(freshSeed()), generator(seed), trace(__FILE__, __LINE__, "CERMET_SEED=" + std::to_string(seed)) {
  registerDialects(context);
}

std::string graphText(const std::string& function) {
  return "module attributes {cermet.version = 1 : i64} {\n" + function + "\n}\n";
}

OwningOpRef<ModuleOp> GraphTest::parse(const std::string& function) {
  std::string error;
  OwningOpRef<ModuleOp> graph = parseGraph(graphText(function), context, error);
  EXPECT_TRUE(graph) << error << "\n" << function;
  return graph;
}

std::string GraphTest::parseError(const std::string& text) {
  std::string error;
  OwningOpRef<ModuleOp> graph = parseGraph(text, context, error);
  EXPECT_FALSE(graph) << "parsed: " << text.substr(0, 1000);
  return error;
}

Array GraphTest::random(ArrayRef<int64_t> shape, double lowest, double highest) {
  Array array;
  array.shape.assign(shape.begin(), shape.end());
  int64_t elements = 1;
  for (int64_t size : shape)
    elements *= size;
  std::uniform_real_distribution<double> uniform(lowest, highest);
  for (int64_t i = 0; i < elements; ++i)
    array.data.push_back(uniform(generator));
  return array;
}

std::vector<Array> GraphTest::randomInputs(ModuleOp graph, double lowest, double highest) {
  std::vector<Array> inputs;
  for (Type type : graphFunction(graph).getArgumentTypes()) {
    SmallVector<int64_t> shape(cast<RankedTensorType>(type).getShape());
    for (int64_t& size : shape)
      if (ShapedType::isDynamic(size))
        size = 3;
    inputs.push_back(random(shape, lowest, highest));
  }
  return inputs;
}

std::vector<Array> GraphTest::run(ModuleOp graph, ArrayRef<Array> inputs, bool honourCasts) {
  std::vector<Array> outputs;
  std::string error;
  EXPECT_TRUE(interpret(graph, inputs, honourCasts, outputs, error)) << error << "\n" << printGraph(graph, false);
  return outputs;
}

double relativeError(const Array& a, const Array& b) {
  EXPECT_EQ(a.shape, b.shape);
  if (a.data.size() != b.data.size())
    return INFINITY;
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.data.size(); ++i) {
    difference += (a.data[i] - b.data[i]) * (a.data[i] - b.data[i]);
    norm += b.data[i] * b.data[i];
  }
  return difference == 0 ? 0 : std::sqrt(difference / norm);
}

bool sameBits(const Array& a, const Array& b) {
  auto same = [](double left, double right) {
    return std::isnan(left) ? std::isnan(right) : left == right && std::signbit(left) == std::signbit(right);
  };
  return a.shape == b.shape && std::equal(a.data.begin(), a.data.end(), b.data.begin(), b.data.end(), same);
}

} // namespace cermet::ir
