// Launches against a driver without a GPU: what is loaded, which entry runs on which grid, and what a launch costs.
#include "tests/unit/runtime/Plans.h"
#include "tests/unit/runtime/fake_cuda.h"
#include <chrono>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <thread>

namespace cermet {
namespace {

constexpr const char* kCubin = "a cubin, as far as anyone here knows";

struct CudaLaunch : testing::Test {
  FakeCudaState& cuda = state();
  Config config = testConfig();
  std::shared_ptr<Context> context;
  alignas(256) static inline char memory[1 << 16];

  static FakeCudaState& state() {
    void* library = dlopen(FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
    const auto find = reinterpret_cast<FakeCudaState* (*)()>(dlsym(library, "fakeCudaState"));
    return *find();
  }
  void SetUp() override {
    cuda = FakeCudaState();
    config.cudaLibrary = FAKE_CUDA;
    context = std::make_shared<Context>(config);
  }
  // x and y of `rows` rows; x may begin some bytes later or have another row stride.
  Status launchScale(const Executable& executable, int64_t rows, int offset = 0, int64_t rowStride = 8,
                     void* stream = nullptr) {
    const TestTensor x(memory + offset, {rows, 1, 8}, {rowStride, rowStride, 1}), weight(memory + 4096, {8}),
        y(memory + 8192, {rows, 1, 8});
    const cermet_tensor tensors[] = {x, weight, y};
    return executable.launch(stream, tensors, 3, nullptr, 0);
  }
};

TEST_F(CudaLaunch, PrepareLoadsEverything) {
  Json plan = scalePlan("$TARGET", kCubin);
  plan["steps"][0]["shared_bytes"] = 100000;
  const auto executable = prepare(context, plan, "auto");
  ASSERT_TRUE(executable);
  EXPECT_EQ(cuda.loads, 1);
  EXPECT_EQ(cuda.functionLoads, 2);
  EXPECT_EQ(cuda.largestDynamicShared, 100000);
  ASSERT_TRUE(prepare(context, plan, "sm_90"));
  EXPECT_EQ(cuda.loads, 1) << "a kernel is loaded once for a context";
  const int setsBefore = cuda.contextSets;
  ASSERT_TRUE(launchScale(*executable, 4).ok());
  EXPECT_EQ(cuda.loads, 1);
  EXPECT_EQ(cuda.contextSets, setsBefore) << "a thread that prepared keeps the context";
}

TEST_F(CudaLaunch, KernelsStayUntilTheContextGoes) {
  auto executable = prepare(context, scalePlan("$TARGET", kCubin), "auto");
  executable.reset();
  EXPECT_EQ(cuda.unloads, 0);
  context.reset();
  EXPECT_EQ(cuda.unloads, 1);
  EXPECT_EQ(cuda.retained, 0);
}

TEST_F(CudaLaunch, StreamGridAndArgumentsArrive) {
  const auto executable = prepare(context, scalePlan("$TARGET", kCubin), "auto");
  ASSERT_TRUE(executable);
  ASSERT_TRUE(launchScale(*executable, 5, 0, 16, reinterpret_cast<void*>(0xabc)).ok());
  ASSERT_EQ(cuda.launches.size(), 1u);
  const FakeLaunch& launch = cuda.launches[0];
  EXPECT_EQ(launch.kernel, "scale_vector");
  EXPECT_EQ(launch.stream, reinterpret_cast<void*>(0xabc));
  EXPECT_EQ(launch.grid[0], 3u); // 5 rows, 2 a block
  EXPECT_EQ(launch.block[0], 64u);
  EXPECT_EQ(launch.arguments.rows, 5);
  EXPECT_EQ(launch.arguments.rowRank, 1);
  EXPECT_EQ(launch.arguments.extent[3], 5);
  EXPECT_EQ(launch.arguments.extent[2], 1);
  EXPECT_EQ(launch.arguments.operand[0].base, memory);
  EXPECT_EQ(launch.arguments.operand[0].stride[3], 16);
  EXPECT_EQ(launch.arguments.operand[2].stride[3], 8);
  EXPECT_EQ(launch.arguments.partials, nullptr);
  EXPECT_EQ(context->counters().launches, 1u);
}

TEST_F(CudaLaunch, AlignmentChoosesTheEntry) {
  const auto executable = prepare(context, scalePlan("$TARGET", kCubin), "auto");
  ASSERT_TRUE(executable);
  struct Case {
    int offset;
    int64_t stride;
    const char* entry;
  };
  for (const Case& one : {Case{0, 8, "scale_vector"},
                          {16, 8, "scale_vector"},
                          {4, 8, "scale_scalar"},
                          {8, 8, "scale_scalar"},
                          {0, 12, "scale_vector"},
                          {0, 9, "scale_scalar"},
                          {0, 10, "scale_scalar"}}) {
    cuda.launches.clear();
    ASSERT_TRUE(launchScale(*executable, 4, one.offset, one.stride).ok());
    EXPECT_EQ(cuda.launches[0].kernel, one.entry) << one.offset << " " << one.stride;
  }
  cuda.launches.clear();
  ASSERT_TRUE(launchScale(*executable, 1, 0, 9).ok()); // the stride of a single row does not matter
  EXPECT_EQ(cuda.launches[0].kernel, "scale_vector");
}

TEST_F(CudaLaunch, FlatGridsCoverEveryElement) {
  Json plan = scalePlan("$TARGET", kCubin);
  plan["steps"][0]["skeleton"] = "flat";
  const auto executable = prepare(context, plan, "auto");
  ASSERT_TRUE(launchScale(*executable, 65).ok());
  EXPECT_EQ(cuda.launches[0].grid[0], 3u); // 520 elements, 64 threads of 4
  ASSERT_TRUE(launchScale(*executable, 65, 4).ok());
  EXPECT_EQ(cuda.launches[1].grid[0], 9u); // one element a thread
}

TEST_F(CudaLaunch, AccumulatorsFoldTheirPartialRows) {
  const auto executable = prepare(context, sumPlan("$TARGET", kCubin), "auto");
  ASSERT_TRUE(executable);
  for (int64_t rows : {3, 100000}) {
    cuda.launches.clear();
    const TestTensor x(memory, {rows, 1, 8}, {0, 0, 1}), weight(memory + 4096, {8}), total(memory + 8192, {8});
    const std::vector<cermet_tensor> tensors{x, weight, total};
    size_t bytes = 0;
    ASSERT_TRUE(executable->workspaceSize(tensors.data(), 2, &bytes).ok());
    const int64_t blocks = std::min<int64_t>((rows + 1) / 2, 132 * 2);
    const auto padded = [](int64_t size) { return static_cast<size_t>((size + 255) / 256 * 256); };
    EXPECT_EQ(bytes, padded(rows * 32) + padded(blocks * 32));
    char* workspace = memory + (1 << 15); // only passed on
    ASSERT_TRUE(executable->launch(nullptr, tensors.data(), 3, workspace, bytes).ok());
    ASSERT_EQ(cuda.launches.size(), 3u);
    const FakeLaunch &main = cuda.launches[1], &fold = cuda.launches[2];
    EXPECT_EQ(main.grid[0], blocks);
    EXPECT_EQ(main.arguments.partialRows, blocks);
    EXPECT_EQ(reinterpret_cast<char*>(main.arguments.partials), workspace + padded(rows * 32));
    EXPECT_EQ(main.arguments.operand[0].base, workspace);
    EXPECT_EQ(fold.kernel, "sum_rows_fold");
    EXPECT_EQ(fold.grid[0], 1u);
    EXPECT_EQ(fold.grid[1], 1u);
    EXPECT_EQ(fold.block[0], 32u);
    EXPECT_EQ(fold.block[1], 32u);
    EXPECT_EQ(fold.arguments.partialRows, blocks);
  }
}

TEST_F(CudaLaunch, NoRowsLaunchNothing) {
  const auto executable = prepare(context, sumPlan("$TARGET", kCubin), "auto");
  const TestTensor x(nullptr, {0, 5, 8}), weight(memory + 4096, {8}), total(memory + 8192, {8});
  const std::vector<cermet_tensor> tensors{x, weight, total};
  ASSERT_TRUE(executable->launch(reinterpret_cast<void*>(7), tensors.data(), 3, nullptr, 0).ok());
  EXPECT_EQ(cuda.launches.size(), 0u);
  ASSERT_EQ(cuda.memsets.size(), 1u);
  EXPECT_EQ(cuda.memsets[0].address, reinterpret_cast<uintptr_t>(memory + 8192));
  EXPECT_EQ(cuda.memsets[0].bytes, 32u);
  EXPECT_EQ(cuda.memsets[0].stream, reinterpret_cast<void*>(7));
}

TEST_F(CudaLaunch, AGridHasALimit) {
  const auto executable = prepare(context, scalePlan("$TARGET", kCubin), "auto");
  ASSERT_TRUE(launchScale(*executable, (int64_t(1) << 32) - 2, 0, 0).ok()) << "2^31 - 1 blocks fit";
  EXPECT_EQ(cuda.launches[0].grid[0], 2147483647u);
  EXPECT_EQ(launchScale(*executable, int64_t(1) << 33, 0, 0).message(),
            "scale: kernel 'scale' over 8589934592 rows needs 4294967296 blocks, a grid has at most 2147483647");
}

TEST_F(CudaLaunch, AThreadWithoutAContextGetsTheDevices) {
  const auto executable = prepare(context, scalePlan("$TARGET", kCubin), "auto");
  std::thread([&] { EXPECT_TRUE(launchScale(*executable, 4).ok()); }).join();
  EXPECT_EQ(cuda.launches[0].context, reinterpret_cast<void*>(0x1000));
}

TEST_F(CudaLaunch, AThreadWithAnotherContextKeepsIt) {
  cuda.devices = 2;
  const auto executable = prepare(context, scalePlan("$TARGET", kCubin), "auto");
  std::thread([&] {
    const auto driver = context->driver();
    (*driver)->table().cuCtxSetCurrent(reinterpret_cast<CUcontext>(0x1001));
    EXPECT_TRUE(launchScale(*executable, 4).ok());
    CUcontext current = nullptr;
    (*driver)->table().cuCtxGetCurrent(&current);
    EXPECT_EQ(current, reinterpret_cast<CUcontext>(0x1001));
  }).join();
  EXPECT_EQ(cuda.launches[0].context, reinterpret_cast<void*>(0x1000));
}

TEST_F(CudaLaunch, FailuresOfTheDriverHaveItsNames) {
  const auto executable = prepare(context, scalePlan("$TARGET", kCubin), "auto");
  cuda.launchResult = 700;
  const Status failed = launchScale(*executable, 4);
  EXPECT_EQ(failed.code(), CERMET_DRIVER_ERROR);
  EXPECT_EQ(failed.message(), "cuLaunchKernel failed with CUDA_ERROR_ILLEGAL_ADDRESS (700): as the test wanted");
  EXPECT_EQ(context->counters().launches, 0u);
}

Status prepareFailure(const std::shared_ptr<Context>& context, const Json& plan, const std::string& target,
                      int device = 0) {
  const auto compiled = context->compile(plan.dump(), target);
  return compiled.ok() ? Executable::prepare(context, *compiled, device).status() : compiled.status();
}

TEST_F(CudaLaunch, ACaptureForbidsLoading) {
  cuda.capturing = true;
  Status failed = prepareFailure(context, scalePlan("$TARGET", kCubin), "auto");
  EXPECT_EQ(failed.code(), CERMET_CAPTURING);
  EXPECT_NE(failed.message().find("prepare before the capture"), std::string::npos);
  EXPECT_EQ(cuda.loads, 0);
  cuda.capturing = false;
  cuda.loadResult = 900;
  EXPECT_EQ(prepareFailure(context, scalePlan("$TARGET", kCubin), "auto").code(), CERMET_CAPTURING);
  cuda.loadResult = 0;
  const auto executable = prepare(context, scalePlan("$TARGET", kCubin), "auto");
  cuda.capturing = true;
  EXPECT_TRUE(prepare(context, scalePlan("$TARGET", kCubin), "auto")) << "what is loaded may be prepared again";
  EXPECT_TRUE(launchScale(*executable, 4).ok());
}

TEST_F(CudaLaunch, WhatIsNotThereIsNamed) {
  EXPECT_EQ(prepareFailure(context, scalePlan("$TARGET", kCubin), "sm_90", 1).message(),
            "device 1 does not exist, expected 0 to 0");
  EXPECT_EQ(prepareFailure(context, scalePlan("$TARGET", kCubin), "sm_80").message(),
            "the plan is for sm_80, device 0 (Fake GPU) has compute capability 9.0; compile for it, or for 'auto'");
  EXPECT_NE(prepareFailure(context, scalePlan("$TARGET", "without scale_scalar"), "auto")
                .message()
                .find("finding kernel 'scale_scalar' failed"),
            std::string::npos);
  cuda.major = 11;
  EXPECT_EQ(std::make_shared<Context>(config)->resolveTarget("auto").status().code(), CERMET_UNSUPPORTED);
  cuda.initResult = 100; // no device
  EXPECT_EQ(std::make_shared<Context>(config)->resolveTarget("auto").status().message(), "");
  EXPECT_EQ(prepareFailure(std::make_shared<Context>(config), scalePlan("$TARGET", kCubin), "sm_90").code(),
            CERMET_NOT_FOUND);
  cuda.initResult = 999;
  EXPECT_EQ(std::make_shared<Context>(config)->resolveTarget("auto").status().code(), CERMET_DRIVER_ERROR);
}

TEST_F(CudaLaunch, ChecksOfPointersAskTheDriver) {
  config.check = true;
  context = std::make_shared<Context>(config);
  const auto executable = prepare(context, scalePlan("$TARGET", kCubin), "auto");
  EXPECT_NE(launchScale(*executable, 4).message().find("input 'x' (tensor 0) is at "), std::string::npos);
  EXPECT_NE(launchScale(*executable, 4).message().find("which is not memory of a CUDA device"), std::string::npos);
  cuda.deviceBegin = reinterpret_cast<uintptr_t>(memory);
  cuda.deviceEnd = cuda.deviceBegin + sizeof(memory);
  EXPECT_TRUE(launchScale(*executable, 4).ok());
  cuda.pointerDevice = 1;
  EXPECT_EQ(launchScale(*executable, 4).message(), "scale: input 'x' (tensor 0) is on device 1, expected device 0");
}

TEST_F(CudaLaunch, TargetsNameTheDevice) {
  const Json targets = Json::parse(context->targetsJson());
  EXPECT_EQ(targets["devices"][0]["name"], "Fake GPU");
  EXPECT_EQ(targets["devices"][0]["target"], "sm_90");
  EXPECT_EQ(targets["driver"]["version"], 13000);
}

// What a launch adds to the driver's own work: the best of several runs, as other work shares the machine.
TEST_F(CudaLaunch, CostsLittle) {
  const auto executable = prepare(context, scalePlan("$TARGET", kCubin), "auto");
  ASSERT_TRUE(executable);
  cuda.record = false;
  const TestTensor x(memory, {16, 4, 8}), weight(memory + 4096, {8}), y(memory + 8192, {16, 4, 8});
  const cermet_tensor tensors[] = {x, weight, y};
  constexpr int kLaunches = 20000;
  double best = 1e9;
  for (int run = 0; run < 10; ++run) {
    const auto start = std::chrono::steady_clock::now();
    for (int launch = 0; launch < kLaunches; ++launch)
      if (!executable->launch(nullptr, tensors, 3, nullptr, 0).ok())
        FAIL();
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count() / kLaunches);
  }
  EXPECT_EQ(cuda.launchCount, 10u * kLaunches);
  RecordProperty("nanoseconds", std::to_string(best));
  std::printf("a launch costs %.0f ns besides the driver\n", best);
  if (!std::string(SANITIZED).empty())
    GTEST_SKIP() << "measured, but a sanitizer's time says nothing";
  EXPECT_LT(best, 1500);
}

} // namespace
} // namespace cermet
