// cermet.h: arguments, handles, messages, and the whole way with the doubles.
#include "runtime/abi/ElementType.h"
#include "runtime/context/Config.h"
#include "runtime/support/Status.h"
#include "tests/unit/frontends/c/ContextTest.h"
#include "tests/unit/runtime/Plans.h"
#include "tests/unit/runtime/TestDirectory.h"
#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <thread>

namespace cermet {
namespace {

struct CApi : ContextTest {
  static void SetUpTestSuite() { useCompiler(FAKE_COMPILER); }

  cermet_plan* compile(const Json& json, const char* target = "host") {
    const std::string text = json.dump();
    cermet_plan* plan = nullptr;
    EXPECT_EQ(cermet_compile(context, text.data(), text.size(), target, &plan), CERMET_OK) << cermet_error_message();
    return plan;
  }
};

cermet_counters emptyCounters() {
  cermet_counters counters{};
  counters.size = sizeof(counters);
  return counters;
}

cermet_value_info emptyInfo() {
  cermet_value_info info{};
  info.size = sizeof(info);
  return info;
}

#define EXPECT_NULL_REFUSED(call, argument)                                                                            \
  EXPECT_EQ(call, CERMET_INVALID_ARGUMENT);                                                                            \
  EXPECT_TRUE(std::string(cermet_error_message()).ends_with(argument " is NULL")) << cermet_error_message()

TEST_F(CApi, NullPointersAreRefusedByName) {
  cermet_plan* plan = compile(scalePlan());
  cermet_executable* executable = nullptr;
  ASSERT_EQ(cermet_prepare(context, plan, 0, &executable), CERMET_OK) << cermet_error_message();
  char* json = nullptr;
  cermet_plan* noPlan = nullptr;
  cermet_value_info info = emptyInfo();
  size_t size;
  const uint8_t wanted = 1;
  EXPECT_NULL_REFUSED(cermet_context_create(nullptr, nullptr), "context");
  EXPECT_NULL_REFUSED(cermet_context_counters(nullptr, nullptr), "context");
  EXPECT_NULL_REFUSED(cermet_context_counters(context, nullptr), "counters");
  char* noJson = nullptr;
  EXPECT_NULL_REFUSED(cermet_context_write_pack(nullptr, "a.cpack", &noJson), "context");
  EXPECT_NULL_REFUSED(cermet_context_write_pack(context, nullptr, &noJson), "path");
  EXPECT_NULL_REFUSED(cermet_context_write_pack(context, "a.cpack", nullptr), "json");
  EXPECT_NULL_REFUSED(cermet_compile(nullptr, "", 0, "host", &noPlan), "context");
  EXPECT_NULL_REFUSED(cermet_compile(context, nullptr, 0, "host", &noPlan), "text");
  EXPECT_NULL_REFUSED(cermet_compile(context, "", 0, nullptr, &noPlan), "target");
  EXPECT_NULL_REFUSED(cermet_compile(context, "", 0, "host", nullptr), "plan");
  EXPECT_NULL_REFUSED(cermet_plan_input(nullptr, 0, &info), "plan");
  EXPECT_NULL_REFUSED(cermet_plan_input(plan, 0, nullptr), "info");
  EXPECT_NULL_REFUSED(cermet_plan_output(nullptr, 0, &info), "plan");
  EXPECT_NULL_REFUSED(cermet_plan_output(plan, 0, nullptr), "info");
  EXPECT_NULL_REFUSED(cermet_match(nullptr, "", 0, &json), "context");
  EXPECT_NULL_REFUSED(cermet_match(context, nullptr, 0, &json), "text");
  EXPECT_NULL_REFUSED(cermet_match(context, "", 0, nullptr), "json");
  EXPECT_NULL_REFUSED(cermet_differentiate(nullptr, "", 0, &wanted, 1, &json), "context");
  EXPECT_NULL_REFUSED(cermet_differentiate(context, nullptr, 0, &wanted, 1, &json), "text");
  EXPECT_NULL_REFUSED(cermet_differentiate(context, "", 0, &wanted, 1, nullptr), "json");
  EXPECT_EQ(cermet_differentiate(context, "", 0, nullptr, 1, &json), CERMET_INVALID_ARGUMENT);
  EXPECT_EQ(cermet_differentiate(context, "", 0, &wanted, -1, &json), CERMET_INVALID_ARGUMENT);
  EXPECT_NULL_REFUSED(cermet_kernel_source(nullptr, "", 0, &json), "context");
  EXPECT_NULL_REFUSED(cermet_kernel_source(context, nullptr, 0, &json), "spec");
  EXPECT_NULL_REFUSED(cermet_kernel_source(context, "", 0, nullptr), "source");
  EXPECT_NULL_REFUSED(cermet_compile_kernels(nullptr, plan), "context");
  EXPECT_NULL_REFUSED(cermet_compile_kernels(context, nullptr), "plan");
  EXPECT_NULL_REFUSED(cermet_prepare(nullptr, plan, 0, &executable), "context");
  EXPECT_NULL_REFUSED(cermet_prepare(context, nullptr, 0, &executable), "plan");
  EXPECT_NULL_REFUSED(cermet_prepare(context, plan, 0, nullptr), "executable");
  EXPECT_NULL_REFUSED(cermet_workspace_size(nullptr, nullptr, 0, &size), "executable");
  EXPECT_NULL_REFUSED(cermet_workspace_size(executable, nullptr, 0, nullptr), "size");
  EXPECT_EQ(cermet_workspace_size(executable, nullptr, 2, &size), CERMET_INVALID_ARGUMENT);
  EXPECT_NULL_REFUSED(cermet_launch(nullptr, nullptr, nullptr, 0, nullptr, 0), "executable");
  EXPECT_EQ(cermet_launch(executable, nullptr, nullptr, 3, nullptr, 0), CERMET_INVALID_ARGUMENT);
  EXPECT_NULL_REFUSED(cermet_executable_set_external(nullptr, nullptr, nullptr), "executable");
  EXPECT_NULL_REFUSED(cermet_targets(nullptr, &json), "context");
  EXPECT_NULL_REFUSED(cermet_targets(context, nullptr), "json");
  EXPECT_NULL_REFUSED(cermet_settings(nullptr), "json");
  EXPECT_STREQ(cermet_plan_json(nullptr), "");
  EXPECT_EQ(cermet_plan_input_count(nullptr), 0);
  EXPECT_EQ(cermet_plan_output_count(nullptr), 0);
  cermet_context_destroy(nullptr);
  cermet_plan_destroy(nullptr);
  cermet_executable_destroy(nullptr);
  cermet_string_free(nullptr);
  cermet_executable_destroy(executable);
  cermet_plan_destroy(plan);
}

TEST_F(CApi, AFailureTouchesNoOutput) {
  cermet_plan* plan = reinterpret_cast<cermet_plan*>(1);
  EXPECT_EQ(cermet_compile(context, "fail 2 line 3: no such operation", 32, "host", &plan), CERMET_INVALID_GRAPH);
  EXPECT_STREQ(cermet_error_message(), "line 3: no such operation");
  EXPECT_EQ(plan, reinterpret_cast<cermet_plan*>(1));
}

// Refused by its length alone: there is no such text to look at.
TEST_F(CApi, LengthsThatNoTextHasAreRefusedAtOnce) {
  const uint8_t wanted = 1;
  for (size_t length : {SIZE_MAX, SIZE_MAX / 2, size_t(1) << 40, CERMET_MAX_TEXT + 1}) {
    cermet_plan* plan = nullptr;
    char* answer = nullptr;
    const std::string message = fmt::format("graph:1:1: the text has {} bytes, expected at most 67108864", length);
    EXPECT_EQ(cermet_compile(context, "x", length, "host", &plan), CERMET_INVALID_GRAPH);
    EXPECT_EQ(cermet_error_message(), message);
    EXPECT_EQ(cermet_match(context, "x", length, &answer), CERMET_INVALID_GRAPH);
    EXPECT_EQ(cermet_error_message(), message);
    EXPECT_EQ(cermet_differentiate(context, "x", length, &wanted, 1, &answer), CERMET_INVALID_GRAPH);
    EXPECT_EQ(cermet_error_message(), message);
    EXPECT_EQ(cermet_kernel_source(context, "x", length, &answer), CERMET_INVALID_ARGUMENT);
    EXPECT_EQ(cermet_error_message(),
              fmt::format("cermet_kernel_source: the spec has {} bytes, expected at most 67108864", length));
    EXPECT_EQ(cermet_text_key("x", length), -1);
    EXPECT_EQ(plan, nullptr);
    EXPECT_EQ(answer, nullptr);
  }
  EXPECT_EQ(cermet_text_key(nullptr, 1), -1);
  // More inputs than the text has bytes: `wanted` is not read as far.
  char* answer = nullptr;
  EXPECT_EQ(cermet_differentiate(context, "text", 4, &wanted, INT32_MAX, &answer), CERMET_INVALID_ARGUMENT);
}

TEST_F(CApi, WhatACallbackThrowsIsAStatus) {
  Json json = scalePlan();
  json["steps"][0] = {{"kind", "external"}, {"op", "frob"}, {"operands", {0, 1}}, {"results", {2}}};
  cermet_plan* plan = compile(json);
  cermet_executable* executable = nullptr;
  ASSERT_EQ(cermet_prepare(context, plan, 0, &executable), CERMET_OK) << cermet_error_message();
  float x[8] = {}, weight[8] = {}, y[8];
  const TestTensor given[] = {{x, {1, 1, 8}}, {weight, {8}}, {y, {1, 1, 8}}};
  const cermet_tensor tensors[] = {given[0], given[1], given[2]};
  const std::pair<cermet_external, const char*> callbacks[] = {
      {[](auto...) -> cermet_status { throw std::runtime_error("no BLAS"); }, "no BLAS"},
      {[](auto...) -> cermet_status { throw 7; }, "something that is no std::exception"}};
  for (auto [callback, what] : callbacks) {
    ASSERT_EQ(cermet_executable_set_external(executable, callback, nullptr), CERMET_OK);
    EXPECT_EQ(cermet_launch(executable, nullptr, tensors, 3, nullptr, 0), CERMET_INTERNAL);
    EXPECT_EQ(std::string(cermet_error_message()),
              fmt::format("scale: the callback of the external step frob threw: {}", what));
  }
  cermet_executable_destroy(executable);
  cermet_plan_destroy(plan);
}

// From within the library, whoever threw it.
TEST_F(CApi, WhatTheCompilerThrowsIsAStatus) {
  for (int turn = 0; turn < 2; ++turn) { // nobody waits for the answer that never came
    cermet_plan* plan = nullptr;
    EXPECT_EQ(cermet_compile(context, "throw", 5, "host", &plan), CERMET_INTERNAL);
    EXPECT_EQ(std::string(cermet_error_message()),
              "something that is no std::exception was thrown while an answer was made");
  }
}

TEST_F(CApi, MessagesBelongToTheirThread) {
  cermet_plan* plan = nullptr;
  EXPECT_EQ(cermet_compile(context, "fail 3 mine", 11, "host", &plan), CERMET_UNSUPPORTED);
  std::thread([] { EXPECT_STREQ(cermet_error_message(), ""); }).join();
  EXPECT_STREQ(cermet_error_message(), "mine");
}

TEST_F(CApi, PlansDescribeTheirValues) {
  cermet_plan* plan = compile(scalePlan());
  EXPECT_EQ(cermet_plan_input_count(plan), 2);
  EXPECT_EQ(cermet_plan_output_count(plan), 1);
  cermet_value_info info = emptyInfo();
  ASSERT_EQ(cermet_plan_output(plan, 0, &info), CERMET_OK);
  EXPECT_STREQ(info.name, "y");
  EXPECT_EQ(info.dtype, CERMET_F32);
  EXPECT_EQ(info.rank, 3);
  EXPECT_EQ(info.sizes[0], -1);
  EXPECT_STREQ(info.symbols[0], "a");
  EXPECT_EQ(info.sizes[2], 8);
  EXPECT_EQ(info.symbols[2], nullptr);
  EXPECT_EQ(cermet_plan_input(plan, 2, &info), CERMET_INVALID_ARGUMENT);
  EXPECT_STREQ(cermet_error_message(), "scale: input 2 does not exist, the plan has 2");
  EXPECT_EQ(cermet_plan_input(plan, -1, &info), CERMET_INVALID_ARGUMENT);
  EXPECT_NE(std::string(cermet_plan_json(plan)).find("cermet.plan.1"), std::string::npos);
  cermet_plan_destroy(plan);
}

TEST_F(CApi, TheWholeWay) {
  cermet_plan* plan = compile(scalePlan(), "auto"); // no driver here: the host
  cermet_executable* executable = nullptr;
  ASSERT_EQ(cermet_prepare(context, plan, 0, &executable), CERMET_OK) << cermet_error_message();
  cermet_plan_destroy(plan); // an executable needs neither its plan nor its context's handle
  cermet_context* kept = context;
  float x[16], weight[8], y[16];
  for (int index = 0; index < 16; ++index)
    x[index] = static_cast<float>(index), weight[index % 8] = static_cast<float>(index % 8);
  const TestTensor given[] = {{x, {2, 1, 8}}, {weight, {8}}, {y, {2, 1, 8}}};
  const cermet_tensor tensors[] = {given[0], given[1], given[2]};
  size_t size = 1;
  ASSERT_EQ(cermet_workspace_size(executable, tensors, 3, &size), CERMET_OK);
  EXPECT_EQ(size, 0u);
  ASSERT_EQ(cermet_launch(executable, nullptr, tensors, 3, nullptr, 0), CERMET_OK) << cermet_error_message();
  for (int index = 0; index < 16; ++index)
    EXPECT_EQ(y[index], x[index] * weight[index % 8]);
  cermet_counters counters = emptyCounters();
  ASSERT_EQ(cermet_context_counters(kept, &counters), CERMET_OK);
  EXPECT_EQ(counters.plans_compiled, 1u);
  EXPECT_EQ(counters.kernels_compiled, 1u);
  EXPECT_GT(counters.kernel_compile_microseconds, 0u);
  EXPECT_EQ(counters.launches, 1u);
  EXPECT_EQ(counters.cache_failures, 0u);
  cermet_context_destroy(context);
  context = nullptr;
  EXPECT_EQ(cermet_launch(executable, nullptr, tensors, 3, nullptr, 0), CERMET_OK);
  cermet_executable_destroy(executable);
}

TEST_F(CApi, AnswersForFrontendsAreCached) {
  const std::string text = "a graph";
  const uint8_t wanted[] = {1, 0, 1}, others[] = {1, 1, 1};
  for (int turn = 0; turn < 2; ++turn) {
    char* json = nullptr;
    ASSERT_EQ(cermet_match(context, text.data(), text.size(), &json), CERMET_OK);
    EXPECT_STREQ(json, "a graph");
    cermet_string_free(json);
    ASSERT_EQ(cermet_differentiate(context, text.data(), text.size(), wanted, 3, &json), CERMET_OK);
    EXPECT_STREQ(json, "a graph yes no yes");
    cermet_string_free(json);
    ASSERT_EQ(cermet_differentiate(context, text.data(), text.size(), others, 3, &json), CERMET_OK);
    EXPECT_STREQ(json, "a graph yes yes yes");
    cermet_string_free(json);
  }
  cermet_counters counters = emptyCounters();
  ASSERT_EQ(cermet_context_counters(context, &counters), CERMET_OK);
  EXPECT_EQ(counters.plans_compiled, 3u);
  EXPECT_EQ(counters.plans_from_memory, 3u);
}

TEST_F(CApi, TheDirectoryServesAnotherContext) {
  TestDirectory directory;
  cermet_context_options options{};
  options.size = sizeof(options);
  options.cache_directory = directory.path().c_str();
  const std::string text = scalePlan().dump();
  for (int turn = 0; turn < 2; ++turn) {
    cermet_context* own = nullptr;
    cermet_plan* plan = nullptr;
    cermet_executable* executable = nullptr;
    ASSERT_EQ(cermet_context_create(&options, &own), CERMET_OK);
    EXPECT_EQ(cermet_context_cache_directory(own), directory.path());
    ASSERT_EQ(cermet_compile(own, text.data(), text.size(), "host", &plan), CERMET_OK);
    ASSERT_EQ(cermet_prepare(own, plan, 0, &executable), CERMET_OK);
    cermet_counters counters = emptyCounters();
    ASSERT_EQ(cermet_context_counters(own, &counters), CERMET_OK);
    EXPECT_EQ(counters.plans_compiled, turn == 0 ? 1u : 0u);
    EXPECT_EQ(counters.kernels_compiled, turn == 0 ? 1u : 0u);
    EXPECT_EQ(counters.plans_from_directory, turn == 0 ? 0u : 1u);
    EXPECT_EQ(counters.kernels_from_directory, turn == 0 ? 0u : 1u);
    cermet_executable_destroy(executable);
    cermet_plan_destroy(plan);
    cermet_context_destroy(own);
  }
}

TEST_F(CApi, APackServesAContextThatMayMakeNothing) {
  TestDirectory directory;
  const std::string text = scalePlan().dump(), path = directory / "a.cpack";
  cermet_context_options options{};
  options.size = sizeof(options);
  options.cache_directory = "";
  options.cache = "off";
  cermet_context* own = nullptr;
  EXPECT_EQ(cermet_context_create(&options, &own), CERMET_INVALID_ARGUMENT);
  EXPECT_STREQ(cermet_error_message(), "cermet_context_create: options->cache is 'off', expected on or only");
  options.cache = "only";
  options.packs = path.c_str();
  EXPECT_EQ(cermet_context_create(&options, &own), CERMET_NOT_FOUND);
  EXPECT_NE(std::string(cermet_error_message()).find("a pack cannot be opened: '" + path + "': No such file"),
            std::string::npos);

  cermet_plan* plan = nullptr;
  cermet_executable* executable = nullptr;
  ASSERT_EQ(cermet_compile(context, text.data(), text.size(), "host", &plan), CERMET_OK);
  ASSERT_EQ(cermet_prepare(context, plan, 0, &executable), CERMET_OK);
  cermet_executable_destroy(executable);
  cermet_plan_destroy(plan);
  char* json = nullptr;
  EXPECT_EQ(cermet_context_write_pack(context, (directory / "none/a.cpack").c_str(), &json), CERMET_INVALID_ARGUMENT);
  ASSERT_EQ(cermet_context_write_pack(context, path.c_str(), &json), CERMET_OK) << cermet_error_message();
  const auto written = Json::parse(json);
  cermet_string_free(json);
  EXPECT_EQ(written["entries"], 2);
  EXPECT_EQ(written["bytes"], std::filesystem::file_size(path));
  EXPECT_EQ(written["digest"].get<std::string>().size(), 64u);

  ASSERT_EQ(cermet_context_create(&options, &own), CERMET_OK) << cermet_error_message();
  ASSERT_EQ(cermet_compile(own, text.data(), text.size(), "host", &plan), CERMET_OK) << cermet_error_message();
  ASSERT_EQ(cermet_prepare(own, plan, 0, &executable), CERMET_OK) << cermet_error_message();
  cermet_counters counters = emptyCounters();
  ASSERT_EQ(cermet_context_counters(own, &counters), CERMET_OK);
  EXPECT_EQ(counters.plans_from_packs, 1u);
  EXPECT_EQ(counters.kernels_from_packs, 1u);
  EXPECT_EQ(counters.cache_misses, 0u);
  EXPECT_EQ(cermet_match(own, text.data(), text.size(), &json), CERMET_NOT_STORED);
  EXPECT_STREQ(cermet_status_name(CERMET_NOT_STORED), "NOT_STORED");
  cermet_executable_destroy(executable);
  cermet_plan_destroy(plan);
  cermet_context_destroy(own);
}

// Compiled without being loaded is as good for a pack, and of a plan that is prepared later nothing is left to compile.
TEST_F(CApi, KernelsAreCompiledWithoutBeingLoaded) {
  cermet_plan* plan = compile(scalePlan());
  ASSERT_EQ(cermet_compile_kernels(context, plan), CERMET_OK) << cermet_error_message();
  ASSERT_EQ(cermet_compile_kernels(context, plan), CERMET_OK) << cermet_error_message();
  cermet_executable* executable = nullptr;
  ASSERT_EQ(cermet_prepare(context, plan, 0, &executable), CERMET_OK) << cermet_error_message();
  cermet_counters counters = emptyCounters();
  ASSERT_EQ(cermet_context_counters(context, &counters), CERMET_OK);
  EXPECT_EQ(counters.kernels_compiled, 1u);
  cermet_executable_destroy(executable);
  cermet_plan_destroy(plan);
}

TEST_F(CApi, NamesAndKeys) {
  EXPECT_STREQ(cermet_context_cache_directory(context), "");
  EXPECT_STREQ(cermet_context_cache_directory(nullptr), "");
  EXPECT_TRUE(std::string(cermet_version()).starts_with("0.1.0+"));
  EXPECT_STREQ(cermet_status_name(CERMET_OK), "OK");
  EXPECT_STREQ(cermet_status_name(CERMET_CAPTURING), "CAPTURING");
  EXPECT_STREQ(cermet_status_name(static_cast<cermet_status>(99)), "unknown status");
  EXPECT_EQ(cermet_text_key("", 0), 0x2d06800538d394c2 >> 1 & 0x7fffffffffffffff); // XXH3-64 of nothing
  EXPECT_NE(cermet_text_key("a", 1), cermet_text_key("b", 1));
  for (char letter = 'a'; letter <= 'z'; ++letter)
    EXPECT_GE(cermet_text_key(&letter, 1), 0);
}

TEST_F(CApi, FactsAreTheTables) {
  const Json facts = Json::parse(cermet_facts());
  ASSERT_EQ(facts["element_types"].size(), size_t(kElementTypeCount));
  for (const Json& type : facts["element_types"]) {
    EXPECT_EQ(elementType(type["name"].get<std::string>()), type["code"].get<int>());
    EXPECT_EQ(elementBytes(type["code"].get<cermet_dtype>()), type["bytes"].get<int>());
  }
  for (const char* kind : {"cuda_targets", "host_targets", "operand_kinds"})
    EXPECT_FALSE(facts[kind].empty()) << kind;
  EXPECT_EQ(facts["limits"]["rank"], CERMET_MAX_RANK);
}

TEST_F(CApi, SettingsAreTheEnvironmentsNow) {
  char* json = nullptr;
  ASSERT_EQ(cermet_settings(&json), CERMET_OK) << cermet_error_message();
  Json told = Json::parse(json);
  cermet_string_free(json);
  EXPECT_EQ(told["CERMET_THREADS"], 2);
  EXPECT_EQ(told["CERMET_CHECK"], false);
  EXPECT_EQ(told.size(), settings().size());
  setenv("CERMET_CHECK", "1", 1);
  ASSERT_EQ(cermet_settings(&json), CERMET_OK) << cermet_error_message();
  EXPECT_EQ(Json::parse(json)["CERMET_CHECK"], true);
  cermet_string_free(json);
  setenv("CERMET_CHECK", "2", 1);
  EXPECT_EQ(cermet_settings(&json), CERMET_INVALID_ARGUMENT);
  EXPECT_STREQ(cermet_error_message(), "CERMET_CHECK is '2', expected 0 or 1");
  unsetenv("CERMET_CHECK");
}

TEST(CompilerLibrary, WhatIsMissingOrForeignIsNamed) {
  Config config = testConfig();
  config.compilerLibrary = "/nowhere/libcermet_compiler.so";
  Status missing = std::make_shared<Context>(config)->compile("x", "host").status();
  EXPECT_EQ(missing.code(), CERMET_NOT_FOUND);
  EXPECT_NE(missing.message().find("/nowhere/libcermet_compiler.so"), std::string::npos) << missing.message();
  EXPECT_NE(missing.message().find("set CERMET_COMPILER_LIBRARY"), std::string::npos);
  config.compilerLibrary = FOREIGN_COMPILER;
  Status foreign = std::make_shared<Context>(config)->compile("x", "host").status();
  EXPECT_NE(foreign.message().find("is of build another, libcermet is of build"), std::string::npos)
      << foreign.message();
  config.compilerLibrary = FAKE_CUDA; // a library, but not that one
  Status other = std::make_shared<Context>(config)->compile("x", "host").status();
  EXPECT_NE(other.message().find("is no compiler library of this version"), std::string::npos) << other.message();
}

TEST(CompilerLibrary, FailuresOfKernelsArrive) {
  const auto context = std::make_shared<Context>(testConfig());
  const auto plan = context->compile(scalePlan("$TARGET", "fail 5 ptxas says no").dump(), "host");
  ASSERT_TRUE(plan.ok());
  const Status failed = Executable::prepare(context, *plan, 0).status();
  EXPECT_EQ(failed.code(), CERMET_COMPILE_FAILED);
  EXPECT_EQ(failed.message(), "ptxas says no");
  EXPECT_EQ(context->compile("not JSON", "host").status().message(), "damaged plan: it is not a JSON object");
}

} // namespace
} // namespace cermet
