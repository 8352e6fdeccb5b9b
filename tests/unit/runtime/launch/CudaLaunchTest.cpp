// Launches against a driver without a GPU: what is loaded, which entry runs on which grid, and what a launch costs.
#include "tests/unit/runtime/launch/CudaLaunch.h"
#include "runtime/abi/ElementType.h"
#include <chrono>
#include <thread>

namespace cermet {
namespace {

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

// A block has a square tile, whatever a thread moves.
TEST_F(CudaLaunch, TurnedGridsCoverEveryTile) {
  Json plan = scalePlan("$TARGET", kCubin);
  plan["steps"][0]["skeleton"] = "turned";
  plan["steps"][0]["rows_per_block"] = 64;
  const auto executable = prepare(context, plan, "auto");
  for (const auto& [rows, blocks] : {std::pair{64, 1u}, {65, 2u}, {130, 3u}})
    for (int offset : {0, 4}) {
      cuda.launches.clear();
      ASSERT_TRUE(launchScale(*executable, rows, offset).ok());
      EXPECT_EQ(cuda.launches[0].grid[0], blocks) << rows << " " << offset;
    }
}

// A block has the columns of as many vectors as a row has threads, in all rows, and nothing is folded.
TEST_F(CudaLaunch, ColumnGridsCoverEveryColumn) {
  Json plan = sumPlan("$TARGET", kCubin);
  Json step = plan["steps"][1];
  step["skeleton"] = "column";
  step["rows_per_block"] = 32;
  step["blocks_per_sm"] = step["accumulators"] = 0;
  step["entries"]["fold"] = "";
  step["operands"][0]["value"] = 0;
  plan["values"].erase(3);
  plan["steps"] = Json::array({step});
  const auto executable = prepare(context, plan, "auto");
  ASSERT_TRUE(executable);
  const auto launch = [&](int64_t rows, int offset) {
    const TestTensor x(memory + offset, {rows, 5, 8}), weight(memory + 4096, {8}), total(memory + 8192, {8});
    const cermet_tensor tensors[] = {x, weight, total};
    return executable->launch(nullptr, tensors, 3, nullptr, 0);
  };
  for (const auto& [offset, blocks] : {std::pair{0, 1u}, {4, 4u}}) { // two threads of four columns, or of one
    cuda.launches.clear();
    ASSERT_TRUE(launch(900, offset).ok());
    ASSERT_EQ(cuda.launches.size(), 1u);
    EXPECT_EQ(cuda.launches[0].grid[0], blocks);
  }
  cuda.launches.clear();
  ASSERT_TRUE(launch(0, 0).ok());
  EXPECT_TRUE(cuda.launches.empty());
  EXPECT_EQ(cuda.memsets.size(), 1u);
}

// [heads, tokens] of what lies as [tokens, heads]: rows are walked as they lie, and the shared row of a token stays.
TEST_F(CudaLaunch, RowsAreWalkedInMemoryOrder) {
  Json plan = scalePlan("$TARGET", kCubin);
  plan["values"][1]["dims"] = {"b", 8};
  plan["steps"][0]["operands"][1]["kind"] = "tile";
  for (int dim : {0, 1})
    plan["steps"][0]["operands"].push_back({{"kind", "index"}, {"dims", {dim}}, {"dtype", "i64"}, {"output", false}});
  const auto executable = prepare(context, plan, "auto");
  ASSERT_TRUE(executable);
  const TestTensor x(memory, {4, 7, 8}, {8, 32, 1}), weight(memory + 4096, {7, 8}),
      y(memory + 8192, {4, 7, 8}, {8, 32, 1});
  const cermet_tensor tensors[] = {x, weight, y};
  ASSERT_TRUE(executable->launch(nullptr, tensors, 3, nullptr, 0).ok());
  const RowArguments& launched = cuda.launches[0].arguments;
  EXPECT_EQ(launched.rowRank, 2);
  EXPECT_EQ(launched.extent[2], 7);
  EXPECT_EQ(launched.extent[3], 4);
  const int64_t expected[][2] = {{32, 8}, {8, 0}, {32, 8}, {0, 1}, {1, 0}}; // an index goes with its extent
  for (int operand = 0; operand < 5; ++operand)
    for (int k = 0; k < 2; ++k)
      EXPECT_EQ(launched.operand[operand].stride[2 + k], expected[operand][k]) << operand;
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

TEST_F(CudaLaunch, ChecksReachTheWorkspaceAndTheStream) {
  config.check = true;
  cuda.devices = 2;
  context = std::make_shared<Context>(config);
  const auto executable = prepare(context, sumPlan("$TARGET", kCubin), "auto");
  cuda.deviceBegin = reinterpret_cast<uintptr_t>(memory);
  cuda.deviceEnd = cuda.deviceBegin + (1 << 15);
  const TestTensor x(memory, {3, 1, 8}), weight(memory + 4096, {8}), total(memory + 8192, {8});
  const cermet_tensor tensors[] = {x, weight, total};
  EXPECT_TRUE(executable->launch(nullptr, tensors, 3, memory + (1 << 14), 1 << 14).ok());
  EXPECT_TRUE(executable->launch(nullptr, tensors, 3, memory + (1 << 15), 1 << 14)
                  .message()
                  .starts_with("sum: the workspace is at 0x"));
  cuda.launches.clear();
  cuda.streamDevice = 1;
  const Status foreign = executable->launch(reinterpret_cast<void*>(7), tensors, 3, memory + (1 << 14), 1 << 14);
  EXPECT_EQ(foreign.code(), CERMET_INVALID_ARGUMENT);
  EXPECT_EQ(foreign.message(), "sum: the stream is of CUDA device 1, the plan was prepared for device 0");
  EXPECT_TRUE(cuda.launches.empty());
}

// y = x * weight with x's columns any stride apart.
Json stridedPlan(const char* kind) {
  Json plan = scalePlan("$TARGET", kCubin);
  plan["steps"][0]["operands"][kind == std::string("tile") ? 0 : 1]["strided"] = true;
  return plan;
}

TEST_F(CudaLaunch, StridedOperandsHaveAStep) {
  const auto tile = prepare(context, stridedPlan("tile"), "auto"),
             column = prepare(context, stridedPlan("column"), "auto");
  ASSERT_TRUE(tile && column);
  const TestTensor x(memory + 4, {3, 5, 8}, {1, 24, 3}), dense(memory, {3, 5, 8}), weight(memory + 4096, {8}),
      apart(memory + 4100, {8}, {-5}), y(memory + 8192, {3, 5, 8});
  const cermet_tensor turned[] = {x, weight, y}, spread[] = {dense, apart, y};
  ASSERT_TRUE(tile->launch(nullptr, turned, 3, nullptr, 0).ok());
  const FakeLaunch& first = cuda.launches[0];
  EXPECT_EQ(first.arguments.operand[0].step, 3);
  EXPECT_EQ(first.arguments.operand[0].stride[2], 1);
  EXPECT_EQ(first.arguments.operand[0].stride[3], 24);
  EXPECT_EQ(first.arguments.operand[1].step, 1);
  EXPECT_EQ(first.arguments.operand[2].step, 1);
  EXPECT_EQ(first.kernel, "scale_vector") << "what is strided is moved one at a time, the others as vectors";
  ASSERT_TRUE(column->launch(nullptr, spread, 3, nullptr, 0).ok());
  EXPECT_EQ(cuda.launches[1].arguments.operand[1].step, -5);
  EXPECT_EQ(cuda.launches[1].kernel, "scale_vector");
  EXPECT_EQ(column->launch(nullptr, turned, 3, nullptr, 0).message(),
            "scale: input 'x' (tensor 0) has stride 3 in its last dimension, expected 1; copy it to a dense one");
}

TEST_F(CudaLaunch, AColumnMayHaveLeadingOnes) {
  Json plan = stridedPlan("column");
  plan["values"][1]["dims"] = {1, 1, 8};
  const auto executable = prepare(context, plan, "auto");
  ASSERT_TRUE(executable);
  const TestTensor x(memory, {3, 5, 8}), weight(memory + 4096, {1, 1, 8}, {7, 7, 2}), y(memory + 8192, {3, 5, 8});
  const cermet_tensor tensors[] = {x, weight, y};
  ASSERT_TRUE(executable->launch(nullptr, tensors, 3, nullptr, 0).ok());
  EXPECT_EQ(cuda.launches[0].arguments.operand[1].step, 2);
}

TEST_F(CudaLaunch, AStridedSumOverNoRowsIsZeroed) {
  Json plan = sumPlan("$TARGET", kCubin);
  plan["steps"][1]["operands"][1]["strided"] = true;
  const auto executable = prepare(context, plan, "auto");
  ASSERT_TRUE(executable);
  const TestTensor x(nullptr, {0, 5, 8}), weight(memory + 4096, {8}), total(memory + 8192, {8}, {3});
  const cermet_tensor tensors[] = {x, weight, total};
  ASSERT_TRUE(executable->launch(nullptr, tensors, 3, nullptr, 0).ok());
  ASSERT_EQ(cuda.memsets.size(), 8u);
  EXPECT_EQ(cuda.memsets[7].address, reinterpret_cast<uintptr_t>(memory + 8192 + 7 * 3 * 4));
  EXPECT_EQ(cuda.memsets[7].bytes, 4u);
}

TEST_F(CudaLaunch, AnIndexWalksItsRowDimension) {
  for (int dim : {0, 1}) {
    cuda.launches.clear();
    Json plan = scalePlan("$TARGET", kCubin);
    plan["steps"][0]["operands"].push_back({{"kind", "index"}, {"dims", {dim}}, {"dtype", "i64"}, {"output", false}});
    const auto executable = prepare(context, plan, "auto");
    ASSERT_TRUE(executable);
    const auto launch = [&](int64_t a, int64_t b) {
      const TestTensor x(memory, {a, b, 8}), weight(memory + 4096, {8}), y(memory + 8192, {a, b, 8});
      const cermet_tensor tensors[] = {x, weight, y};
      EXPECT_TRUE(executable->launch(nullptr, tensors, 3, nullptr, 0).ok());
      return cuda.launches.back().arguments;
    };
    const RowArguments both = launch(3, 5); // dense rows would collapse, the index keeps them apart
    EXPECT_EQ(both.rowRank, 2);
    EXPECT_EQ(both.extent[2], 3);
    EXPECT_EQ(both.extent[3], 5);
    EXPECT_EQ(both.operand[3].base, nullptr);
    EXPECT_EQ(both.operand[3].stride[2], dim == 0);
    EXPECT_EQ(both.operand[3].stride[3], dim == 1);
    EXPECT_EQ(both.operand[3].step, 1);
    EXPECT_EQ(cuda.launches.back().kernel, "scale_vector");
    const RowArguments one = launch(dim == 0 ? 4 : 1, dim == 0 ? 1 : 4);
    EXPECT_EQ(one.rowRank, 1);
    EXPECT_EQ(one.operand[3].stride[3], 1);
    EXPECT_EQ(launch(dim == 0 ? 1 : 4, dim == 0 ? 4 : 1).operand[3].stride[3], 0) << "always row 0";
  }
}

TEST_F(CudaLaunch, AVectorIsOneRow) {
  Json plan = scalePlan("$TARGET", kCubin);
  plan["values"][0]["dims"] = plan["values"][2]["dims"] = {8};
  const auto executable = prepare(context, plan, "auto");
  ASSERT_TRUE(executable);
  const TestTensor x(memory, {8}), weight(memory + 4096, {8}), y(memory + 8192, {8});
  const cermet_tensor tensors[] = {x, weight, y};
  ASSERT_TRUE(executable->launch(nullptr, tensors, 3, nullptr, 0).ok());
  EXPECT_EQ(cuda.launches[0].arguments.rows, 1);
  EXPECT_EQ(cuda.launches[0].arguments.rowRank, 1);
  EXPECT_EQ(cuda.launches[0].arguments.extent[3], 1);
}

TEST_F(CudaLaunch, VectorsOfEveryElementTypeAreAligned) {
  for (const ElementType& type : kElementTypes) {
    Json plan = scalePlan("$TARGET", kCubin);
    for (int value = 0; value < 3; ++value)
      plan["values"][value]["dtype"] = plan["steps"][0]["operands"][value]["dtype"] = type.name;
    const auto executable = prepare(context, plan, "auto");
    ASSERT_TRUE(executable);
    for (int offset = 0; offset <= 4; ++offset) { // in elements; a vector has 4
      const auto dtype = *elementType(type.name);
      const TestTensor x(memory + offset * type.bytes, {2, 1, 8}, {8, 8, 1}, dtype),
          weight(memory + 4096, {8}, {1}, dtype), y(memory + 8192, {2, 1, 8}, {8, 8, 1}, dtype);
      const cermet_tensor tensors[] = {x, weight, y};
      ASSERT_TRUE(executable->launch(nullptr, tensors, 3, nullptr, 0).ok());
      EXPECT_EQ(cuda.launches.back().kernel, offset % 4 == 0 ? "scale_vector" : "scale_scalar") << type.name << offset;
    }
  }
}

TEST_F(CudaLaunch, TargetsNameTheDevice) {
  const Json targets = Json::parse(context->targetsJson());
  EXPECT_EQ(targets["devices"][0]["name"], "Fake GPU");
  EXPECT_EQ(targets["devices"][0]["target"], "sm_90");
  EXPECT_EQ(targets["driver"]["version"], 13000);
}

// What a launch adds to the driver's own work, in nanoseconds: the best of several runs, as other work shares the
// machine.
double launchCost(FakeCudaState& cuda, const Executable& executable, const cermet_tensor* tensors) {
  constexpr int kRuns = 10, kLaunches = 20000;
  cuda.record = false;
  const uint64_t before = cuda.launchCount;
  double best = 1e9;
  for (int run = 0; run < kRuns; ++run) {
    const auto start = std::chrono::steady_clock::now();
    for (int launch = 0; launch < kLaunches; ++launch)
      EXPECT_TRUE(executable.launch(nullptr, tensors, 3, nullptr, 0).ok());
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count() / kLaunches);
  }
  EXPECT_EQ(cuda.launchCount - before, uint64_t(kRuns) * kLaunches);
  return best;
}

TEST_F(CudaLaunch, CostsLittle) {
  Json withViews = scalePlan("$TARGET", kCubin);
  const int views = 8; // slices, reshapes and transposes of x, by turns; the last is what the kernel reads
  for (int view = 0; view < views; ++view) {
    Json& value = withViews["values"][3 + view] = {
        {"name", "v"}, {"kind", "view"}, {"dtype", "f32"}, {"dims", {"a", "b", 8}}, {"of", view == 0 ? 0 : 2 + view}};
    if (view % 3 == 0)
      value.update({{"view", "slice"}, {"starts", {0, 0, 0}}});
    else if (view % 3 == 1)
      value.update({{"view", "reshape"}});
    else
      value.update({{"view", "transpose"}, {"permutation", {0, 1, 2}}});
  }
  withViews["steps"][0]["operands"][0]["value"] = 2 + views;
  const auto plain = prepare(context, scalePlan("$TARGET", kCubin), "auto");
  const auto viewed = prepare(context, withViews, "auto");
  ASSERT_TRUE(plain && viewed);
  const TestTensor x(memory, {16, 4, 8}), weight(memory + 4096, {8}), y(memory + 8192, {16, 4, 8});
  const cermet_tensor tensors[] = {x, weight, y};
  const double without = launchCost(cuda, *plain, tensors), with = launchCost(cuda, *viewed, tensors);
  RecordProperty("nanoseconds", std::to_string(without));
  std::printf("a launch costs %.0f ns besides the driver, a view %.1f ns\n", without, (with - without) / views);
  if (!std::string(SANITIZED).empty())
    GTEST_SKIP() << "measured, but a sanitizer's time says nothing";
  EXPECT_LT(without, 1500);
  EXPECT_LT(with - without, views * 100);
}

} // namespace
} // namespace cermet
