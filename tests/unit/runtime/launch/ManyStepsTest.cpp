// A launch of a large plan: the stack that it needs, what it allocates, and launches within launches.
#include "tests/unit/runtime/launch/Allocations.h"
#include "tests/unit/runtime/Plans.h"
#include <atomic>
#include <gtest/gtest.h>
#include <pthread.h>
#include <thread>

namespace cermet {
namespace {

// Each step adds 1 to what the one before it left in a buffer of its own; the last one writes y.
Json manySteps(int steps) {
  Json plan = scalePlan();
  plan["name"] = "many";
  plan["values"].erase(1);
  plan["values"][0]["dims"] = plan["values"][1]["dims"] = {"a", 8};
  plan["steps"] = Json::array();
  for (int step = 0; step < steps; ++step) {
    const int last = step + 1 == steps;
    if (!last)
      plan["values"].push_back(
          {{"name", fmt::format("t{}", step)}, {"kind", "buffer"}, {"dtype", "f32"}, {"dims", {"a", 8}}});
    plan["steps"].push_back({{"kind", "external"},
                             {"op", "increment"},
                             {"operands", {step == 0 ? 0 : step + 1}},
                             {"results", {last ? 1 : step + 2}}});
  }
  return plan;
}

cermet_status increment(void*, const char*, const cermet_tensor* tensors, int32_t, int32_t, void*) {
  for (int64_t index = 0; index < tensors[0].sizes[0] * 8; ++index)
    static_cast<float*>(tensors[1].data)[index] = static_cast<const float*>(tensors[0].data)[index] + 1;
  return CERMET_OK;
}

struct ManySteps : testing::Test {
  static constexpr int kSteps = 480;
  std::shared_ptr<Context> context = std::make_shared<Context>(testConfig());
  std::shared_ptr<Executable> executable = prepare(context, manySteps(kSteps), "host");

  void SetUp() override {
    ASSERT_TRUE(executable);
    executable->setExternal(increment, nullptr);
  }
};

// y of a launch is x + kSteps.
struct Launch {
  alignas(256) float x[16] = {}, y[16] = {};
  std::vector<char> room = std::vector<char>(600 * 256);
  Status status;

  void run(const Executable& executable) {
    for (int index = 0; index < 16; ++index)
      x[index] = static_cast<float>(index), y[index] = -1;
    const TestTensor given[] = {{x, {2, 8}}, {y, {2, 8}}};
    const cermet_tensor tensors[] = {given[0], given[1]};
    void* workspace = room.data();
    size_t bytes = room.size();
    std::align(256, 1, workspace, bytes);
    size_t needed = 0;
    status = executable.workspaceSize(tensors, 2, &needed);
    if (status.ok())
      status = executable.launch(nullptr, tensors, 2, workspace, needed);
  }
  bool isRight() const {
    for (int index = 0; index < 16; ++index)
      if (y[index] != static_cast<float>(index + ManySteps::kSteps))
        return false;
    return status.ok();
  }
};

TEST_F(ManySteps, NeedLittleStack) {
  if (!std::string(SANITIZED).empty())
    GTEST_SKIP() << "a sanitizer's frames are larger";
  struct Both {
    const Executable& executable;
    Launch launch;
  } both{*executable, {}};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 48 << 10); // what the thread itself and its storage take is in it
  pthread_t thread;
  ASSERT_EQ(pthread_create(
                &thread, &attributes,
                [](void* user) -> void* {
                  auto& both = *static_cast<Both*>(user);
                  both.launch.run(both.executable);
                  return nullptr;
                },
                &both),
            0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  EXPECT_TRUE(both.launch.isRight()) << both.launch.status.message();
}

TEST_F(ManySteps, AllocateNothing) {
  alignas(256) static char workspace[600 * 256];
  float x[16] = {}, y[16];
  const TestTensor given[] = {{x, {2, 8}}, {y, {2, 8}}};
  const cermet_tensor tensors[] = {given[0], given[1]};
  const uint64_t before = allocations;
  for (int turn = 0; turn < 10; ++turn)
    if (!executable->launch(nullptr, tensors, 2, workspace, sizeof(workspace)).ok())
      FAIL();
  EXPECT_EQ(allocations - before, 0u);
}

TEST_F(ManySteps, MayBeLaunchedByManyThreadsAtOnce) {
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int thread = 0; thread < 24; ++thread)
    threads.emplace_back([&] {
      for (int turn = 0; turn < 20; ++turn) {
        Launch launch;
        launch.run(*executable);
        right += launch.isRight();
      }
    });
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(right, 24 * 20);
}

TEST_F(ManySteps, MayBeLaunchedByTheirOwnCallback) {
  struct Nested {
    const Executable& executable;
    int depth = 0;
    bool right = true;
  } nested{*executable};
  executable->setExternal(
      [](void* user, const char* op, const cermet_tensor* tensors, int32_t operands, int32_t results, void* stream) {
        auto& nested = *static_cast<Nested*>(user);
        if (nested.depth < 2) {
          ++nested.depth;
          Launch inner;
          inner.run(nested.executable);
          nested.right &= inner.isRight();
        }
        return increment(nullptr, op, tensors, operands, results, stream);
      },
      &nested);
  Launch outer;
  outer.run(*executable);
  EXPECT_TRUE(outer.isRight()) << outer.status.message();
  EXPECT_TRUE(nested.right);
  EXPECT_EQ(nested.depth, 2);
}

} // namespace
} // namespace cermet
