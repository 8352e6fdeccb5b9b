// The C interface from many threads at once: each key is made once, and every launch is right.
#include "tests/unit/frontends/c/ContextTest.h"
#include "tests/unit/runtime/Plans.h"
#include "tests/unit/runtime/TestDirectory.h"
#include <algorithm>
#include <atomic>
#include <numeric>
#include <random>
#include <thread>

namespace cermet {
namespace {

constexpr int kThreads = 24, kKeys = 100;

struct Threads : ContextTest {
  static void SetUpTestSuite() { useCompiler(FAKE_COMPILER); }

  // Whether one thread's way through every key, in an order of its own, ends as it should.
  static bool all(cermet_context* context, unsigned seed) {
    std::vector<int> keys(kKeys);
    std::iota(keys.begin(), keys.end(), 0);
    std::shuffle(keys.begin(), keys.end(), std::mt19937(seed));
    float x[8], weight[8], y[8];
    const TestTensor given[] = {{x, {1, 1, 8}}, {weight, {8}}, {y, {1, 1, 8}}};
    const cermet_tensor tensors[] = {given[0], given[1], given[2]};
    bool right = true;
    for (int key : keys) {
      // Equal files under different paths are different specs, so kernels differ, too.
      Json json = scalePlan("$TARGET", "file /" + std::string(static_cast<size_t>(key), '/') + FAKE_KERNELS);
      json["name"] = "scale" + std::to_string(key);
      const std::string text = json.dump();
      cermet_plan* plan = nullptr;
      cermet_executable* run = nullptr;
      right &= cermet_compile(context, text.data(), text.size(), "host", &plan) == CERMET_OK;
      right &= cermet_prepare(context, plan, 0, &run) == CERMET_OK;
      for (int index = 0; index < 8; ++index)
        x[index] = static_cast<float>(index + key), weight[index] = static_cast<float>(seed), y[index] = -1;
      right &= cermet_launch(run, nullptr, tensors, 3, nullptr, 0) == CERMET_OK;
      for (int index = 0; index < 8; ++index)
        right &= y[index] == x[index] * weight[index];
      cermet_plan* wrong = nullptr; // failures' messages belong to their threads
      const std::string failing = "fail 3 of " + std::to_string(seed);
      right &= cermet_compile(context, failing.data(), failing.size(), "host", &wrong) == CERMET_UNSUPPORTED &&
               std::string(cermet_error_message()) == "of " + std::to_string(seed);
      cermet_plan_destroy(plan);
      cermet_executable_destroy(run);
    }
    return right;
  }
};

TEST_F(Threads, MakeEachOfManyKeysOnce) {
  TestDirectory directory;
  cermet_context_options options{};
  options.size = sizeof(options);
  options.cache_directory = directory.path().c_str();
  for (int turn = 0; turn < 2; ++turn) { // cold, then from the directory
    cermet_context* shared = nullptr;
    ASSERT_EQ(cermet_context_create(&options, &shared), CERMET_OK) << cermet_error_message();
    std::atomic<int> right = 0;
    std::vector<std::thread> threads;
    for (unsigned seed = 1; seed <= kThreads; ++seed)
      threads.emplace_back([&, seed] { right += all(shared, seed); });
    for (std::thread& thread : threads)
      thread.join();
    EXPECT_EQ(right, kThreads);
    cermet_counters counters{};
    counters.size = sizeof(counters);
    ASSERT_EQ(cermet_context_counters(shared, &counters), CERMET_OK);
    EXPECT_EQ(turn == 0 ? counters.plans_compiled : counters.plans_from_directory, uint64_t(kKeys));
    EXPECT_EQ(turn == 0 ? counters.kernels_compiled : counters.kernels_from_directory, uint64_t(kKeys));
    EXPECT_EQ(turn == 0 ? counters.plans_from_directory : counters.plans_compiled, 0u);
    EXPECT_EQ(counters.launches, uint64_t(kThreads * kKeys));
    EXPECT_EQ(counters.cache_failures, 0u);
    cermet_context_destroy(shared);
  }
}

} // namespace
} // namespace cermet
