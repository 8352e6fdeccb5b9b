// Kernels of a plan: compiled several at once, each once, and the failure of several is that of the first.
#include "runtime/support/File.h"
#include "tests/unit/runtime/Plans.h"
#include "tests/unit/runtime/TestDirectory.h"
#include <algorithm>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <thread>

namespace cermet {
namespace {

struct Kernels : testing::Test {
  TestDirectory directory;
  Config config = testConfig();
  // What the fake compiler was asked to build, in the order of asking.
  std::vector<std::string> built() const {
    std::vector<std::string> lines;
    std::istringstream text(*readFile(directory / "log"));
    for (std::string line; std::getline(text, line);)
      lines.push_back(line);
    return lines;
  }
  void SetUp() override { setenv("FAKE_COMPILER_LOG", (directory / "log").c_str(), 1); }
  void TearDown() override { unsetenv("FAKE_COMPILER_LOG"); }

  static std::vector<std::string> specs(int count) {
    std::vector<std::string> specs;
    for (int index = 0; index < count; ++index)
      specs.push_back(fmt::format("kernel {}", index));
    return specs;
  }
};

TEST_F(Kernels, AreCompiledAtOnceUpToTheLimit) {
  for (int threads : {1, 2, 6}) {
    config.compileThreads = threads;
    std::remove((directory / "log").c_str());
    Context context(config);
    const auto images = context.kernelImages(specs(24));
    ASSERT_TRUE(images.ok()) << images.status().message();
    for (int index = 0; index < 24; ++index) {
      EXPECT_EQ(*(*images)[index].payload, fmt::format("kernel {}", index));
      EXPECT_GE((*images)[index].compileMicroseconds, 0);
    }
    const cermet_counters counters = context.counters().snapshot();
    EXPECT_EQ(counters.kernels_compiled, 24u);
    EXPECT_EQ(counters.kernels_from_memory, 0u);
    EXPECT_EQ(built().size(), 24u);
    uint64_t sum = 0;
    for (const auto& image : *images)
      sum += static_cast<uint64_t>(image.compileMicroseconds);
    EXPECT_EQ(counters.kernel_compile_microseconds, sum);
    const auto again = context.kernelImages(specs(24));
    EXPECT_EQ((*again)[3].compileMicroseconds, -1);
    EXPECT_EQ(context.counters().kernelsFromMemory, 24u);
  }
}

// Kernels that wait for one another come to an end only if as many are compiled at once; no more than that ever are.
TEST_F(Kernels, AsManyAsTheLimitRunTogether) {
  config.compileThreads = 3;
  setenv("FAKE_COMPILER_TOGETHER", "3", 1);
  Context context(config);
  const auto images = context.kernelImages(specs(9));
  unsetenv("FAKE_COMPILER_TOGETHER");
  ASSERT_TRUE(images.ok()) << images.status().message();
}

TEST_F(Kernels, OfSeveralFailuresItIsTheFirst) {
  for (int turn = 0; turn < 20; ++turn) {
    std::vector<std::string> asked = specs(12);
    asked[5] = "fail 5 the sixth";
    asked[6] = "fail 5 the seventh";
    asked[11] = "fail 5 the last";
    config.compileThreads = turn % 6 + 1;
    Context context(config);
    const auto images = context.kernelImages(asked);
    ASSERT_FALSE(images.ok());
    EXPECT_EQ(images.status().code(), CERMET_COMPILE_FAILED);
    EXPECT_EQ(images.status().message(), "the sixth");
  }
}

TEST_F(Kernels, AFailureStopsTheRest) {
  std::vector<std::string> asked = specs(100);
  asked[0] = "fail 5 the first";
  config.compileThreads = 2;
  Context context(config);
  EXPECT_FALSE(context.kernelImages(asked).ok());
  EXPECT_LT(built().size(), 10u);
}

TEST_F(Kernels, EqualSpecsAreCompiledOnce) {
  Json plan = scalePlan();
  for (int step = 1; step < 8; ++step)
    plan["steps"][step] = plan["steps"][0];
  const auto context = std::make_shared<Context>(config);
  ASSERT_TRUE(prepare(context, plan, "host"));
  EXPECT_EQ(built().size(), 1u);
  EXPECT_EQ(context->counters().kernelsCompiled, 1u);
  EXPECT_EQ(context->counters().kernelsFromMemory, 0u);
  ASSERT_TRUE(prepare(context, plan, "host"));
  EXPECT_EQ(context->counters().kernelsFromMemory, 0u) << "what is loaded is not asked for again";
}

TEST_F(Kernels, ManyThreadsPrepareThemTogether) {
  const auto context = std::make_shared<Context>(config);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int thread = 0; thread < 6; ++thread)
    threads.emplace_back([&] {
      const auto images = context->kernelImages(specs(20));
      for (int index = 0; index < 20; ++index)
        wrong += !images.ok() || *(*images)[static_cast<size_t>(index)].payload != fmt::format("kernel {}", index);
    });
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(context->counters().kernelsCompiled, 20u);
  EXPECT_EQ(context->counters().kernelsFromMemory, 100u);
}

} // namespace
} // namespace cermet
