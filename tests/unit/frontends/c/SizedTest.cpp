// Structs with a size: a program of an older cermet.h, of this one and of a newer one all agree with the library on the
// fields that both know.
#include "frontends/c/Sized.h"
#include "tests/unit/frontends/c/ContextTest.h"
#include "tests/unit/runtime/Plans.h"
#include "tests/unit/runtime/TestDirectory.h"
#include <cstring>
#include <filesystem>
#include <gtest/gtest.h>
#include <stdlib.h>

namespace cermet {
namespace {

// This version's struct, with a field that it has not.
template <typename Struct> struct Newer {
  Struct known;
  uint64_t more;
};
// Room behind a struct that is not the struct's: what writes there would overwrite a program's stack.
template <typename Struct> struct Guarded {
  Struct fields;
  uint64_t guard = kGuard;
  static constexpr uint64_t kGuard = 0x0123456789abcdef;
};

struct OldCounters {
  size_t size;
  uint64_t plans_compiled, plans_from_memory;
};
struct OldInfo {
  size_t size;
  const char* name;
};
struct OldOptions {
  size_t size;
  const char* cache_directory;
};

template <typename Struct, typename Other> Struct* as(Other* other) {
  return reinterpret_cast<Struct*>(other);
}

struct Sized : ContextTest {
  TestDirectory directory;
  cermet_plan* plan = nullptr;

