// A launch allocates nothing: every allocation of this program is counted.
#include "tests/unit/runtime/launch/Allocations.h"
#include "tests/unit/runtime/Plans.h"
#include <gtest/gtest.h>

namespace cermet {
namespace {

TEST(Launch, AllocatesNothing) {
  Config config = testConfig();
  config.cudaLibrary = FAKE_CUDA;
  const auto context = std::make_shared<Context>(config);
  alignas(256) static char workspace[8192];
  float x[4 * 8] = {}, weight[8] = {}, total[8];
  const TestTensor given[] = {{x, {4, 1, 8}}, {weight, {8}}, {total, {8}}};
  const std::vector<cermet_tensor> tensors(std::begin(given), std::end(given));
  const auto host = prepare(context, sumPlan(), "host");
  ASSERT_TRUE(host);
  const uint64_t before = allocations;
  EXPECT_GT(before, 0u);
  for (int turn = 0; turn < 100; ++turn)
    if (!host->launch(nullptr, tensors.data(), 3, workspace, sizeof(workspace)).ok())
      FAIL();
  EXPECT_EQ(allocations - before, 0u);
}

} // namespace
} // namespace cermet
