// Plans: refused, or one whose numbers are all in range, since a launch does not look again.
#include "runtime/plan/Plan.h"
#include "tests/fuzz/bytes/Target.h"
#include <string>

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cermet;
  const Result<Plan> plan = parsePlan(std::string(reinterpret_cast<const char*>(data), size));
  must(plan.ok() || !plan.status().message().empty(), "what is refused is refused with words");
  if (!plan.ok())
    return 0;
  const auto isValue = [&](int value) { return value >= 0 && value < static_cast<int>(plan->values.size()); };
  must(plan->inputs >= 0 && plan->outputs >= 0 && plan->inputs + plan->outputs <= plan->firstView(), "counts");
  for (const PlanValue& value : plan->values) {
    must(value.rank >= 0 && value.rank <= kMaxRank, "rank");
    for (int dim = 0; dim < value.rank; ++dim)
      must(value.dims[dim].symbolic() ? value.dims[dim].symbol < static_cast<int>(plan->symbols.size())
                                      : value.dims[dim].size >= 0,
           "dimension");
  }
  for (size_t view = 0; view < plan->views.size(); ++view) {
    must(isValue(plan->views[view].source) && plan->views[view].source < plan->firstView() + static_cast<int>(view),
         "a view is one of a value before it");
    must(isValue(plan->views[view].root) && plan->views[view].root < plan->firstView(), "a view's root has memory");
  }
  for (const PlanStep& step : plan->steps) {
    for (int value : step.externalOperands)
      must(isValue(value), "operand of an external step");
    for (int value : step.externalResults)
      must(isValue(value), "result of an external step");
    for (const PlanProgram& program : step.programs) {
      must(program.rowRank >= 0 && program.rowRank <= kMaxRank, "rank of the rows");
      must(program.leading < static_cast<int>(program.operands.size()), "leading operand");
      for (const PlanOperand& operand : program.operands) {
        must(operand.kind == OperandKind::Index || isValue(operand.value), "operand");
        must(operand.rowsFrom < static_cast<int>(program.operands.size()), "operand with numbers of rows");
        const int rank = operand.value < 0 ? 0 : plan->values[operand.value].rank;
        must(operand.stepDim < kMaxRank && (operand.value < 0 || operand.stepDim < rank), "dimension of a step");
        for (int dim = 0; operand.walksRows() && operand.value >= 0 && dim < program.rowRank; ++dim)
          must(operand.axis[dim] >= -1 && operand.axis[dim] < rank, "axis");
      }
    }
  }
  return 0;
}
