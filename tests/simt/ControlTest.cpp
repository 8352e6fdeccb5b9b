// The controls: each kind of mistake, planted in a kernel's text or its arguments, must be found.
#include "tests/simt/Truth.h"

#include <cmath>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace cermet::simt {
namespace {

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  if (at == std::string::npos)
    throw std::runtime_error("the control's text has no " + from);
  return text.replace(at, from.size(), to);
}

TEST(Control, AMissingBarrierIsFound) {
  const std::string text = rmsNorm(4096, "bf16", false);
  const Plan plan = planOf(text);
  const PlanKernels kernels(plan, [](std::string kernel) {
    return replaced(std::move(kernel), "    barrier();\n    const int first", "    const int first");
  });
  bool found = false;
  for (uint64_t seed = 1; seed <= 3 && !found; ++seed) {
    PlanOptions options;
    options.seed = seed;
    const Outcome run = runPlan(plan, kernels, {{"r0", 1}, {"r1", 2}}, options, {});
    found = !run.machineError.empty() || !(distance(run.tensors[2].values(), interpret(text, run, false)[2]) < 1e-2);
  }
  EXPECT_TRUE(found);
}

TEST(Control, AMissingWaitIsFound) {
  const std::string text = gradient(rmsNorm(2048, "bf16", false), {1, 1})["backward"];
  const Plan plan = planOf(text);
  const PlanKernels kernels(
      plan, [](std::string kernel) { return replaced(std::move(kernel), "wait_async<P::kStages - 1>();", ""); });
  ASSERT_GT(kernels.spec(0).programs[0].schedule.stages, 0);
  const Outcome run = runPlan(plan, kernels, {{"r0", 2}, {"r1", 3}}, {}, {});
  bool poisoned = false;
  for (const Tensor& tensor : run.tensors)
    for (double value : tensor.values())
      poisoned |= std::isnan(value);
  EXPECT_TRUE(poisoned);
}

TEST(Control, ADivergentBarrierIsFound) {
  const Plan plan = planOf(rmsNorm(4096, "bf16", false));
  const PlanKernels kernels(plan, [](std::string kernel) {
    return replaced(std::move(kernel), "    barrier();\n    const int first",
                    "    if (thread_index() != 5) barrier();\n    const int first");
  });
  const Outcome run = runPlan(plan, kernels, {{"r0", 1}, {"r1", 2}}, {}, {});
  EXPECT_NE(run.machineError.find("wait at a barrier"), std::string::npos) << run.machineError;
}

TEST(Control, AMisalignedVectorIsFound) {
  const Plan plan = planOf(glu(64, "bf16"));
  const PlanKernels kernels(plan);
  PlanOptions options;
  options.forceVector = true;
  const Outcome run = runPlan(plan, kernels, {{"r0", 1}, {"r1", 1}}, options, {0, 1, 1});
  EXPECT_NE(run.machineError.find("not aligned"), std::string::npos) << run.machineError;
}

TEST(ControlDeathTest, AReadPastTheEndIsFound) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Plan plan = planOf(rmsNorm(64, "bf16", false));
  EXPECT_DEATH(
      {
        const PlanKernels kernels(plan);
        PlanOptions options;
        options.extraRows = 1;
        runPlan(plan, kernels, {{"r0", 1}, {"r1", 3}}, options, {});
      },
      "AddressSanitizer: heap-buffer-overflow");
}

} // namespace
} // namespace cermet::simt
