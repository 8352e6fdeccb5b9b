// Processes that are forked while threads compile, with the real compiler: MLIR, LLVM and lld, and NVRTC where it is.
#include "tests/unit/frontends/c/ContextTest.h"
#include "tests/unit/runtime/support/Child.h"
#include <atomic>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <memory>
#include <stdlib.h>
#include <string>
#include <thread>
#include <vector>

namespace cermet {
namespace {

// Another kernel for each number.
std::string norm(int number) {
  const std::string type = "tensor<?x64xf32, #cermet.symbols<[\"rows\"]>>";
  return fmt::format("module attributes {{cermet.version = 1 : i64}} {{\n"
                     "  func.func @norm{0}(%x: {1}, %w: tensor<64xf32>) -> {1} {{\n"
                     "    %y = cermet.rms_norm %x, %w {{eps = {0}.0e-12 : f64}} : {1}, tensor<64xf32> to {1}\n"
                     "    return %y : {1}\n  }}\n}}\n",
                     number + 1, type);
}

struct ForkGraphs : ContextTest {
  static void SetUpTestSuite() { useCompiler(COMPILER); }

  // 0 where a norm is compiled, loaded and launched with the right result.
  static int launchNorm(cermet_context* context, int number) {
    const std::string text = norm(number);
    cermet_plan* plan = nullptr;
    cermet_executable* executable = nullptr;
    char* json = nullptr;
    if (cermet_match(context, text.data(), text.size(), &json) != CERMET_OK)
      return 1;
    cermet_string_free(json);
    if (cermet_compile(context, text.data(), text.size(), "host", &plan) != CERMET_OK)
      return 2;
    if (cermet_prepare(context, plan, 0, &executable) != CERMET_OK)
      return 3;
    std::vector<float> x(64 * 2048, 2), w(64, 3), y(64 * 2048); // enough rows to share them among threads
    const int64_t matrix[] = {2048, 64}, strides[] = {64, 1}, vector[] = {64}, one[] = {1};
    const cermet_tensor tensors[] = {{x.data(), matrix, strides, 2, CERMET_F32},
                                     {w.data(), vector, one, 1, CERMET_F32},
                                     {y.data(), matrix, strides, 2, CERMET_F32}};
    if (cermet_launch(executable, nullptr, tensors, 3, nullptr, 0) != CERMET_OK)
      return 4;
    for (float value : y)
      if (value < 2.9999f || value > 3.0001f) // 2 / sqrt(4 + eps) * 3
        return 5;
    cermet_executable_destroy(executable);
    cermet_plan_destroy(plan);
    return 0;
  }
};

TEST_F(ForkGraphs, AChildCompilesWhileItsParentDoes) {
  std::atomic<int> next{0};
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 3; ++thread)
    threads.emplace_back([&] {
      while (!stop)
        wrong += launchNorm(context, next++) != 0;
    });
  for (int child = 0; child < 60; ++child) {
    const int code = inChild([&] {
      if (int failure = launchNorm(context, next - 1)) // what a thread is making
        return failure;
      return launchNorm(context, 1'000'000 + child);
    });
    EXPECT_EQ(code, 0) << "child " << child;
    if (code != 0)
      break;
  }
  stop = true;
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(launchNorm(context, 2'000'000), 0);
}

} // namespace
} // namespace cermet
