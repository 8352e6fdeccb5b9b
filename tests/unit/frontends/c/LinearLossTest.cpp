// Launches of a loss of a linear layer that the fake compiler cuts (LossPlans.h), where the real one would cut another.
#include "tests/unit/frontends/c/ContextTest.h"
#include "tests/unit/runtime/LossPlans.h"
#include <numeric>

namespace cermet {
namespace {

struct LinearLoss : ContextTest {
  static void SetUpTestSuite() { useCompiler(FAKE_COMPILER); }
};

// A number of each row lies where the caller wants it, and is summed from there.
TEST_F(LinearLoss, NumbersOfRowsMayLieBackwards) {
  cermet_linear_cross_entropy* loss = nullptr;
  const std::string text = lossPlan(true).dump();
  ASSERT_EQ(cermet_linear_cross_entropy_prepare(context, text.data(), text.size(), "host", 0, nullptr, &loss),
            CERMET_OK)
      << cermet_error_message();
  float hidden[6][8], weight[8][8] = {}, bias[8] = {};
  int64_t labels[6] = {5, 4, -1, 2, 1, 0};
  std::iota(&hidden[0][0], &hidden[0][0] + 48, 0.f);
  for (int column = 0; column < 8; ++column)
    weight[column][column] = 1;
  for (const int64_t step : {1, 3, -1, -3}) {
    float memory[48], *each = memory + 24, total = 0;
    std::fill_n(memory, 48, 1000.f);
    const TestTensor given[] = {{hidden, {2, 3, 8}},
                                {weight, {8, 8}},
                                {bias, {8}},
                                {labels, {2, 3}, {}, CERMET_I64},
                                {each, {2, 3}, {3 * step, step}},
                                {&total, {}}};
    const std::vector<cermet_tensor> tensors(std::begin(given), std::end(given));
    alignas(256) char workspace[1 << 12];
    ASSERT_EQ(cermet_linear_cross_entropy_launch(loss, nullptr, tensors.data(), 6, workspace, sizeof(workspace)),
              CERMET_OK)
        << cermet_error_message();
    for (int row = 0; row < 6; ++row)
      EXPECT_EQ(each[row * step], labels[row] < 0 ? 0 : hidden[row][labels[row]]) << step << " " << row;
    EXPECT_EQ(total, 5 + 12 + 26 + 33 + 40) << step;
  }
  cermet_linear_cross_entropy_destroy(loss);
}

} // namespace
} // namespace cermet
