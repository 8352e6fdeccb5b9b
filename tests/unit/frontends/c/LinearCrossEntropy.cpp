// A loss without logits from C++ and from C with the real compiler: one whose value is known, what is refused before
// anything is compiled, handles, and products. tests/python/ops/test_linear_cross_entropy.py has the numbers.
#include "tests/unit/frontends/c/ContextTest.h"
#include <atomic>
#include <cermet.hpp>
#include <cmath>
#include <string>
#include <thread>

namespace {

constexpr int kRows = 5, kColumns = 6, kWidth = 8;
constexpr const char* kLoss = R"(!h = tensor<?x8xf32, #cermet.symbols<["n"]>>
!l = tensor<?xi32, #cermet.symbols<["n"]>>
module attributes {cermet.version = 1 : i64} {
  func.func @loss(%hidden: !h, %weight: tensor<6x8xf32>, %labels: !l) -> tensor<f32> {
    %0 = cermet.linear_cross_entropy %hidden, %weight, %labels {ignore_index = -1 : i64} : !h, tensor<6x8xf32>, !l to tensor<f32>
    return %0 : tensor<f32>
  }
})";
constexpr uint8_t kGradients[] = {1, 1, 0};

// Which point into the tensors.
std::vector<cermet_tensor> viewsOf(const std::vector<cermet::Tensor>& tensors) {
  std::vector<cermet_tensor> views;
  for (const cermet::Tensor& tensor : tensors)
    views.push_back(tensor.get());
  return views;
}

struct Numbers {
  float hidden[kRows][kWidth], weight[kColumns][kWidth], loss = NAN;
  float toHidden[kRows][kWidth], toWeight[kColumns][kWidth];
  int32_t labels[kRows];

  Numbers() {
    for (int i = 0; i < kRows * kWidth; ++i)
      hidden[i / kWidth][i % kWidth] = std::sin(1.3f * static_cast<float>(i));
    for (int i = 0; i < kColumns * kWidth; ++i)
      weight[i / kWidth][i % kWidth] = std::cos(0.7f * static_cast<float>(i));
    for (int i = 0; i < kRows; ++i)
      labels[i] = i == 2 ? -1 : i;
  }
  std::vector<cermet::Tensor> tensors() {
    return {{hidden, CERMET_F32, {kRows, kWidth}},   {weight, CERMET_F32, {kColumns, kWidth}},
            {labels, CERMET_I32, {kRows}},           {&loss, CERMET_F32, {}},
            {toHidden, CERMET_F32, {kRows, kWidth}}, {toWeight, CERMET_F32, {kColumns, kWidth}}};
  }
  // Against the definition in f64.
  void expect() const {
    double sum = 0, inHidden[kRows][kWidth] = {}, inWeight[kColumns][kWidth] = {};
    for (int row = 0; row < kRows; ++row) {
      if (labels[row] < 0)
        continue;
      double exponentials[kColumns], total = 0, logits[kColumns];
      for (int column = 0; column < kColumns; ++column) {
        logits[column] = 0;
        for (int at = 0; at < kWidth; ++at)
          logits[column] += double(hidden[row][at]) * weight[column][at];
        total += exponentials[column] = std::exp(logits[column]);
      }
      sum += std::log(total) - logits[labels[row]];
      for (int column = 0; column < kColumns; ++column)
        for (int at = 0; at < kWidth; ++at) {
          const double slope = (exponentials[column] / total - (column == labels[row])) / (kRows - 1);
          inHidden[row][at] += slope * weight[column][at];
          inWeight[column][at] += slope * hidden[row][at];
        }
    }
    EXPECT_NEAR(loss, sum / (kRows - 1), 1e-6);
    for (int row = 0; row < kRows; ++row)
      for (int at = 0; at < kWidth; ++at)
        EXPECT_NEAR(toHidden[row][at], inHidden[row][at], 1e-6) << row << " " << at;
    for (int column = 0; column < kColumns; ++column)
      for (int at = 0; at < kWidth; ++at)
        EXPECT_NEAR(toWeight[column][at], inWeight[column][at], 1e-6) << column << " " << at;
  }
};

struct LinearCrossEntropy : cermet::ContextTest {
  cermet_linear_cross_entropy* loss = nullptr;
  cermet_linear_cross_entropy_options options{};

  static void SetUpTestSuite() { useCompiler(COMPILER); }
  void SetUp() override {
    ContextTest::SetUp();
    options.size = sizeof(options);
    options.gradients = kGradients;
    options.gradient_count = 3;
  }
  void TearDown() override {
    cermet_linear_cross_entropy_destroy(loss);
    ContextTest::TearDown();
  }
  cermet_status prepare() {
    return cermet_linear_cross_entropy_prepare(context, kLoss, strlen(kLoss), "host", 0, &options, &loss);
  }
};

