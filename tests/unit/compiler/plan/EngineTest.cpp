// The engine: graphs of plain small operations (tests/graphs) become as few kernels as their first line says, forward
// and gradient, with nothing written for them. Their numbers are tests/fuzz's, which runs the same files.
#include "compiler/program/Dump.h"
#include "compiler/plan/Plan.h"
#include "ir/gradient/Gradient.h"
#include "ir/text/Text.h"
#include "tests/unit/compiler/GraphTexts.h"
#include "tests/unit/compiler/plan/Plans.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <map>
#include <regex>

using namespace cermet;
using namespace cermet::tests;

namespace {

struct Texts {
  std::string forward, backward;
};

Texts gradientOf(const std::string& text) {
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  ir::registerDialects(context);
  std::string error;
  auto graph = ir::parseGraph(text, context, error);
  EXPECT_TRUE(graph) << error;
  if (!graph)
    return {};
  llvm::SmallVector<bool> wanted;
  mlir::func::FuncOp function = ir::graphFunction(*graph);
  for (mlir::BlockArgument input : function.getArguments())
    wanted.push_back(isWantedInput(wantedInputs(text), ir::argumentName(function, input.getArgNumber()),
                                   llvm::isa<mlir::FloatType>(mlir::getElementTypeOrSelf(input.getType()))));
  ir::Gradient gradient;
  EXPECT_TRUE(ir::differentiate(*graph, wanted, gradient, error)) << error;
  return {ir::printGraph(*gradient.forward, false), ir::printGraph(*gradient.backward, false)};
}

TEST(Engine, PlainGraphsBecomeFewKernels) {
  const std::regex header(R"(// kernels: (\d+), of its gradient: (\d+))");
  int graphs = 0;
  for (const auto& [name, text] : graphFiles()) {
    SCOPED_TRACE(name);
    std::smatch expected;
    ASSERT_TRUE(std::regex_search(text, expected, header));
    EXPECT_EQ(kernelsOf(text), std::stoi(expected[1]));
    const Texts gradient = gradientOf(text);
    EXPECT_EQ(kernelsOf(gradient.forward), std::stoi(expected[1])) << "what is saved costs a kernel" << gradient.forward;
    EXPECT_EQ(kernelsOf(gradient.backward), std::stoi(expected[2])) << gradient.backward;
    ++graphs;
  }
  EXPECT_GE(graphs, 10);
}

// As many as leave both halves of a head to one thread, which then reads each column once.
TEST(Engine, AHeadIsSharedByThreadsThatHoldBothHalves) {
  const std::map<std::string, std::string> threads = {
      {"rope.mlir", "threads=128 threads_per_row=8"}, {"rope_narrow.mlir", "threads=96 threads_per_row=6"}};
  size_t seen = 0;
  for (const auto& [name, text] : graphFiles()) {
    const auto expected = threads.find(name);
    if (expected == threads.end())
      continue;
    std::string answer, error;
    ASSERT_EQ(compileGraph(text, "sm_90", Dump(), answer, error), CERMET_OK) << error;
    const std::string spec = nlohmann::json::parse(answer)["steps"][0]["spec"];
    EXPECT_NE(spec.find(expected->second), std::string::npos) << name << "\n" << spec;
    ++seen;
  }
  EXPECT_EQ(seen, threads.size());
}

// Five tiles of such rows are summed by a kernel of their own: every stage of a softmax would read them all again. Of
// one tile several kernels would read no less. Beside it stands a kernel that can be no part of it.
TEST(Engine, LongRowsAreJoinedWhereThatMovesNoMore) {
  const auto softmax = [&](int64_t columns, bool isSum) {
    const std::string t = fmt::format("tensor<?x{}xf32, #cermet.symbols<[\"r0\"]>>", columns);
    const std::string sum = fmt::format("%s = cermet.add %x, %y : {0}\n%t = cermet.add %s, %z : {0}\n"
                                        "%0 = cermet.add %t, %u : {0}\n%1 = cermet.add %0, %v : {0}\n",
                                        t);
    return fmt::format(
        "module attributes {{cermet.version = 1 : i64}} {{ func.func @f(%x: {0}{3}, %w: {2}) -> ({0}, {2}) {{\n{4}"
        "%2 = cermet.reduce_max {5} : {0} to {1}\n%3 = cermet.broadcast %2 : {1} to {0}\n"
        "%4 = cermet.sub {5}, %3 : {0}\n%5 = cermet.exp %4 : {0}\n"
        "%6 = cermet.reduce_sum %5 : {0} to {1}\n%7 = cermet.broadcast %6 : {1} to {0}\n"
        "%8 = cermet.div %5, %7 : {0}\n%9 = cermet.exp %w : {2}\nreturn %8, %9 : {0}, {2}\n}} }}",
        t, "tensor<?x1xf32, #cermet.symbols<[\"r0\"]>>", "tensor<7xf32>",
        isSum ? fmt::format(", %y: {0}, %z: {0}, %u: {0}, %v: {0}", t) : "", isSum ? sum : "", isSum ? "%1" : "%x");
  };
  EXPECT_EQ(kernelsOf(softmax(2000, true)), 2);
  EXPECT_EQ(kernelsOf(softmax(40000, true)), 3);
  EXPECT_EQ(kernelsOf(softmax(120000, false)), 2);
}

} // namespace