  static void SetUpTestSuite() { useCompiler(FAKE_COMPILER); }
  void SetUp() override {
    ContextTest::SetUp();
    const std::string text = scalePlan().dump();
    ASSERT_EQ(cermet_compile(context, text.data(), text.size(), "host", &plan), CERMET_OK) << cermet_error_message();
  }
  void TearDown() override {
    cermet_plan_destroy(plan);
    ContextTest::TearDown();
  }
  // Whether a context with these options keeps its plans in `directory`.
  bool keepsPlans(const cermet_context_options* options) {
    cermet_context* own = nullptr;
    cermet_plan* kept = nullptr;
    EXPECT_EQ(cermet_context_create(options, &own), CERMET_OK) << cermet_error_message();
    const std::string text = scalePlan().dump();
    EXPECT_EQ(cermet_compile(own, text.data(), text.size(), "host", &kept), CERMET_OK) << cermet_error_message();
    cermet_plan_destroy(kept);
    cermet_context_destroy(own);
    return std::filesystem::exists(directory / "plan");
  }
};

TEST_F(Sized, CountersOfAnOlderProgram) {
  Guarded<OldCounters> old{};
  old.fields.size = sizeof(old.fields);
  ASSERT_EQ(cermet_context_counters(context, as<cermet_counters>(&old)), CERMET_OK) << cermet_error_message();
  EXPECT_EQ(old.fields.plans_compiled, 1u);
  EXPECT_EQ(old.fields.plans_from_memory, 0u);
  EXPECT_EQ(old.guard, old.kGuard);
  EXPECT_EQ(old.fields.size, sizeof(OldCounters));
}

TEST_F(Sized, CountersOfANewerProgram) {
  Guarded<Newer<cermet_counters>> newer{};
  newer.fields.known.size = sizeof(newer.fields);
  newer.fields.more = 7;
  ASSERT_EQ(cermet_context_counters(context, &newer.fields.known), CERMET_OK) << cermet_error_message();
  EXPECT_EQ(newer.fields.known.plans_compiled, 1u);
  EXPECT_EQ(newer.fields.more, 0u) << "what this version does not count never happened";
  EXPECT_EQ(newer.guard, newer.kGuard);
}

TEST_F(Sized, InfosOfAnOlderProgram) {
  Guarded<OldInfo> old{};
  old.fields.size = sizeof(old.fields);
  ASSERT_EQ(cermet_plan_input(plan, 1, as<cermet_value_info>(&old)), CERMET_OK) << cermet_error_message();
  EXPECT_STREQ(old.fields.name, "weight");
  EXPECT_EQ(old.guard, old.kGuard);
  ASSERT_EQ(cermet_plan_output(plan, 0, as<cermet_value_info>(&old)), CERMET_OK) << cermet_error_message();
  EXPECT_STREQ(old.fields.name, "y");
  EXPECT_EQ(old.guard, old.kGuard);
}

TEST_F(Sized, InfosOfThisAndOfANewerProgram) {
  cermet_value_info equal{};
  equal.size = sizeof(equal);
  ASSERT_EQ(cermet_plan_input(plan, 0, &equal), CERMET_OK) << cermet_error_message();
  EXPECT_EQ(equal.rank, 3);
  EXPECT_STREQ(equal.symbols[0], "a");
  Guarded<Newer<cermet_value_info>> newer{};
  newer.fields.known.size = sizeof(newer.fields);
  newer.fields.more = 7;
  ASSERT_EQ(cermet_plan_input(plan, 0, &newer.fields.known), CERMET_OK) << cermet_error_message();
  equal.size = sizeof(newer.fields);
  EXPECT_EQ(std::memcmp(&equal, &newer.fields.known, sizeof(equal)), 0);
  EXPECT_EQ(newer.fields.more, 0u);
  EXPECT_EQ(newer.guard, newer.kGuard);
}

TEST_F(Sized, OptionsOfAnOlderProgram) {
  // Were more than its size read, this would be the path of a dump, or a crash.
  Guarded<OldOptions> old{};
  old.fields.size = sizeof(old.fields);
  old.fields.cache_directory = directory.path().c_str();
  EXPECT_TRUE(keepsPlans(as<cermet_context_options>(&old)));
}

TEST_F(Sized, OptionsOfThisAndOfANewerProgram) {
  Newer<cermet_context_options> newer{};
  newer.known.size = sizeof(newer);
  newer.known.cache_directory = directory.path().c_str();
  EXPECT_TRUE(keepsPlans(&newer.known)) << "a newer field that is 0 asks for nothing";
  newer.more = 1;
  cermet_context* refused = nullptr;
  EXPECT_EQ(cermet_context_create(&newer.known, &refused), CERMET_INVALID_ARGUMENT);
  EXPECT_EQ(refused, nullptr);
  EXPECT_EQ(std::string(cermet_error_message()),
            fmt::format("cermet_context_create: options->size is {}, and of what lies behind the {} bytes that this "
                        "libcermet knows not all is 0; leave newer fields 0 or use the library that cermet.h came with",
                        sizeof(newer), sizeof(newer.known)));
  newer.known.size = sizeof(newer.known);
  EXPECT_TRUE(keepsPlans(&newer.known)) << "what lies behind the size is not looked at";
}

// Forgotten, cut within a field, or whatever was on the stack.
TEST_F(Sized, SizesOfNoVersionAreRefused) {
  for (size_t size : {size_t(0), size_t(3), size_t(12), kLargestStruct + 8, SIZE_MAX, SIZE_MAX - 7}) {
    cermet_context_options options{};
    cermet_counters counters{};
    cermet_value_info info{};
    options.size = counters.size = info.size = size;
    cermet_context* refused = nullptr;
    EXPECT_EQ(cermet_context_create(&options, &refused), CERMET_INVALID_ARGUMENT);
    EXPECT_EQ(std::string(cermet_error_message()),
              fmt::format("cermet_context_create: options->size is {}, expected sizeof(cermet_context_options), which "
                          "is {} here",
                          size, sizeof(options)));
    EXPECT_EQ(cermet_context_counters(context, &counters), CERMET_INVALID_ARGUMENT);
    EXPECT_EQ(std::string(cermet_error_message()),
              fmt::format("cermet_context_counters: counters->size is {}, expected sizeof(cermet_counters), which is "
                          "{} here",
                          size, sizeof(counters)));
    EXPECT_EQ(cermet_plan_input(plan, 0, &info), CERMET_INVALID_ARGUMENT);
    EXPECT_EQ(cermet_plan_output(plan, 0, &info), CERMET_INVALID_ARGUMENT);
    EXPECT_EQ(std::string(cermet_error_message()),
              fmt::format("cermet_plan_output: info->size is {}, expected sizeof(cermet_value_info), which is {} here",
                          size, sizeof(info)));
    EXPECT_EQ(info.name, nullptr);
  }
}

} // namespace
} // namespace cermet
