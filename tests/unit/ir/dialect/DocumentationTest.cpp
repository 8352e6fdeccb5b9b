// docs/ir.md holds every small operation, and its examples are graphs.
#include "ir/dialect/Ops.h"
#include "tests/unit/ir/GraphTest.h"
#include <fstream>
#include <iterator>

using namespace mlir;

namespace cermet::ir {
namespace {

class DocumentationTest : public GraphTest {
protected:
  DocumentationTest() {
    std::ifstream file(CERMET_IR_DOCUMENT);
    text.assign(std::istreambuf_iterator<char>(file), {});
  }
  std::string text;
};

TEST_F(DocumentationTest, HasARowForEverySmallOperation) {
  int rows = 0;
  for (RegisteredOperationName name : context.getRegisteredOperations()) {
    // Fused operations have their meaning beside them, in ir/dialect/Fused.td.
    if (name.getDialectNamespace() != "cermet" || name.hasInterface<DecomposableOpInterface>())
      continue;
    EXPECT_NE(text.find("\n| `" + name.stripDialect().str() + " "), std::string::npos) << name.getStringRef().str();
    ++rows;
  }
  EXPECT_GT(rows, 35);
}

TEST_F(DocumentationTest, ExamplesAreGraphs) {
  const std::string open = "```mlir\n", close = "```";
  int examples = 0;
  for (size_t begin = text.find(open); begin != std::string::npos; begin = text.find(open, begin)) {
    begin += open.size();
    size_t end = text.find(close, begin);
    ASSERT_NE(end, std::string::npos);
    std::string error;
    EXPECT_TRUE(parseGraph(text.substr(begin, end - begin), context, error)) << error;
    ++examples;
  }
  EXPECT_GE(examples, 2);
}

} // namespace
} // namespace cermet::ir