TEST(LinearCrossEntropyHandle, TheWholeWay) {
  setenv("CERMET_COMPILER_LIBRARY", COMPILER, 1);
  cermet::LinearCrossEntropy loss;
  {
    cermet::Options alone;
    alone.cache_directory = "";
    cermet::LinearCrossEntropyOptions options;
    options.gradients = kGradients;
    options.gradient_count = 3;
    options.budget = 2 * 8 * sizeof(float); // two rows of six logits, each a whole number of 16 bytes
    loss = cermet::Context(alone).prepare(kLoss, "host", options);
  } // which it does not need to stay
  Numbers numbers;
  std::vector<char> memory(loss.workspaceSize(numbers.tensors()) + 256);
  const uintptr_t aligned = (reinterpret_cast<uintptr_t>(memory.data()) + 255) / 256 * 256;
  loss.launch(nullptr, numbers.tensors(), {reinterpret_cast<void*>(aligned), memory.size() - 256});
  numbers.expect();
}

TEST_F(LinearCrossEntropy, ManyThreadsLaunchOne) {
  options.budget = 3 * 8 * sizeof(float);
  ASSERT_EQ(prepare(), CERMET_OK) << cermet_error_message();
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&] {
      alignas(256) char workspace[1 << 14];
      for (int turn = 0; turn < 50; ++turn) {
        Numbers numbers;
        std::vector<cermet_tensor> given;
        const std::vector<cermet::Tensor> tensors = numbers.tensors();
        for (const cermet::Tensor& tensor : tensors)
          given.push_back(tensor.get());
        ASSERT_EQ(cermet_linear_cross_entropy_launch(loss, nullptr, given.data(), 6, workspace, sizeof(workspace)),
                  CERMET_OK)
            << cermet_error_message();
        numbers.expect();
      }
    });
  for (std::thread& thread : threads)
    thread.join();
}

TEST_F(LinearCrossEntropy, WhatIsMissingIsNamed) {
  const auto refuse = [&](cermet_status status, const std::string& message) {
    EXPECT_EQ(status, CERMET_INVALID_ARGUMENT);
    EXPECT_EQ(std::string(cermet_error_message()), message);
    EXPECT_EQ(loss, nullptr);
  };
  const std::string function = "cermet_linear_cross_entropy_prepare: ";
  const size_t length = strlen(kLoss);
  refuse(cermet_linear_cross_entropy_prepare(nullptr, kLoss, length, "host", 0, &options, &loss),
         function + "context is NULL");
  refuse(cermet_linear_cross_entropy_prepare(context, nullptr, length, "host", 0, &options, &loss),
         function + "text is NULL");
  refuse(cermet_linear_cross_entropy_prepare(context, kLoss, length, nullptr, 0, &options, &loss),
         function + "target is NULL");
  refuse(cermet_linear_cross_entropy_prepare(context, kLoss, length, "host", 0, &options, nullptr),
         function + "loss is NULL");
  options.gradients = nullptr;
  refuse(prepare(), function + "options->gradients is NULL, expected an array of 3");
  options.gradients = kGradients;
  options.gradient_count = uint64_t(1) << 40;
  refuse(prepare(), function + "options->gradient_count is 1099511627776, expected one for each input");
  options.gradient_count = 3;
  options.size = 12;
  refuse(prepare(),
         function + "options->size is 12, expected sizeof(cermet_linear_cross_entropy_options), which is 48 here");
  size_t size = 0;
  EXPECT_EQ(cermet_linear_cross_entropy_workspace_size(nullptr, nullptr, 0, &size), CERMET_INVALID_ARGUMENT);
  EXPECT_STREQ(cermet_error_message(), "cermet_linear_cross_entropy_workspace_size: loss is NULL");
  EXPECT_EQ(cermet_linear_cross_entropy_launch(nullptr, nullptr, nullptr, 0, nullptr, 0), CERMET_INVALID_ARGUMENT);
  EXPECT_STREQ(cermet_error_message(), "cermet_linear_cross_entropy_launch: loss is NULL");
}

TEST_F(LinearCrossEntropy, AnOlderProgramsOptionsAreRead) {
  options.size = offsetof(cermet_linear_cross_entropy_options, product);
  options.product = [](void*, const char*, const cermet_tensor*, int32_t, int32_t, void*) { return CERMET_INTERNAL; };
  ASSERT_EQ(prepare(), CERMET_OK) << cermet_error_message(); // and nothing behind its size
}

