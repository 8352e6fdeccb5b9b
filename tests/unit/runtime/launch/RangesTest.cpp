// What a profiler sees of a context that was asked for ranges, and that it sees nothing of one that was not.
#include "tests/unit/runtime/Plans.h"
#include "tests/unit/runtime/TestDirectory.h"
#include "tests/unit/runtime/fake_profiler.h"
#include "tests/unit/runtime/launch/CudaLaunch.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <thread>

namespace cermet {
namespace {

struct RangesTest : CudaLaunch {
  // As a user names a profiler, before the first range of the process.
  FakeProfiler& profiler = *[] {
    setenv("NVTX_INJECTION64_PATH", FAKE_PROFILER, 1);
    void* library = dlopen(FAKE_PROFILER, RTLD_NOW | RTLD_LOCAL);
    return reinterpret_cast<FakeProfiler* (*)()>(dlsym(library, "fakeProfiler"))();
  }();
  void SetUp() override {
    config.nvtx = true;
    CudaLaunch::SetUp();
    profiler.seen.clear();
  }
  size_t count() {
    const std::lock_guard lock(profiler.mutex);
    return profiler.seen.size();
  }
};

using Seen = std::vector<std::string>;

TEST_F(RangesTest, NameCompilesLoadsAndLaunches) {
  const auto executable = prepare(context, scalePlan("sm_90", kCubin), "sm_90");
  ASSERT_TRUE(executable);
  EXPECT_EQ(profiler.domains, Seen{"cermet"});
  Seen& seen = profiler.seen;
  ASSERT_EQ(seen.size(), 6u) << testing::PrintToString(seen);
  EXPECT_TRUE(seen[0].starts_with("compile sm_90")) << seen[0]; // the plan's
  EXPECT_TRUE(seen[2].starts_with("compile ")) << seen[2];      // the kernel's
  EXPECT_TRUE(seen[4].starts_with("load ")) << seen[4];
  for (int end : {1, 3, 5})
    EXPECT_EQ(seen[end], ".");
  seen.clear();
  ASSERT_TRUE(launchScale(*executable, 2).ok());
  EXPECT_EQ(seen, (Seen{"launch scale", "launch scale", ".", "."}));
  seen.clear();
  EXPECT_FALSE(launchScale(*executable, -1).ok());
  EXPECT_EQ(seen, (Seen{"launch scale", "."})) << "what fails ends, too";
}

TEST_F(RangesTest, NameWaitsForAnotherThread) {
  const std::string text = "sleep 1000";
  std::thread first([&] { EXPECT_FALSE(context->compile(text, "sm_90").ok()) << "no plan"; });
  while (count() == 0) // until it is being made
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_FALSE(context->compile(text, "sm_90").ok());
  first.join();
  ASSERT_EQ(profiler.seen.size(), 4u) << testing::PrintToString(profiler.seen);
  EXPECT_TRUE(profiler.seen[0].starts_with("compile ")) << profiler.seen[0];
  EXPECT_TRUE(profiler.seen[1].starts_with("wait ")) << profiler.seen[1];
}

TEST_F(RangesTest, AreNotThereUnasked) {
  config.nvtx = false;
  context = std::make_shared<Context>(config);
  const auto executable = prepare(context, scalePlan("sm_90", kCubin), "sm_90");
  ASSERT_TRUE(executable);
  ASSERT_TRUE(launchScale(*executable, 2).ok());
  EXPECT_EQ(profiler.seen, Seen{});
}

} // namespace
} // namespace cermet
