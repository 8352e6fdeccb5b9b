// Grouping's work is within a constant for each operation, whatever the shape of the graph.
#include "compiler/plan/Grouping.h"
#include "ir/transforms/Decompose.h"
#include "ir/text/Text.h"
#include "tests/unit/compiler/plan/LargeGraphs.h"
#include <gtest/gtest.h>

using namespace cermet;
using namespace cermet::tests;

namespace {

GroupingWork workOf(const std::string& text) {
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  ir::registerDialects(context);
  std::string error;
  auto graph = ir::parseGraph(text, context, error);
  EXPECT_TRUE(graph) << error;
  GroupingWork work;
  if (!graph)
    return work;
  ir::simplify(ir::graphFunction(*graph));
  const std::vector<Group> groups = groupOperations(ir::graphFunction(*graph), &work);
  for (const Group& group : groups)
    EXPECT_LE(group.ops.size(), kMaxOperations);
  return work;
}

TEST(Grouping, WorkGrowsAsTheGraphDoes) {
  for (const LargeGraph& graph : kLargeGraphs) {
    SCOPED_TRACE(graph.name);
    const GroupingWork small = workOf(graph.text(2000)), large = workOf(graph.text(8000));
    EXPECT_LE(large.lowered, 6 * small.lowered + 1000);
    EXPECT_LE(large.visited, 6 * small.visited + 20000);
    EXPECT_LE(large.lowered, size_t(8000) * 30);
    EXPECT_LE(large.visited, size_t(8000) * 150);
  }
}

} // namespace