TEST_F(LinearCrossEntropy, AWorkspaceIsAskedForAndChecked) {
  ASSERT_EQ(prepare(), CERMET_OK) << cermet_error_message();
  Numbers numbers;
  const std::vector<cermet::Tensor> tensors = numbers.tensors();
  std::vector<cermet_tensor> given = viewsOf(tensors);
  size_t size = 0;
  ASSERT_EQ(cermet_linear_cross_entropy_workspace_size(loss, given.data(), 3, &size), CERMET_OK);
  alignas(256) char workspace[1 << 14];
  EXPECT_EQ(cermet_linear_cross_entropy_launch(loss, nullptr, given.data(), 6, workspace, size - 1),
            CERMET_INVALID_ARGUMENT);
  EXPECT_EQ(std::string(cermet_error_message()), "loss: the workspace has " + std::to_string(size - 1) +
                                                     " bytes, expected " + std::to_string(size) +
                                                     "; ask cermet_linear_cross_entropy_workspace_size");
  EXPECT_EQ(cermet_linear_cross_entropy_launch(loss, nullptr, given.data(), 6, workspace + 8, size),
            CERMET_INVALID_ARGUMENT);
  EXPECT_TRUE(std::isnan(numbers.loss));
  given[2].data = nullptr;
  EXPECT_EQ(cermet_linear_cross_entropy_launch(loss, nullptr, given.data(), 6, workspace, size),
            CERMET_INVALID_ARGUMENT);
  EXPECT_STREQ(cermet_error_message(),
               "loss: input 'labels' (tensor 2) has a null pointer, expected memory of its elements");
}

// Nothing of this interface promises that memory which is free keeps what it held.
TEST_F(LinearCrossEntropy, AProductsTensorsStayWhateverItAllocates) {
  static int products;
  products = 0;
  options.product = [](void*, const char*, const cermet_tensor* tensors, int32_t, int32_t, void*) {
    std::vector<std::vector<char>> allocated;
    for (size_t size = 16; size <= 1024; size += 16)
      allocated.emplace_back(size, '\xff');
    ++products;
    const bool isRight = tensors[0].sizes[0] == tensors[2].sizes[0] && tensors[0].sizes[1] == tensors[1].sizes[0] &&
                         tensors[1].sizes[1] == tensors[2].sizes[1] && tensors[2].strides[1] == 1;
    return isRight ? CERMET_OK : CERMET_DRIVER_ERROR;
  };
  ASSERT_EQ(prepare(), CERMET_OK) << cermet_error_message();
  Numbers numbers;
  const std::vector<cermet::Tensor> tensors = numbers.tensors();
  std::vector<cermet_tensor> given = viewsOf(tensors);
  alignas(256) char workspace[1 << 14];
  EXPECT_EQ(cermet_linear_cross_entropy_launch(loss, nullptr, given.data(), 6, workspace, sizeof(workspace)), CERMET_OK)
      << cermet_error_message();
  EXPECT_EQ(products, 3);
}

// Rows of two dimensions, and a bias.
constexpr const char* kLossOfTwo = R"(!h = tensor<?x?x8xf32, #cermet.symbols<["a", "b"]>>
!l = tensor<?x?xi32, #cermet.symbols<["a", "b"]>>
module attributes {cermet.version = 1 : i64} {
  func.func @loss(%hidden: !h, %weight: tensor<6x8xf32>, %bias: tensor<6xf32>, %labels: !l) -> tensor<f32> {
    %0 = cermet.linear_cross_entropy %hidden, %weight, %labels, %bias {reduction = "sum"}
        : !h, tensor<6x8xf32>, !l, tensor<6xf32> to tensor<f32>
    return %0 : tensor<f32>
  }
})";

struct LossOfTwo : LinearCrossEntropy {
  float hidden[2 * kColumns][kWidth] = {}, weight[kColumns][kWidth] = {}, bias[kColumns] = {}, sum = 5;
  float toWeight[kColumns][kWidth], toBias[2 * kColumns];
  int32_t labels[2 * kColumns] = {};
  const uint8_t wanted[4] = {0, 1, 1, 0};
  alignas(256) char workspace[1 << 14];

