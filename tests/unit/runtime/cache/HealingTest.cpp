// Entries that are whole and still no answer: their checksum is right, but what they hold does not parse or load. They
// are made again, counted, and serve the next process.
#include "runtime/cache/Payload.h"
#include "tests/unit/runtime/launch/CudaLaunch.h"
#include "tests/unit/runtime/cache/StoredEntry.h"
#include "tests/unit/runtime/TestDirectory.h"
#include <thread>

namespace cermet {
namespace {

struct Healing : CudaLaunch {
  TestDirectory directory;
  const std::string text = scalePlan().dump();

  void SetUp() override {
    CudaLaunch::SetUp();
    config.cacheDirectory = directory.path();
    testing::internal::CaptureStderr();
  }
  void TearDown() override { testing::internal::GetCapturedStderr(); }
  std::string warnings() {
    const std::string text = testing::internal::GetCapturedStderr();
    testing::internal::CaptureStderr();
    return text;
  }
  std::string only(const std::string& kind) {
    const auto found = storedFiles(directory / kind);
    EXPECT_EQ(found.size(), 1u) << kind;
    return found.empty() ? "" : found[0];
  }
  // A process that prepares the plan: its counters, or the failure.
  Result<cermet_counters> prepared(const Json& plan, const std::string& target) {
    const auto context = std::make_shared<Context>(config);
    const auto compiled = context->compile(plan.dump(), target);
    if (!compiled.ok())
      return compiled.status();
    const auto executable = Executable::prepare(context, *compiled, 0);
    return executable.ok() ? Result<cermet_counters>(context->counters().snapshot()) : executable.status();
  }
  // The plan is whole, its kernel is not: made again once, and the next process finds it.
  void expectHealed(const Json& plan, const std::string& target, const std::string& why) {
    const auto healed = prepared(plan, target);
    ASSERT_TRUE(healed.ok()) << healed.status().message();
    EXPECT_EQ(healed->kernels_compiled, 1u) << why;
    EXPECT_EQ(healed->cache_failures, 1u) << why;
    EXPECT_NE(warnings().find(why), std::string::npos) << why;
    EXPECT_EQ(storedFiles(directory / "kernel", ".bad").size(), 1u);
    const auto next = prepared(plan, target);
    ASSERT_TRUE(next.ok());
    EXPECT_EQ(next->kernels_compiled, 0u) << why;
    EXPECT_EQ(next->kernels_from_directory, 1u) << why;
    EXPECT_EQ(next->cache_failures, 0u) << why;
    EXPECT_EQ(warnings(), "");
  }
};

TEST_F(Healing, APlanThatDoesNotParse) {
  Json foreign = scalePlan("host");
  foreign["format"] = "cermet.plan.0";
  for (const std::string& payload : {std::string(""), std::string("{"), foreign.dump()}) {
    ASSERT_TRUE(prepared(scalePlan(), "host").ok());
    replacePayload(only("plan"), payload);
    warnings();
    const auto healed = prepared(scalePlan(), "host");
    ASSERT_TRUE(healed.ok()) << healed.status().message();
    EXPECT_EQ(healed->plans_compiled, 1u);
    EXPECT_EQ(healed->cache_failures, 1u);
    EXPECT_NE(warnings().find("(moved aside as .bad)"), std::string::npos);
    EXPECT_EQ(prepared(scalePlan(), "host")->plans_from_directory, 1u);
  }
}

TEST_F(Healing, AMatchOrGradientThatIsNone) {
  const std::string match = R"({"format": "cermet.match.1"})", gradient = R"({"format": "cermet.gradient.1"})";
  for (const std::string& payload : {std::string("nothing"), std::string("[]"), std::string("{}"), gradient}) {
    ASSERT_TRUE(Context(config).match(match).ok());
    replacePayload(only("match"), payload);
    Context context(config);
    EXPECT_EQ(*context.match(match), match);
    EXPECT_EQ(context.counters().plansCompiled, 1u);
    EXPECT_EQ(context.counters().cacheFailures, 1u);
    Context next(config);
    EXPECT_EQ(*next.match(match), match);
    EXPECT_EQ(next.counters().plansFromDirectory, 1u);
  }
  ASSERT_TRUE(Context(config).differentiate(gradient, {}).ok());
  replacePayload(only("gradient"), match);
  Context context(config);
  EXPECT_EQ(*context.differentiate(gradient, {}), gradient);
  EXPECT_EQ(context.counters().cacheFailures, 1u);
}

TEST_F(Healing, AHostKernelThatDoesNotLoadOrLacksAnEntry) {
  const std::string image = *readFile(FAKE_KERNELS);
  const std::pair<std::string, std::string> cases[] = {{"no ELF", "a host kernel cannot be loaded"},
                                                       {"", "a host kernel cannot be loaded"},
                                                       {image.substr(0, 4000), "is an ELF image that is cut off"},
                                                       {*readFile(FAKE_CUDA), "has no entry 'scale_vector'"}};
  for (const auto& [payload, why] : cases) {
    std::filesystem::remove_all(directory / "kernel");
    ASSERT_TRUE(prepared(scalePlan(), "host").ok());
    replacePayload(only("kernel"), payload);
    expectHealed(scalePlan(), "host", why);
  }
}

TEST_F(Healing, ACubinThatDoesNotLoadOrLacksAnEntry) {
  const Json plan = scalePlan("$TARGET", kCubin);
  const std::pair<std::string, std::string> cases[] = {
      {"without scale_scalar", "finding kernel 'scale_scalar' failed"},
      {readFile(FAKE_KERNELS)->substr(0, 20), "a cubin cannot be loaded: its payload is an ELF image that is cut off"}};
  for (const auto& [payload, why] : cases) {
    std::filesystem::remove_all(directory / "kernel");
    ASSERT_TRUE(prepared(plan, "auto").ok());
    replacePayload(only("kernel"), payload);
    expectHealed(plan, "auto", why);
  }
}

// The device is out of memory, not the entry: it stays as it is.
TEST_F(Healing, AFaultThatIsElsewhereLeavesTheEntry) {
  const Json plan = scalePlan("$TARGET", kCubin);
  ASSERT_TRUE(prepared(plan, "auto").ok());
  warnings();
  cuda.loadResult = 2;
  const Status failure = prepared(plan, "auto").status();
  EXPECT_EQ(failure.code(), CERMET_DRIVER_ERROR) << failure.message();
  EXPECT_EQ(warnings(), "");
  EXPECT_TRUE(storedFiles(directory / "kernel", ".bad").empty());
  cuda.loadResult = 0;
  EXPECT_EQ(prepared(plan, "auto")->kernels_compiled, 0u);
}

TEST_F(Healing, WhatIsMadeHereIsNotMadeTwice) {
  const Json plan = scalePlan("$TARGET", "no ELF"); // the fake compiler's image
  const auto context = std::make_shared<Context>(config);
  const auto compiled = context->compile(plan.dump(), "host");
  ASSERT_TRUE(compiled.ok());
  EXPECT_FALSE(Executable::prepare(context, *compiled, 0).ok());
  EXPECT_EQ(context->counters().kernelsCompiled, 1u);
  EXPECT_FALSE(prepared(plan, "host").ok());
  EXPECT_TRUE(storedFiles(directory / "kernel", ".bad").empty()) << "what is made again is the same";
}

TEST_F(Healing, WithoutACompilerBothCausesAreSaid) {
  ASSERT_TRUE(prepared(scalePlan(), "host").ok());
  replacePayload(only("kernel"), "no ELF");
  config.compilerLibrary = "/nowhere.so";
  const Status failure = prepared(scalePlan(), "host").status();
  EXPECT_NE(failure.message().find("a host kernel cannot be loaded"), std::string::npos) << failure.message();
  EXPECT_NE(failure.message().find("cannot be made again: this graph or kernel is in no cache"), std::string::npos)
      << failure.message();
  config.compilerLibrary = FAKE_COMPILER; // it is there again
  expectHealed(scalePlan(), "host", "a host kernel cannot be loaded");
}

TEST_F(Healing, ThreadsThatMeetItTogetherMendItOnce) {
  ASSERT_TRUE(prepared(scalePlan(), "host").ok());
  replacePayload(only("kernel"), "no ELF");
  const auto context = std::make_shared<Context>(config);
  std::vector<std::thread> threads;
  std::atomic<int> failed{0};
  for (int thread = 0; thread < 8; ++thread)
    threads.emplace_back([&] {
      const auto compiled = context->compile(text, "host");
      failed += !compiled.ok() || !Executable::prepare(context, *compiled, 0).ok();
    });
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(context->counters().kernelsCompiled, 1u);
  EXPECT_EQ(context->counters().cacheFailures, 1u);
}

TEST(Payload, AnImageIsCheckedThroughout) {
  Entry entry;
  entry.kind = EntryKind::Kernel;
  entry.payload = *readFile(FAKE_KERNELS);
  EXPECT_TRUE(checkPayloadThoroughly(entry).ok()) << checkPayloadThoroughly(entry).message();
  const std::string image = entry.payload;
  for (size_t size = 0; size < image.size(); size += 97) {
    entry.payload = image.substr(0, size);
    EXPECT_FALSE(checkPayloadThoroughly(entry).ok()) << size;
  }
  entry.payload = image;
  entry.nvrtcVersion = 13000;
  EXPECT_EQ(checkPayloadThoroughly(entry).message(), "its payload is an image for ELF machine 62, expected 190");
}

} // namespace
} // namespace cermet
