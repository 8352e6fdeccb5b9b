// One context and two devices: each executable runs on the one it was prepared for, from whichever thread.
#include "tests/unit/runtime/launch/CudaLaunch.h"
#include <thread>

namespace cermet {
namespace {

struct TwoDevices : CudaLaunch {
  std::shared_ptr<Executable> on[2];
  void SetUp() override {
    CudaLaunch::SetUp();
    cuda.devices = 2;
    prepareBoth();
  }
  void prepareBoth() {
    const auto plan = context->compile(scalePlan("$TARGET", kCubin).dump(), "auto");
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    for (int device : {0, 1}) {
      auto prepared = Executable::prepare(context, *plan, device);
      ASSERT_TRUE(prepared.ok()) << prepared.status().message();
      on[device] = *prepared;
    }
  }
  static void* streamOf(int device) { return reinterpret_cast<void*>(uintptr_t(0x70 + device)); }
  // How many launches were for a stream of another device than the current context's.
  size_t astray() const {
    size_t count = 0;
    for (const FakeLaunch& launch : cuda.launches)
      count +=
          reinterpret_cast<uintptr_t>(launch.context) - 0x1000 != reinterpret_cast<uintptr_t>(launch.stream) - 0x70;
    return count;
  }
};

TEST_F(TwoDevices, KernelsAreCompiledOnceAndLoadedForEach) {
  EXPECT_EQ(context->counters().kernelsCompiled, 1u);
  EXPECT_EQ(cuda.loads, 2);
  EXPECT_EQ(cuda.retained, 2);
  on[0] = on[1] = nullptr;
  context = nullptr;
  EXPECT_EQ(cuda.unloads, 2);
  EXPECT_EQ(cuda.retained, 0);
}

TEST_F(TwoDevices, OneThreadGoesFromOneToTheOther) {
  for (int turn = 0; turn < 8; ++turn) {
    const Status launched = launchScale(*on[turn % 2], 4, 0, 8, streamOf(turn % 2));
    ASSERT_TRUE(launched.ok()) << launched.message();
  }
  EXPECT_EQ(cuda.launches.size(), 8u);
  EXPECT_EQ(astray(), 0u);
}

TEST_F(TwoDevices, TwoThreadsLaunchAtOnce) {
  std::vector<std::thread> threads;
  for (int device : {0, 1})
    threads.emplace_back([&, device] {
      for (int turn = 0; turn < 500; ++turn) {
        const int to = turn % 10 == 9 ? 1 - device : device;
        EXPECT_TRUE(launchScale(*on[to], 4, 0, 8, streamOf(to)).ok());
      }
    });
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(cuda.launches.size(), 1000u);
  EXPECT_EQ(astray(), 0u);
  EXPECT_EQ(context->counters().launches, 1000u);
}

TEST_F(TwoDevices, TwoThreadsPrepareAtOnce) {
  context = std::make_shared<Context>(config);
  std::vector<std::thread> threads;
  for (int device : {0, 1})
    threads.emplace_back([&, device] {
      const auto plan = context->compile(scalePlan("$TARGET", kCubin).dump(), "auto");
      EXPECT_TRUE(plan.ok() && Executable::prepare(context, *plan, device).ok());
    });
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(context->counters().kernelsCompiled, 1u);
}

TEST_F(TwoDevices, WhatIsOfTheOtherIsNamed) {
  config.check = true;
  context = std::make_shared<Context>(config);
  prepareBoth();
  cuda.deviceBegin = reinterpret_cast<uintptr_t>(memory);
  cuda.deviceEnd = cuda.deviceBegin + sizeof(memory);
  for (int device : {0, 1}) {
    cuda.streamDevice = cuda.pointerDevice = device;
    EXPECT_TRUE(launchScale(*on[device], 4, 0, 8, streamOf(device)).ok());
    const auto foreign = [&](const std::string& message) {
      const Status refused = launchScale(*on[1 - device], 4, 0, 8, streamOf(1 - device));
      EXPECT_EQ(refused.code(), CERMET_INVALID_ARGUMENT);
      EXPECT_EQ(refused.message(), message);
    };
    foreign(
        fmt::format("scale: the stream is of CUDA device {}, the plan was prepared for device {}", device, 1 - device));
    cuda.streamDevice = 1 - device;
    foreign(fmt::format("scale: input 'x' (tensor 0) is on device {}, expected device {}", device, 1 - device));
  }
  const auto plan = context->compile(scalePlan("$TARGET", kCubin).dump(), "auto");
  EXPECT_EQ(Executable::prepare(context, *plan, 2).status().message(), "device 2 does not exist, expected 0 to 1");
}

} // namespace
} // namespace cermet