  void SetUp() override {
    LinearCrossEntropy::SetUp();
    std::fill_n(&toWeight[0][0], kColumns * kWidth, 5.f);
    std::fill_n(toBias, 2 * kColumns, 5.f);
    options.gradients = wanted;
    options.gradient_count = 4;
    ASSERT_EQ(cermet_linear_cross_entropy_prepare(context, kLossOfTwo, strlen(kLossOfTwo), "host", 0, &options, &loss),
              CERMET_OK)
        << cermet_error_message();
  }
  // Hidden and labels of so many rows and with such strides, and the bias's gradient.
  cermet_status launch(int64_t a, int64_t b, std::vector<int64_t> ofHidden, std::vector<int64_t> ofLabels,
                       int64_t ofBias = 1) {
    const int64_t rows[] = {a, b, kWidth}, ofWeight[] = {kColumns, kWidth}, pitch[] = {kWidth, 1}, one[] = {1};
    const cermet_tensor given[] = {
        {hidden, rows, ofHidden.data(), 3, CERMET_F32}, {weight, ofWeight, pitch, 2, CERMET_F32},
        {bias, ofWeight, one, 1, CERMET_F32},           {labels, rows, ofLabels.data(), 2, CERMET_I32},
        {&sum, nullptr, nullptr, 0, CERMET_F32},        {toWeight, ofWeight, pitch, 2, CERMET_F32},
        {toBias, ofWeight, &ofBias, 1, CERMET_F32}};
    size_t size = 0;
    const cermet_status status = cermet_linear_cross_entropy_workspace_size(loss, given, 4, &size);
    return status != CERMET_OK ? status : cermet_linear_cross_entropy_launch(loss, nullptr, given, 7, workspace, size);
  }
};

TEST_F(LossOfTwo, NoRowsAreLegalInEitherDimension) {
  for (const auto& [a, b] : {std::pair(0, 3), {3, 0}, {0, 1}, {0, 0}}) {
    sum = toWeight[1][2] = toBias[3] = 5;
    EXPECT_EQ(launch(a, b, {kWidth * b, kWidth, 1}, {b, 1}), CERMET_OK) << cermet_error_message();
    EXPECT_EQ(sum, 0) << a << " " << b;
    EXPECT_EQ(toWeight[1][2], 0) << a << " " << b;
    EXPECT_EQ(toBias[3], 0) << a << " " << b;
  }
  EXPECT_EQ(launch(0, 3, {1, 100, 1}, {7, 100}), CERMET_OK) << cermet_error_message(); // of which nothing is read
}

TEST_F(LossOfTwo, WhatIsRefusedIsRefusedBeforeAnythingIsWritten) {
  EXPECT_EQ(launch(1, 2, {2 * kWidth, kWidth, 1}, {2, 1}, 2), CERMET_INVALID_ARGUMENT);
  EXPECT_EQ(sum, 5);
  EXPECT_EQ(toWeight[1][2], 5);
  EXPECT_EQ(toBias[0], 5);
  EXPECT_EQ(launch(1, 2, {2 * kWidth, kWidth, 1}, {2, 1}), CERMET_OK) << cermet_error_message();
  EXPECT_NEAR(sum, 2 * std::log(6), 1e-6);
  EXPECT_NEAR(toBias[0], 2 * (1. / 6 - 1), 1e-6);
}

TEST_F(LossOfTwo, SizesThatNoMemoryHasAreRefused) {
  constexpr int64_t kLarge = int64_t(1) << 62;
  EXPECT_EQ(launch(kLarge, 1, {17, kWidth, 1}, {1, 1}), CERMET_INVALID_ARGUMENT);
  EXPECT_EQ(launch(2, kLarge, {17, 17, 1}, {17, 17}), CERMET_INVALID_ARGUMENT);
  EXPECT_STREQ(cermet_error_message(), "loss: the workspace would have more than 2^63 bytes");
}

TEST_F(LinearCrossEntropy, AProductMayThrowAndDestroyWhatCallsIt) {
  static std::atomic<cermet_linear_cross_entropy*> own;
  options.product = [](void*, const char*, const cermet_tensor*, int32_t, int32_t, void*) -> cermet_status {
    cermet_linear_cross_entropy_destroy(own);
    throw std::runtime_error("no memory of its own");
  };
  ASSERT_EQ(prepare(), CERMET_OK) << cermet_error_message();
  own = loss;
  Numbers numbers;
  const std::vector<cermet::Tensor> tensors = numbers.tensors();
  std::vector<cermet_tensor> given = viewsOf(tensors);
  alignas(256) char workspace[1 << 14];
  EXPECT_EQ(cermet_linear_cross_entropy_launch(loss, nullptr, given.data(), 6, workspace, sizeof(workspace)),
            CERMET_INTERNAL);
  EXPECT_STREQ(cermet_error_message(), "loss: the callback of the product matmul threw: no memory of its own");
  EXPECT_EQ(cermet_linear_cross_entropy_launch(loss, nullptr, given.data(), 6, workspace, sizeof(workspace)),
            CERMET_INVALID_ARGUMENT);
  EXPECT_STREQ(cermet_error_message(),
               "cermet_linear_cross_entropy_launch: loss was destroyed, or is none that this library made");
}

} // namespace
