// Raising changes no bit. The forms are those of the text tests, so a form that is added there is run here.
#include "ir/Interpreter.h"
#include "ir/Ops.h"
#include "ir/Text.h"
#include "mlir/AsmParser/AsmParser.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "patterns/Raise.h"
#include "patterns/Registry.h"
#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <random>

using namespace mlir;

namespace cermet {
namespace {

// Normal numbers about zero and of several magnitudes; each dimension of a name has one random size.
class Inputs {
public:
  explicit Inputs(uint64_t seed) : random(seed) {}

  std::vector<ir::Array> of(func::FuncOp function) {
    std::vector<ir::Array> arrays;
    std::map<std::string, int64_t> sizes;
    double magnitude = std::exp2(std::uniform_int_distribution<>(-6, 6)(random));
    for (Type type : function.getArgumentTypes()) {
      ir::Array array;
      size_t count = 1;
      for (const ir::Dimension& dimension : ir::dimensions(cast<RankedTensorType>(type))) {
        int64_t size = dimension.size;
        if (dimension.isSymbol())
          size = sizes.try_emplace(dimension.symbol.str(), std::uniform_int_distribution<>(1, 5)(random)).first->second;
        array.shape.push_back(size);
        count *= size;
      }
      std::normal_distribution<double> normal(0, magnitude);
      for (size_t i = 0; i < count; ++i)
        array.data.push_back(normal(random));
      arrays.push_back(std::move(array));
    }
    return arrays;
  }

private:
  std::mt19937_64 random;
};

struct Form {
  std::string file, function;
  bool matches; // becomes a named operation
};

OwningOpRef<ModuleOp> parse(const std::string& file, MLIRContext& context) {
  return parseSourceFile<ModuleOp>(std::string(FORMS) + "/" + file + ".mlir", &context);
}

std::vector<Form> forms() {
  std::vector<Form> found;
  MLIRContext context(MLIRContext::Threading::DISABLED);
  ir::registerDialects(context);
  for (const char* file : {"rms_norm", "rms_norm_near_miss", "add_rms_norm", "glu"}) {
    auto module = parse(file, context);
    if (!module)
      continue;
    for (auto function : module->getOps<func::FuncOp>()) {
      bool opaque = false; // nobody can run those
      function.walk([&](ir::OpaqueOp) { opaque = true; });
      if (!opaque)
        found.push_back({file, function.getName().str(), file != std::string("rms_norm_near_miss")});
    }
  }
  return found;
}

class Numbers : public testing::TestWithParam<Form> {};

TEST_P(Numbers, RaisedGraphComputesTheSameBits) {
  MLIRContext context(MLIRContext::Threading::DISABLED);
  ir::registerDialects(context);
  auto module = parse(GetParam().file, context);
  ASSERT_TRUE(module);
  auto traced = ir::createGraph(context);
  traced->push_back(module->lookupSymbol<func::FuncOp>(GetParam().function).clone());
  OwningOpRef<ModuleOp> raised = traced->clone();
  RaiseResult result = raise(ir::graphFunction(*raised));
  ASSERT_TRUE(succeeded(verify(*raised)));
  int named = 0;
  raised->walk([&](ir::DecomposableOpInterface) { ++named; });
  EXPECT_EQ(named, int(result.regions.size()));

  for (uint64_t seed = 0; seed < 8; ++seed) {
    std::vector<ir::Array> expected, actual;
    std::string error;
    auto inputs = Inputs(std::random_device{}()).of(ir::graphFunction(*traced));
    ASSERT_TRUE(ir::interpret(*traced, inputs, true, expected, error)) << error;
    ASSERT_TRUE(ir::interpret(*raised, inputs, true, actual, error)) << error;
    ASSERT_EQ(expected.size(), actual.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(expected[i].shape, actual[i].shape);
      for (size_t j = 0; j < expected[i].data.size(); ++j)
        if (!std::isnan(expected[i].data[j]) || !std::isnan(actual[i].data[j])) {
          ASSERT_EQ(expected[i].data[j], actual[i].data[j]) << "result " << i << ", element " << j;
        }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, Numbers, testing::ValuesIn(forms()), [](const auto& info) {
  return info.param.file + "_" + info.param.function;
});

TEST(Forms, MostOfThemAreRun) {
  auto all = forms();
  EXPECT_GE(llvm::count_if(all, [](const Form& form) { return form.matches; }), 30);
  EXPECT_GE(all.size(), 60u);
}

} // namespace
} // namespace cermet
