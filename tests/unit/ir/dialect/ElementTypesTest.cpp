// What the dialect and the tools make of each row of the table of element types (runtime/abi/ElementType.h), against
// LLVM's own formats.
#include "ir/dialect/ElementTypes.h"
#include "frontends/tools/Numbers.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/TypeUtilities.h"
#include "tests/unit/ir/GraphTest.h"
#include "llvm/ADT/APFloat.h"

using namespace mlir;

namespace cermet::ir {
namespace {

class ElementTypesTest : public GraphTest {
protected:
  // The type of a graph's tensor of such elements that `operation` takes.
  Type typeIn(const ElementType& element, const char* operation) {
    const std::string tensor = std::string("tensor<4x") + element.graphName + ">";
    auto graph = parse("func.func @f(%x: " + tensor + ") -> " + tensor + " {\n  %0 = " + operation + " : " + tensor +
                       "\n  return %0 : " + tensor + "\n}");
    return graph ? graphFunction(*graph).getArgumentTypes().front() : Type();
  }
};

TEST_F(ElementTypesTest, EachIsMovedByItsNameInGraphTexts) {
  for (const ElementType& element : kElementTypes) {
    const Type type = typeIn(element, "cermet.constant 1.0");
    ASSERT_TRUE(type) << element.name;
    EXPECT_EQ(elementTypeOf(type), element.code) << element.name;
  }
}

TEST_F(ElementTypesTest, NumbersAreComputedWithButFloatsOfEightBits) {
  for (const ElementType& element : kElementTypes) {
    const bool isStored = element.format.valueClass == ValueClass::Bool ||
                          (element.format.valueClass == ValueClass::Real && element.bytes == 1);
    EXPECT_TRUE(isStored || typeIn(element, "cermet.neg %x")) << element.name;
  }
}

TEST_F(ElementTypesTest, FloatsHaveTheBitsOfLlvms) {
  for (const ElementType& element : kElementTypes) {
    if (!tools::isFloat(element.code))
      continue;
    const auto type = cast<FloatType>(getElementTypeOrSelf(typeIn(element, "cermet.constant 1.0")));
    const int width = 8 * element.bytes;
    for (uint64_t i = 0; i < 1 << 16; ++i) {
      const uint64_t bits = width > 16 ? generator() >> (64 - width) : i & ((1 << width) - 1);
      llvm::APFloat number(type.getFloatSemantics(), llvm::APInt(width, bits));
      const double want = number.convertToDouble(), have = tools::fromBits(bits, element.code);
      ASSERT_TRUE(std::isnan(want) ? std::isnan(have) : have == want && std::signbit(have) == std::signbit(want))
          << element.name << " " << std::hex << bits << ": " << have << ", expected " << want;
      ASSERT_TRUE(std::isnan(want) || tools::toBits(want, element.code) == bits) << element.name << " " << want;
    }
  }
}

} // namespace
} // namespace cermet::ir
