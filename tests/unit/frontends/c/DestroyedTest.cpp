// Handles that are gone: what is used after its end, or ends twice, is refused by name. And callbacks that do what
// nobody expects of them.
#include "tests/unit/frontends/c/ContextTest.h"
#include "tests/unit/runtime/Plans.h"
#include <fmt/format.h>
#include <set>
#include <thread>

namespace cermet {
namespace {

struct Destroyed : ContextTest {
  const std::string text = scalePlan().dump();
  cermet_plan* plan = nullptr;
  cermet_executable* executable = nullptr;

  static void SetUpTestSuite() { useCompiler(FAKE_COMPILER); }
  void SetUp() override {
    ContextTest::SetUp();
    ASSERT_EQ(cermet_compile(context, text.data(), text.size(), "host", &plan), CERMET_OK) << cermet_error_message();
    ASSERT_EQ(cermet_prepare(context, plan, 0, &executable), CERMET_OK) << cermet_error_message();
  }
  void TearDown() override {
    cermet_executable_destroy(executable);
    cermet_plan_destroy(plan);
    ContextTest::TearDown();
  }
};

#define EXPECT_REFUSED(function, call, argument)                                                                       \
  EXPECT_EQ(function call, CERMET_INVALID_ARGUMENT);                                                                   \
  EXPECT_EQ(std::string(cermet_error_message()),                                                                       \
            #function ": " argument " was destroyed, or is none that this library made")

TEST_F(Destroyed, IsRefusedByNameWhereverItIsUsed) {
  cermet_context* gone = nullptr;
  ASSERT_EQ(cermet_context_create(nullptr, &gone), CERMET_OK) << cermet_error_message();
  cermet_context_destroy(gone);
  cermet_executable_destroy(executable);
  cermet_plan_destroy(plan);
  char* json = nullptr;
  cermet_plan* noPlan = nullptr;
  cermet_executable* none = nullptr;
  size_t size = 0;
  const uint8_t wanted = 1;
  cermet_counters counters{};
  counters.size = sizeof(counters);
  cermet_value_info info{};
  info.size = sizeof(info);
  const cermet_tensor tensors[3] = {};
  EXPECT_REFUSED(cermet_context_write_pack, (gone, "a.cpack", &json), "context");
  EXPECT_REFUSED(cermet_context_counters, (gone, &counters), "context");
  EXPECT_REFUSED(cermet_compile, (gone, text.data(), text.size(), "host", &noPlan), "context");
  EXPECT_REFUSED(cermet_match, (gone, text.data(), text.size(), &json), "context");
  EXPECT_REFUSED(cermet_differentiate, (gone, text.data(), text.size(), &wanted, 1, &json), "context");
  EXPECT_REFUSED(cermet_kernel_source, (gone, text.data(), text.size(), &json), "context");
  EXPECT_REFUSED(cermet_targets, (gone, &json), "context");
  EXPECT_REFUSED(cermet_prepare, (gone, plan, 0, &none), "context");
  EXPECT_REFUSED(cermet_prepare, (context, plan, 0, &none), "plan");
  EXPECT_REFUSED(cermet_plan_input, (plan, 0, &info), "plan");
  EXPECT_REFUSED(cermet_plan_output, (plan, 0, &info), "plan");
  EXPECT_REFUSED(cermet_workspace_size, (executable, tensors, 3, &size), "executable");
  EXPECT_REFUSED(cermet_launch, (executable, nullptr, tensors, 3, nullptr, 0), "executable");
  EXPECT_REFUSED(cermet_executable_set_external, (executable, nullptr, nullptr), "executable");
  EXPECT_STREQ(cermet_context_cache_directory(gone), "");
  EXPECT_STREQ(cermet_plan_json(plan), "");
  EXPECT_EQ(cermet_plan_input_count(plan), 0);
  EXPECT_EQ(cermet_plan_output_count(plan), 0);
  EXPECT_EQ(json, nullptr);
  EXPECT_EQ(noPlan, nullptr);
  EXPECT_EQ(none, nullptr);
  cermet_context_destroy(gone); // and ends once; what TearDown does is the second time, too
}

TEST_F(Destroyed, IsAnothersPlaceOnlyMuchLater) {
  cermet_plan_destroy(plan);
  cermet_plan_destroy(plan);
  std::set<cermet_plan*> made;
  for (int turn = 0; turn < 1024; ++turn) {
    cermet_plan* other = nullptr;
    ASSERT_EQ(cermet_compile(context, text.data(), text.size(), "host", &other), CERMET_OK);
    EXPECT_NE(other, plan) << turn;
    EXPECT_EQ(cermet_plan_input_count(plan), 0);
    made.insert(other);
    cermet_plan_destroy(other);
  }
  for (int turn = 0; turn < 4096; ++turn) { // and memory does not grow
    cermet_plan* other = nullptr;
    ASSERT_EQ(cermet_compile(context, text.data(), text.size(), "host", &other), CERMET_OK);
    made.insert(other);
    cermet_plan_destroy(other);
  }
  EXPECT_LE(made.size(), 1100u);
}

TEST_F(Destroyed, WhatIsNoHandleIsRefused) {
  alignas(64) char zeros[256] = {};
  char* json = nullptr;
  EXPECT_REFUSED(cermet_targets, (reinterpret_cast<cermet_context*>(zeros), &json), "context");
  EXPECT_REFUSED(cermet_launch, (reinterpret_cast<cermet_executable*>(zeros), nullptr, nullptr, 0, nullptr, 0),
                 "executable");
  cermet_plan_destroy(reinterpret_cast<cermet_plan*>(zeros));
}

TEST_F(Destroyed, MissingArraysAreNamedWithTheirLength) {
  size_t size = 0;
  char* json = nullptr;
  EXPECT_EQ(cermet_launch(executable, nullptr, nullptr, 3, nullptr, 0), CERMET_INVALID_ARGUMENT);
  EXPECT_STREQ(cermet_error_message(), "cermet_launch: tensors is NULL, expected an array of 3");
  EXPECT_EQ(cermet_workspace_size(executable, nullptr, 2, &size), CERMET_INVALID_ARGUMENT);
  EXPECT_STREQ(cermet_error_message(), "cermet_workspace_size: tensors is NULL, expected an array of 2");
  EXPECT_EQ(cermet_differentiate(context, "x", 1, nullptr, 1, &json), CERMET_INVALID_ARGUMENT);
  EXPECT_STREQ(cermet_error_message(), "cermet_differentiate: wanted is NULL, expected an array of 1");
}

// A callback has every call of the interface, the end of what called it included.
struct Callback : Destroyed {
  float x[8] = {}, weight[8] = {}, y[8] = {};
  const TestTensor given[3] = {{x, {1, 1, 8}}, {weight, {8}}, {y, {1, 1, 8}}};
  const cermet_tensor tensors[3] = {given[0], given[1], given[2]};
  cermet_plan* external = nullptr;
  cermet_executable* outer = nullptr;

  void SetUp() override {
    Destroyed::SetUp();
    Json json = scalePlan();
    json["name"] = "outer";
    json["steps"][0] = {{"kind", "external"}, {"op", "frob"}, {"operands", {0, 1}}, {"results", {2}}};
    const std::string externalText = json.dump();
    ASSERT_EQ(cermet_compile(context, externalText.data(), externalText.size(), "host", &external), CERMET_OK);
    ASSERT_EQ(cermet_prepare(context, external, 0, &outer), CERMET_OK) << cermet_error_message();
  }
  void TearDown() override {
    cermet_executable_destroy(outer);
    cermet_plan_destroy(external);
    Destroyed::TearDown();
  }
};

TEST_F(Callback, MayDestroyWhatCalledIt) {
  const auto destroys = [](void* user, const char* op, const cermet_tensor*, int32_t, int32_t, void*) {
    Callback& test = *static_cast<Callback*>(user);
    cermet_executable_destroy(test.outer);
    cermet_context_destroy(test.context);
    return std::string(op) == "frob" ? CERMET_OK : CERMET_INTERNAL;
  };
  ASSERT_EQ(cermet_executable_set_external(outer, destroys, this), CERMET_OK);
  EXPECT_EQ(cermet_launch(outer, nullptr, tensors, 3, nullptr, 0), CERMET_OK) << cermet_error_message();
  EXPECT_REFUSED(cermet_launch, (outer, nullptr, tensors, 3, nullptr, 0), "executable");
}

TEST_F(Callback, MayCompileAndLaunch) {
  const auto enters = [](void* user, const char*, const cermet_tensor* given, int32_t, int32_t, void*) {
    Callback& test = *static_cast<Callback*>(user);
    cermet_plan* inner = nullptr;
    cermet_executable* run = nullptr;
    Json json = scalePlan();
    json["name"] = "inner";
    const std::string innerText = json.dump();
    cermet_status status = cermet_compile(test.context, innerText.data(), innerText.size(), "host", &inner);
    if (status == CERMET_OK)
      status = cermet_prepare(test.context, inner, 0, &run);
    if (status == CERMET_OK)
      status = cermet_launch(run, nullptr, given, 3, nullptr, 0);
    cermet_executable_destroy(run);
    cermet_plan_destroy(inner);
    return status;
  };
  for (int index = 0; index < 8; ++index)
    x[index] = static_cast<float>(index), weight[index] = 2;
  ASSERT_EQ(cermet_executable_set_external(outer, enters, this), CERMET_OK);
  ASSERT_EQ(cermet_launch(outer, nullptr, tensors, 3, nullptr, 0), CERMET_OK) << cermet_error_message();
  for (int index = 0; index < 8; ++index)
    EXPECT_EQ(y[index], 2 * x[index]);
}

TEST_F(Callback, MayAnswerAnyNumber) {
  Json checked = gatherPlan();
  checked["steps"][0]["entries"] = {{"vector", "checked_vector"}, {"scalar", "checked_vector"}, {"fold", ""}};
  const std::string gathers = checked.dump();
  cermet_plan* gather = nullptr;
  cermet_executable* faulty = nullptr;
  ASSERT_EQ(cermet_compile(context, gathers.data(), gathers.size(), "host", &gather), CERMET_OK);
  ASSERT_EQ(cermet_prepare(context, gather, 0, &faulty), CERMET_OK) << cermet_error_message();
  int64_t none = 5; // there is one row
  const TestTensor asked[] = {{x, {1, 8}}, {&none, {1, 1}, {}, CERMET_I64}, {y, {1, 1, 8}}};
  const cermet_tensor faults[] = {asked[0], asked[1], asked[2]};
  for (int32_t status : {-1, 5, 9, 99, INT32_MAX}) {
    const auto answers = [](void* user, const char*, const cermet_tensor*, int32_t, int32_t, void*) {
      return static_cast<cermet_status>(*static_cast<int32_t*>(user));
    };
    int64_t row = 7, number = 7, bound = 7;
    ASSERT_EQ(cermet_launch(faulty, nullptr, faults, 3, nullptr, 0), CERMET_OUT_OF_RANGE);
    ASSERT_EQ(cermet_error_index(&row, &number, &bound), 0);
    EXPECT_EQ(number, 5);
    row = 7;
    ASSERT_EQ(cermet_executable_set_external(outer, answers, &status), CERMET_OK);
    EXPECT_EQ(static_cast<int32_t>(cermet_launch(outer, nullptr, tensors, 3, nullptr, 0)), status);
    EXPECT_STREQ(cermet_error_message(), "outer: the callback of the external step frob failed");
    EXPECT_EQ(cermet_error_index(&row, &number, &bound), -1) << status; // that is not the kernel's fault of before
    EXPECT_EQ(row, 7);
  }
  cermet_executable_destroy(faulty);
  cermet_plan_destroy(gather);
}

} // namespace
} // namespace cermet
