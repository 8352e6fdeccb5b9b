// cermet.hpp with the real compiler, in a program that has nothing of the library's but its headers.
#include <cermet.hpp>
#include <filesystem>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>
#include <utility>

namespace {

constexpr const char* kDouble = R"(!t = tensor<?x8xf32, #cermet.symbols<["rows"]>>
module attributes {cermet.version = 1 : i64} {
  func.func @twice(%x: !t) -> !t {
    %y = cermet.add %x, %x : !t
    return %y : !t
  }
})";

cermet::Options alone() {
  setenv("CERMET_COMPILER_LIBRARY", COMPILER, 1);
  cermet::Options options;
  options.cache_directory = "";
  return options;
}

template <typename Call> cermet_status statusOf(const Call& call, const std::string& part) {
  try {
    call();
  } catch (const cermet::Error& failure) {
    EXPECT_NE(std::string(failure.what()).find(part), std::string::npos) << failure.what();
    return failure.status();
  }
  return CERMET_OK;
}

TEST(Handles, TheWholeWay) {
  cermet::Executable run;
  {
    const cermet::Context context(alone());
    const cermet::Plan plan = context.compile(kDouble, "host");
    EXPECT_EQ(plan.inputCount(), 1);
    EXPECT_EQ(plan.outputCount(), 1);
    EXPECT_STREQ(plan.input(0).name, "x");
    EXPECT_STREQ(plan.output(0).symbols[0], "rows");
    run = context.prepare(plan);
    EXPECT_EQ(context.counters().kernels_compiled, 1u);
    EXPECT_NE(context.targets().find("host"), std::string::npos);
  }                          // an executable needs neither
  float x[2][8], y[8][2][2]; // of y the rows lie apart
  for (int at = 0; at < 16; ++at)
    x[at / 8][at % 8] = static_cast<float>(at);
  EXPECT_EQ(run.workspaceSize({{x, CERMET_F32, {2, 8}}, {y, CERMET_F32, {2, 8}}}), 0u);
  run.launch(nullptr, {{x, CERMET_F32, {2, 8}}, {y, CERMET_F32, {2, 8}, {16, 1}}});
  for (int at = 0; at < 16; ++at)
    EXPECT_EQ((&y[0][0][0])[at / 8 * 16 + at % 8], 2.0f * static_cast<float>(at));
}

TEST(Handles, FailuresAreExceptions) {
  const cermet::Context context(alone());
  EXPECT_EQ(statusOf([&] { context.compile("no graph", "host"); }, "INVALID_GRAPH: graph:1:1"), CERMET_INVALID_GRAPH);
  const cermet::Plan plan = context.compile(kDouble, "host");
  EXPECT_EQ(statusOf([&] { plan.input(1); }, "input 1 does not exist"), CERMET_INVALID_ARGUMENT);
  const cermet::Executable run = context.prepare(plan);
  float x[8];
  EXPECT_EQ(statusOf([&] { run.launch(nullptr, {{x, CERMET_F32, {1, 8}}}); }, "2"), CERMET_INVALID_ARGUMENT);
  EXPECT_THROW(cermet::Tensor(x, CERMET_F32, {1, 8}, {1}), std::invalid_argument);
  EXPECT_THROW(cermet::Tensor(x, CERMET_F32, {1, 1, 1, 1, 1, 1, 1, 1, 1}), std::invalid_argument);
}

TEST(Handles, WhatWasMovedFromIsRefusedByName) {
  cermet::Context context(alone());
  cermet::Plan plan = context.compile(kDouble, "host");
  cermet::Executable run = context.prepare(plan);
  const cermet::Context kept = std::move(context);
  const cermet::Plan keptPlan = std::move(plan);
  const cermet::Executable keptRun = std::move(run);
  EXPECT_EQ(statusOf([&] { context.counters(); }, "context is NULL"), CERMET_INVALID_ARGUMENT);
  EXPECT_EQ(statusOf([&] { kept.prepare(plan); }, "plan is NULL"), CERMET_INVALID_ARGUMENT);
  EXPECT_EQ(statusOf([&] { run.launch(nullptr, {}); }, "executable is NULL"), CERMET_INVALID_ARGUMENT);
  EXPECT_EQ(kept.counters().plans_compiled, 1u);
  EXPECT_EQ(keptPlan.inputCount(), 1);
  EXPECT_NE(keptRun.get(), nullptr);
}

TEST(Handles, APackServesOptionsThatMakeNothing) {
  const std::string path = testing::TempDir() + "handles." + std::to_string(getpid()) + ".cpack";
  {
    const cermet::Context context(alone());
    context.prepare(context.compile(kDouble, "host"));
    EXPECT_NE(context.writePack(path).find("\"entries\": 2"), std::string::npos);
  }
  cermet::Options options = alone();
  options.packs = path.c_str();
  options.cache = "only";
  const cermet::Context context(options);
  context.prepare(context.compile(kDouble, "host"));
  EXPECT_EQ(context.counters().kernels_from_packs, 1u);
  const std::string other = std::string(kDouble).replace(std::string(kDouble).find("add"), 3, "mul");
  EXPECT_EQ(statusOf([&] { context.compile(other, "host"); }, "NOT_STORED"), CERMET_NOT_STORED);
  std::filesystem::remove(path);
}

} // namespace
