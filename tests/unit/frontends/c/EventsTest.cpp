// Events of a context: what it made, found and warned of, as a program is told.
#include "tests/unit/frontends/c/ContextTest.h"
#include "tests/unit/runtime/Plans.h"
#include "tests/unit/runtime/TestDirectory.h"
#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <thread>

namespace cermet {
namespace {

struct Events : ContextTest {
  struct Seen {
    std::string what, text, source;
    uint64_t kind, microseconds, bytes;
  };
  TestDirectory directory;
  std::mutex mutex;
  std::vector<Seen> seen;

  static void SetUpTestSuite() { useCompiler(FAKE_COMPILER); }
  static void note(void* user, const cermet_event* event) {
    Events& test = *static_cast<Events*>(user);
    EXPECT_EQ(event->size, sizeof(cermet_event));
    std::lock_guard lock(test.mutex);
    test.seen.push_back({event->what, event->text, event->source ? event->source : "none", event->kind,
                         event->microseconds, event->bytes});
  }
  cermet_context_options options() {
    cermet_context_options result{};
    result.size = sizeof(result);
    result.cache_directory = "";
    result.on_event = note;
    result.event_user = this;
    return result;
  }
  // A context's events while it gets a plan and its kernel, twice.
  std::vector<Seen> eventsOf(const cermet_context_options& options) {
    seen.clear();
    cermet_context* own = nullptr;
    EXPECT_EQ(cermet_context_create(&options, &own), CERMET_OK) << cermet_error_message();
    const std::string text = scalePlan().dump();
    for (int turn = 0; turn < 2; ++turn) {
      cermet_plan* plan = nullptr;
      cermet_executable* run = nullptr;
      EXPECT_EQ(cermet_compile(own, text.data(), text.size(), "host", &plan), CERMET_OK) << cermet_error_message();
      EXPECT_EQ(cermet_prepare(own, plan, 0, &run), CERMET_OK) << cermet_error_message();
      cermet_executable_destroy(run);
      cermet_plan_destroy(plan);
    }
    cermet_context_destroy(own);
    return seen;
  }
  void expectAnswers(const std::vector<Seen>& events, uint64_t kind, const std::string& source) {
    ASSERT_EQ(events.size(), 2u) << source;
    EXPECT_EQ(events[0].what, "plan");
    EXPECT_EQ(events[1].what, "kernel");
    for (const Seen& event : events) {
      EXPECT_EQ(event.kind, kind) << event.what;
      EXPECT_EQ(event.source, source) << event.what;
      EXPECT_GT(event.bytes, 0u) << event.what;
      EXPECT_NE(event.text, "") << event.what;
      if (kind == CERMET_EVENT_FOUND) {
        EXPECT_EQ(event.microseconds, 0u) << event.what;
      }
    }
  }
};

TEST_F(Events, SayWhereEachAnswerCameFrom) {
  cermet_context_options own = options();
  const std::string path = directory / "cache", pack = directory / "a.cpack";
  own.cache_directory = path.c_str();
  expectAnswers(eventsOf(own), CERMET_EVENT_MADE, "compiler");
  expectAnswers(eventsOf(own), CERMET_EVENT_FOUND, "directory");

  cermet_context* writer = nullptr;
  char* json = nullptr;
  ASSERT_EQ(cermet_context_create(&own, &writer), CERMET_OK);
  const std::string text = scalePlan().dump();
  cermet_plan* plan = nullptr;
  cermet_executable* run = nullptr;
  ASSERT_EQ(cermet_compile(writer, text.data(), text.size(), "host", &plan), CERMET_OK);
  ASSERT_EQ(cermet_prepare(writer, plan, 0, &run), CERMET_OK);
  ASSERT_EQ(cermet_context_write_pack(writer, pack.c_str(), &json), CERMET_OK) << cermet_error_message();
  cermet_string_free(json);
  cermet_executable_destroy(run);
  cermet_plan_destroy(plan);
  cermet_context_destroy(writer);
  own.cache_directory = "";
  own.packs = pack.c_str();
  own.cache = "only";
  expectAnswers(eventsOf(own), CERMET_EVENT_FOUND, "pack");
}

TEST_F(Events, WarningsAreToldWhateverTheLevel) {
  cermet_context_options own = options();
  own.cache_directory = "/proc/nowhere/cermet";
  for (const char* level : {"off", "warn"}) {
    own.log = level;
    testing::internal::CaptureStderr();
    const std::vector<Seen> events = eventsOf(own);
    const std::string lines = testing::internal::GetCapturedStderr();
    const auto warnings = std::count_if(events.begin(), events.end(), [](const Seen& event) {
      return event.kind == CERMET_EVENT_WARNING && event.what == "cache directory not writable" &&
             event.text.find("/proc/nowhere/cermet") != std::string::npos && event.source == "none";
    });
    EXPECT_GE(warnings, 2) << level; // of the plan and of the kernel, not once
    const bool said = lines.find("cermet: warning: the cache directory") != std::string::npos;
    EXPECT_EQ(said, std::string(level) == "warn") << lines;
  }
}

TEST_F(Events, LevelsAreOfTheContext) {
  cermet_context_options own = options();
  own.log = "info";
  testing::internal::CaptureStderr();
  eventsOf(own);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("cermet: made a plan"), std::string::npos);
  own.log = "loud";
  cermet_context* none = nullptr;
  EXPECT_EQ(cermet_context_create(&own, &none), CERMET_INVALID_ARGUMENT);
  EXPECT_STREQ(cermet_error_message(), "cermet_context_create: options->log is 'loud', expected off, warn or info");
}

TEST_F(Events, ACallbackThatThrowsHarmsNothing) {
  cermet_context_options own = options();
  own.on_event = [](void*, const cermet_event*) { throw std::runtime_error("no"); };
  EXPECT_TRUE(eventsOf(own).empty()); // and every call was OK
}

TEST_F(Events, ThreadsTellEachAnswerOnce) {
  cermet_context_options own = options();
  cermet_context* shared = nullptr;
  ASSERT_EQ(cermet_context_create(&own, &shared), CERMET_OK);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 8; ++thread)
    threads.emplace_back([&] {
      for (int key = 0; key < 20; ++key) {
        Json json = scalePlan();
        json["name"] = "scale" + std::to_string(key);
        const std::string text = json.dump();
        cermet_plan* plan = nullptr;
        EXPECT_EQ(cermet_compile(shared, text.data(), text.size(), "host", &plan), CERMET_OK);
        cermet_plan_destroy(plan);
      }
    });
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(seen.size(), 20u);
  cermet_context_destroy(shared);
}

} // namespace
} // namespace cermet
