// Raising changes no bit: of no form, and of nothing that looks almost like one.
#include "ir/transforms/Decompose.h"
#include "ir/dialect/Ops.h"
#include "ir/transforms/Reshapes.h"
#include "ir/text/Text.h"
#include "mlir/IR/Verifier.h"
#include "patterns/matching/Raise.h"
#include "patterns/Registry.h"
#include "tests/unit/patterns/matching/Forms.h"
#include <gtest/gtest.h>
#include <map>

using namespace mlir;

namespace cermet {
namespace {

class Numbers : public testing::TestWithParam<Form> {
protected:
  Numbers() : context(MLIRContext::Threading::DISABLED) { ir::registerDialects(context); }

  void sinkAndCompare(ModuleOp traced, std::mt19937_64& random) {
    OwningOpRef<ModuleOp> sunk = traced.clone();
    func::FuncOp function = ir::graphFunction(*sunk);
    ir::simplify(function);
    ir::sinkReshapes(function);
    ASSERT_TRUE(succeeded(verify(*sunk)));
    expectSameBits(traced, *sunk, randomInputs(ir::graphFunction(traced), random));
  }

  void raiseAndCompare(ModuleOp traced, std::mt19937_64& random) {
    OwningOpRef<ModuleOp> raised = traced.clone();
    RaiseResult result = raise(ir::graphFunction(*raised), fusions());
    ASSERT_TRUE(succeeded(verify(*raised)));
    size_t named = 0;
    raised->walk([&](ir::DecomposableOpInterface) { ++named; });
    EXPECT_EQ(named, result.regions.size());
    expectSameBits(traced, *raised, randomInputs(ir::graphFunction(traced), random));
  }

  MLIRContext context;
};

TEST_P(Numbers, RaisedGraphComputesTheSameBits) {
  auto traced = graphOf(GetParam(), context);
  ASSERT_TRUE(traced);
  for (int run = 0; run < 8; ++run) {
    unsigned seed = seedOfRun();
    SCOPED_TRACE("CERMET_SEED=" + std::to_string(seed));
    std::mt19937_64 random(seed);
    raiseAndCompare(*traced, random);
  }
}

TEST_P(Numbers, GraphWithItsReshapesAtTheEndComputesTheSameBits) {
  unsigned seed = seedOfRun();
  SCOPED_TRACE("CERMET_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  auto traced = graphOf(GetParam(), context);
  ASSERT_TRUE(traced);
  sinkAndCompare(*traced, random);
}

// One random operand becomes another value of its type, or one value is returned too.
void mutate(func::FuncOp function, std::mt19937_64& random) {
  auto pick = [&](size_t count) { return std::uniform_int_distribution<size_t>(0, count - 1)(random); };
  llvm::SmallVector<OpOperand*> operands;
  llvm::SmallVector<Value> values(function.getArguments());
  function.walk([&](Operation* op) {
    for (OpOperand& operand : op->getOpOperands())
      operands.push_back(&operand);
    if (op != function.getOperation())
      llvm::append_range(values, op->getResults());
  });
  auto end = cast<func::ReturnOp>(function.getBody().front().getTerminator());
  if (pick(3) == 0) {
    end.getOperandsMutable().append(values[pick(values.size())]);
    function.setType(FunctionType::get(function.getContext(), function.getArgumentTypes(), end.getOperandTypes()));
    return;
  }
  OpOperand* changed = operands[pick(operands.size())];
  llvm::SmallVector<Value> others;
  for (Value value : values) {
    Operation* op = value.getDefiningOp();
    if (value.getType() == changed->get().getType() && (!op || op->isBeforeInBlock(changed->getOwner())))
      others.push_back(value);
  }
  changed->set(others[pick(others.size())]);
}

TEST_P(Numbers, MutatedGraphComputesTheSameBits) {
  for (int run = 0; run < 20; ++run) {
    unsigned seed = seedOfRun();
    SCOPED_TRACE("CERMET_SEED=" + std::to_string(seed));
    std::mt19937_64 random(seed);
    auto traced = graphOf(GetParam(), context);
    ASSERT_TRUE(traced);
    for (int mutations = 1 + seed % 3; mutations; --mutations)
      mutate(ir::graphFunction(*traced), random);
    ASSERT_TRUE(succeeded(verify(*traced)));
    raiseAndCompare(*traced, random);
    sinkAndCompare(*traced, random);
    if (HasFailure()) {
      traced->print(llvm::errs());
      return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, Numbers, testing::ValuesIn(forms()),
                         [](const auto& info) { return info.param.file + "_" + info.param.function; });

TEST(Forms, EveryPatternIsRunInSeveral) {
  std::map<std::string, int> counts;
  for (const Form& form : forms()) {
    MLIRContext context(MLIRContext::Threading::DISABLED);
    ir::registerDialects(context);
    for (const NamedRegion& region : raise(ir::graphFunction(*graphOf(form, context)), fusions()).regions)
      ++counts[region.pattern.str()];
  }
  for (const Finder& finder : fusions())
    EXPECT_TRUE(counts[finder.name.str()] >= 3 || !std::holds_alternative<NamedAnswer>(finder.answer))
        << finder.name.str() << ": " << counts[finder.name.str()];
}

} // namespace
} // namespace cermet
