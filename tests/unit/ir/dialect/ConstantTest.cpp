// A constant's literal: the bits of its element type, whichever they are, and what is printed is read back to them.
#include "frontends/tools/Numbers.h"
#include "tests/unit/ir/GraphTest.h"
#include "llvm/ADT/StringExtras.h"
#include <bit>

using namespace mlir;

namespace cermet::ir {
namespace {

using ConstantTest = GraphTest;

std::vector<double> numbersOf(ModuleOp graph) {
  std::vector<double> numbers;
  graph.walk([&](ConstantOp constant) { numbers.push_back(constant.getValue().convertToDouble()); });
  return numbers;
}

std::string graphOf(const std::vector<std::string>& literals, const std::string& tensor) {
  std::string text =
      "module attributes {cermet.version = 1 : i64} {\n  func.func @f(%x: " + tensor + ") -> " + tensor + " {\n";
  for (const std::string& literal : literals)
    text +=
        "    %" + std::to_string(&literal - literals.data()) + " = cermet.constant " + literal + " : " + tensor + "\n";
  return text + "    return %x : " + tensor + "\n  }\n}\n";
}

TEST_F(ConstantTest, BitsAreTheElementTypes) {
  for (const ElementType& element : kElementTypes) {
    if (!tools::isFloat(element.code))
      continue;
    const unsigned digits = 2 * unsigned(element.bytes);
    const std::string tensor = std::string("tensor<4x") + element.graphName + ">";
    std::vector<uint64_t> bits;
    for (double special : {HUGE_VAL, -HUGE_VAL, std::nan(""), 0.0, -0.0, 1.0})
      bits.push_back(tools::toBits(special, element.code));
    for (int i = 0; i < 1000; ++i)
      bits.push_back(generator() >> (64 - 8 * element.bytes));
    std::vector<std::string> literals;
    for (uint64_t each : bits)
      literals.push_back("0x" + llvm::utohexstr(each, false, digits));
    std::string error;
    OwningOpRef<ModuleOp> graph = parseGraph(graphOf(literals, tensor), context, error);
    ASSERT_TRUE(graph) << element.name << ": " << error;
    const std::vector<double> read = numbersOf(*graph);
    const std::string text = printGraph(*graph, false);
    OwningOpRef<ModuleOp> again = parseGraph(text, context, error);
    ASSERT_TRUE(again) << element.name << ": " << error;
    const std::vector<double> reread = numbersOf(*again);
    ASSERT_EQ(read.size(), bits.size());
    ASSERT_EQ(reread.size(), bits.size());
    for (size_t i = 0; i < bits.size(); ++i) {
      const double want = tools::fromBits(bits[i], element.code);
      for (double have : {read[i], reread[i]})
        EXPECT_TRUE(std::isnan(want) ? std::isnan(have)
                                     : std::bit_cast<uint64_t>(have) == std::bit_cast<uint64_t>(want))
            << element.name << " " << literals[i] << ": " << have << ", expected " << want;
    }
    EXPECT_EQ(printGraph(*again, false), text) << element.name;
  }
}

// Whole numbers of many digits, and what rounds, are decimals of all element types alike.
TEST_F(ConstantTest, FiniteNumbersArePrintedAsDecimals) {
  for (const char* element : {"f32", "bf16", "i64"})
    for (auto [given, printed] : {std::pair("0.1", "1.000000e-01"),
                                  {"-16777217.0", "-16777217.0"},
                                  {"3.141592653589793", "3.1415926535897931"},
                                  {"1.0e300", "1.000000e+300"}}) {
      std::string error;
      const std::string tensor = std::string("tensor<4x") + element + ">";
      OwningOpRef<ModuleOp> graph = parseGraph(graphOf({given}, tensor), context, error);
      ASSERT_TRUE(graph) << error;
      EXPECT_EQ(numbersOf(*graph), std::vector{std::stod(given)});
      const std::string text = printGraph(*graph, false),
                        line = std::string("cermet.constant ") + printed + " : " + tensor;
      EXPECT_NE(text.find(line), std::string::npos) << text;
    }
}

} // namespace
} // namespace cermet::ir
