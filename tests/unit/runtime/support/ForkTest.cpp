// A process that is forked at any moment works in the child, or says in one sentence why it does not.
#include "runtime/support/Fork.h"
#include "tests/unit/runtime/support/Child.h"
#include "tests/unit/runtime/launch/CudaLaunch.h"
#include "tests/unit/runtime/Plans.h"
#include "tests/unit/runtime/TestDirectory.h"
#include <atomic>
#include <gtest/gtest.h>
#include <thread>

namespace cermet {
namespace {

using namespace std::chrono_literals;

// Threads that do something again and again until the test ends.
class Busy {
public:
  explicit Busy(int threads, std::function<void(int number)> work) {
    for (int thread = 0; thread < threads; ++thread)
      threads_.emplace_back([this, thread, threads, work] {
        for (int turn = 0; !stop_; ++turn, ++turns_)
          work(turn * threads + thread);
      });
    while (turns_ < threads)
      std::this_thread::sleep_for(1ms);
  }
  ~Busy() {
    stop_ = true;
    for (std::thread& thread : threads_)
      thread.join();
  }

private:
  std::atomic<bool> stop_ = false;
  std::atomic<int> turns_ = 0;
  std::vector<std::thread> threads_;
};

std::string named(int number) {
  Json plan = scalePlan();
  plan["name"] = fmt::format("scale{}", number);
  plan["steps"][0]["spec"] = fmt::format("file {}{}", std::string(1 + number % 3, '/'), FAKE_KERNELS);
  return plan.dump();
}

// 0 where a plan is compiled, prepared and launched here, with the right result.
int worksIn(const std::shared_ptr<Context>& context, const std::string& text) {
  const auto plan = context->compile(text, "host");
  if (!plan.ok())
    return 1;
  const auto executable = Executable::prepare(context, *plan, 0);
  if (!executable.ok())
    return 2;
  std::vector<float> x(8 * 8192, 3), weight(8, 2), y(8 * 8192); // enough rows to share them among threads
  const TestTensor given[] = {{x.data(), {8192, 1, 8}}, {weight.data(), {8}}, {y.data(), {8192, 1, 8}}};
  const cermet_tensor tensors[] = {given[0], given[1], given[2]};
  if (!(*executable)->launch(nullptr, tensors, 3, nullptr, 0).ok())
    return 3;
  return std::all_of(y.begin(), y.end(), [](float value) { return value == 6; }) ? 0 : 4;
}

TEST(Fork, AChildWorksWhateverTheThreadsDid) {
  TestDirectory directory;
  Config config = testConfig();
  config.cacheDirectory = directory.path();
  const auto context = std::make_shared<Context>(config);
  std::atomic<int> latest{0};
  const Busy compiling(3, [&](int number) {
    latest = number;
    worksIn(context, named(number));
  });
  const Busy making(1, [&](int) { worksIn(std::make_shared<Context>(testConfig()), named(0)); });
  for (int child = 0; child < 60; ++child)
    // What a thread is making at the moment, what nobody has asked for, and a context of its own.
    ASSERT_EQ(inChild([&] {
                const int last = latest;
                for (int number : {last, last + 1, 1'000'000 + child})
                  if (int failure = worksIn(context, named(number)))
                    return failure;
                return 10 * worksIn(std::make_shared<Context>(testConfig()), named(0));
              }),
              0)
        << "child " << child;
  EXPECT_EQ(context->counters().cacheFailures, 0u);
}

TEST(Fork, AChildOfAChildWorks) {
  const auto context = std::make_shared<Context>(testConfig());
  const Busy compiling(2, [&](int number) { worksIn(context, named(number)); });
  EXPECT_EQ(inChild([&] { return inChild([&] { return worksIn(context, named(-1)); }); }), 0);
}

TEST(Fork, ACompileThatRunsIsWaitedFor) {
  const auto context = std::make_shared<Context>(testConfig());
  std::thread slow([&] { (void)context->compile("sleep 300", "host"); });
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(inChild([&] { return worksIn(context, named(0)); }), 0);
  slow.join();
}

// The control of the wait: without it the compiler would be found in the middle of something.
TEST(Fork, ACompileThatIsTooLongIsNamedInTheChild) {
  const auto context = std::make_shared<Context>(testConfig());
  ASSERT_EQ(worksIn(context, named(0)), 0);
  const auto patience = forkPatience.exchange(50ms);
  std::thread slow([&] { (void)context->compile("sleep 1000", "host"); });
  std::this_thread::sleep_for(200ms);
  TestDirectory directory;
  EXPECT_EQ(inChild([&] {
              if (worksIn(context, named(0)) != 0) // what is in memory needs no compiler
                return 50;
              const Status refused = context->compile(named(1), "host").status();
              const bool isNamed = refused.code() == CERMET_UNSUPPORTED &&
                                   refused.message().starts_with("nothing can be compiled in this process: it was "
                                                                 "forked while another thread compiled");
              return isNamed ? 0 : 51;
            }),
            0);
  EXPECT_EQ(worksIn(context, named(2)), 0) << "the parent goes on";
  slow.join();
  forkPatience = patience;
}

TEST(Fork, AChildHasThreadsOfItsOwn) {
  ThreadPool pool(4);
  struct Meeting {
    std::atomic<int> there{0};
    bool met = false;
  };
  const auto meet = [](void* user, int) {
    auto& meeting = *static_cast<Meeting*>(user);
    ++meeting.there;
    for (int wait = 0; wait < 10000 && meeting.there < 2; ++wait)
      std::this_thread::sleep_for(1ms);
    if (meeting.there == 2)
      meeting.met = true;
  };
  const Busy running(2, [&](int) {
    pool.run(
        8, [](void*, int) { std::this_thread::sleep_for(100us); }, nullptr);
  });
  for (int child = 0; child < 20; ++child)
    ASSERT_EQ(inChild([&] {
                for (int turn = 0; turn < 3; ++turn) {
                  Meeting meeting;
                  pool.run(2, meet, &meeting);
                  if (!meeting.met)
                    return 1;
                }
                return 0;
              }),
              0)
        << "child " << child;
}

TEST(Fork, CudaOfTheParentIsRefusedInOneSentence) {
  Config config = testConfig();
  config.cudaLibrary = FAKE_CUDA;
  FakeCudaState& cuda = CudaLaunch::state() = FakeCudaState();
  auto context = std::make_shared<Context>(config);
  auto executable = prepare(context, scalePlan("sm_90", kCubin), "sm_90");
  ASSERT_TRUE(executable);
  alignas(256) float x[16] = {}, weight[8] = {}, y[16];
  const TestTensor given[] = {{x, {2, 1, 8}}, {weight, {8}}, {y, {2, 1, 8}}};
  const cermet_tensor tensors[] = {given[0], given[1], given[2]};
  ASSERT_TRUE(executable->launch(nullptr, tensors, 3, nullptr, 0).ok());
  const std::string sentence = "CUDA cannot be used in this process: it was forked from one in which it was in use; "
                               "start such processes anew (in Python with the start method 'spawn')";
  EXPECT_EQ(inChild([&] {
              const auto plan = context->compile(scalePlan("sm_90", kCubin).dump(), "sm_90"); // needs no device
              if (!plan.ok())
                return 1;
              for (const Status& refused :
                   {Executable::prepare(context, *plan, 0).status(), context->compile("{}", "auto").status(),
                    executable->launch(nullptr, tensors, 3, nullptr, 0)})
                if (refused.code() != CERMET_DRIVER_ERROR || refused.message() != sentence)
                  return 2;
              executable.reset();
              context.reset();
              if (cuda.unloads != 0 || cuda.retained != 1) // the driver is not asked to release what is not here
                return 3;
              return worksIn(std::make_shared<Context>(testConfig()), named(0));
            }),
            0);
  EXPECT_TRUE(executable->launch(nullptr, tensors, 3, nullptr, 0).ok()) << "the parent goes on";
}

} // namespace
} // namespace cermet
