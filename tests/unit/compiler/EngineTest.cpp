// The engine: graphs of plain small operations (tests/graphs) become as few kernels as their first line says, forward
// and gradient, with nothing written for them. Their numbers are tests/fuzz's, which runs the same files.
#include "compiler/Dump.h"
#include "compiler/Plan.h"
#include "ir/Gradient.h"
#include "ir/Text.h"
#include "tests/unit/compiler/GraphTexts.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <regex>

using namespace cermet;
using namespace cermet::tests;

namespace {

// The kernels of a graph's plan; a step that is none is a failure.
int kernelsOf(const std::string& text) {
  std::string answer, error;
  EXPECT_EQ(compileGraph(text, "sm_90", Dump(), answer, error), CERMET_OK) << error << text;
  if (answer.empty())
    return -1;
  const nlohmann::json plan = nlohmann::json::parse(answer);
  for (const auto& step : plan["steps"])
    EXPECT_EQ(step["kind"], "kernel") << step << text;
  return static_cast<int>(plan["steps"].size());
}

// `wanted` where an input is a float tensor.
std::string gradientOf(const std::string& text) {
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  ir::registerDialects(context);
  std::string error;
  auto graph = ir::parseGraph(text, context, error);
  EXPECT_TRUE(graph) << error;
  if (!graph)
    return "";
  llvm::SmallVector<bool> wanted;
  for (mlir::Type type : ir::graphFunction(*graph).getArgumentTypes())
    wanted.push_back(llvm::isa<mlir::FloatType>(mlir::getElementTypeOrSelf(type)));
  ir::Gradient gradient;
  EXPECT_TRUE(ir::differentiate(*graph, wanted, gradient, error)) << error;
  return ir::printGraph(*gradient.backward, false);
}

TEST(Engine, PlainGraphsBecomeFewKernels) {
  const std::regex header(R"(// kernels: (\d+), of its gradient: (\d+)\n)");
  int graphs = 0;
  for (const auto& [name, text] : graphFiles()) {
    SCOPED_TRACE(name);
    std::smatch expected;
    ASSERT_TRUE(std::regex_search(text, expected, header));
    EXPECT_EQ(kernelsOf(text), std::stoi(expected[1]));
    const std::string backward = gradientOf(text);
    EXPECT_EQ(kernelsOf(backward), std::stoi(expected[2])) << backward;
    ++graphs;
  }
  EXPECT_GE(graphs, 10);
}

} // namespace
