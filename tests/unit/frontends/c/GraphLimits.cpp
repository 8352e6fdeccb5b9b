// The limits of a graph, through the C interface with the real compiler: at each the answer is stored and serves the
// next process, and one beyond is refused by name, with nothing of it in the directory or in memory.
#include "frontends/c/cermet.h"
#include "tests/unit/runtime/TestDirectory.h"
#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <functional>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <string>
#include <vector>

namespace cermet {
namespace {

enum Ask { Compile = 1, Match = 2, Differentiate = 4, All = 7 };

struct Limit {
  std::string name;
  int asks;                             // what has the limit
  std::function<std::string(int)> text; // at the limit, and so far beyond it
  cermet_status status;
  std::string message; // or its end
};
std::ostream& operator<<(std::ostream& stream, const Limit& limit) {
  return stream << limit.name;
}

std::string repeated(const std::string& text, int times) {
  std::string result;
  for (int turn = 0; turn < times; ++turn)
    result += text;
  return result;
}

// The negation of one tensor behind `body`, in a function with one attribute.
std::string negation(const std::string& type, const std::string& attribute = "1", const std::string& body = "") {
  return fmt::format("module attributes {{cermet.version = 1 : i64}} {{\n  func.func @f(%x: {}) -> {} attributes {{a = "
                     "{}}} {{\n{}    %y = cermet.neg %x : {}\n    return %y : {}\n  }}\n}}\n",
                     type, type, attribute, body, type, type);
}
const std::string kSmall = "tensor<1x8xf32>";

// `#a<count>` in as many brackets.
std::string aliases(int count) {
  std::string result = "#a0 = 1\n";
  for (int i = 0; i < count; ++i)
    result += fmt::format("#a{} = [#a{}]\n", i + 1, i);
  return result;
}

std::string symbols(int count) {
  std::string arguments, body, returned, results;
  for (int i = 0; i < count; ++i) {
    const std::string type = fmt::format("tensor<?x8xf32, #cermet.symbols<[\"s{}\"]>>", i), comma = i ? ", " : "";
    arguments += fmt::format("{}%a{}: {}", comma, i, type);
    body += fmt::format("    %v{0} = cermet.neg %a{0} : {1}\n", i, type);
    returned += fmt::format("{}%v{}", comma, i);
    results += comma + type;
  }
  return fmt::format("module attributes {{cermet.version = 1 : i64}} {{\n  func.func @f({}) -> ({}) {{\n{}    return "
                     "{} : {}\n  }}\n}}\n",
                     arguments, results, body, returned, results);
}

std::string constants(int count) {
  std::string body;
  for (int i = 0; i < count; ++i)
    body += fmt::format("    %{} = cermet.constant 0.0 : tensor<1xf32>\n", i);
  return body;
}

// A call of so many results, of which the last is read.
std::string values(int count) {
  return fmt::format("module attributes {{cermet.version = 1 : i64}} {{\n  func.func @f(%x: {0}) -> {0} {{\n"
                     "    %o:{1} = cermet.opaque \"split\"(%x) : ({0}) -> ({2}{0})\n"
                     "    %y = cermet.neg %o#{3} : {0}\n    return %y : {0}\n  }}\n}}\n",
                     kSmall, count, repeated("f32,", count - 1), count - 1);
}

const Limit kLimits[] = {
    {"Bytes", All,
     [](int beyond) {
       const std::string text = negation(kSmall);
       return text + std::string(CERMET_MAX_TEXT + beyond - text.size(), ' ');
     },
     CERMET_INVALID_GRAPH, "graph:1:1: the text has 67108865 bytes, expected at most 67108864"},
    {"Brackets", All,
     [](int beyond) { return negation(kSmall, repeated("[", 254 + beyond) + "1" + repeated("]", 254 + beyond)); },
     CERMET_INVALID_GRAPH, "brackets nest deeper than 256"},
    {"BracketsOfAliases", All,
     [](int beyond) { return aliases(254 + beyond) + negation(kSmall, fmt::format("#a{}", 254 + beyond)); },
     CERMET_INVALID_GRAPH, "brackets nest deeper than 256 with #a255 written out"},
    {"Word", All, [](int beyond) { return negation(kSmall, "1." + std::string(1022 + beyond, '7')); },
     CERMET_INVALID_GRAPH, "a word of 1025 characters, expected numbers, shapes and names of at most 1024"},
    {"IntegerWidth", All, [](int beyond) { return negation(kSmall, fmt::format("1 : i{}", 1024 + beyond)); },
     CERMET_INVALID_GRAPH, "i1025 is an integer type of more bits than 1024"},
    {"Rank", All, [](int beyond) { return negation("tensor<" + repeated("2x", 8 + beyond) + "f32>"); },
     CERMET_INVALID_GRAPH, "has rank 9, expected at most 8"},
    {"Elements", All, [](int beyond) { return negation(fmt::format("tensor<{}xf32>", (int64_t(1) << 60) + beyond)); },
     CERMET_INVALID_GRAPH, "has more elements than 2^60"},
    {"ElementsInAll", All,
     [](int beyond) { return negation(fmt::format("tensor<{}x32xf32>", (int64_t(1) << 55) + beyond)); },
     CERMET_INVALID_GRAPH, "has more elements than 2^60"},
    {"Operations", All, [](int beyond) { return negation(kSmall, "1", constants(99999 + beyond)); }, CERMET_UNSUPPORTED,
     "@f has 100001 operations, expected at most 100000"},
    {"Symbols", Compile, [](int beyond) { return symbols(32 + beyond); }, CERMET_UNSUPPORTED,
     "the graph's inputs have 33 symbolic dimensions, a plan has at most 32"},
    {"Values", Compile, [](int beyond) { return values((1 << 20) - 2 + beyond); }, CERMET_UNSUPPORTED,
     "the graph needs 1048577 values, a plan has at most 1048576"},
};

class GraphLimits : public testing::TestWithParam<Limit> {
protected:
  TestDirectory directory;

  static void SetUpTestSuite() {
    setenv("CERMET_COMPILER_LIBRARY", COMPILER, 1);
    setenv("CERMET_CUDA_LIBRARY", "libno-such-driver.so", 1);
  }

  size_t filesStored() const {
    const std::filesystem::recursive_directory_iterator files(directory.path());
    return std::count_if(begin(files), end(files), [](const auto& item) {
      return item.is_regular_file() && item.path().filename() != ".lock";
    });
  }

  // What a process is told that asks once or more often, and where it has that from.
  struct Told {
    std::vector<cermet_status> statuses;
    std::string message; // the last
    cermet_counters counters;
  };
  Told ask(Ask question, const std::string& text, int times) {
    cermet_context_options options{};
    options.size = sizeof(options);
    options.cache_directory = directory.path().c_str();
    cermet_context* context = nullptr;
    EXPECT_EQ(cermet_context_create(&options, &context), CERMET_OK) << cermet_error_message();
    Told told{};
    while (told.statuses.size() < size_t(times)) {
      cermet_plan* plan = nullptr;
      char* json = nullptr;
      const uint8_t wanted = 1;
      cermet_status& status = told.statuses.emplace_back();
      if (question == Compile)
        status = cermet_compile(context, text.data(), text.size(), "sm_90", &plan);
      else if (question == Match)
        status = cermet_match(context, text.data(), text.size(), &json);
      else
        status = cermet_differentiate(context, text.data(), text.size(), &wanted, 1, &json);
      told.message = status == CERMET_OK ? "" : cermet_error_message();
      EXPECT_EQ(plan || json, status == CERMET_OK);
      cermet_plan_destroy(plan);
      cermet_string_free(json);
    }
    told.counters.size = sizeof(told.counters);
    EXPECT_EQ(cermet_context_counters(context, &told.counters), CERMET_OK);
    cermet_context_destroy(context);
    return told;
  }
};

TEST_P(GraphLimits, AtTheLimitTheAnswerIsStored) {
  const std::string text = GetParam().text(0);
  size_t expected = 0;
  for (const Ask question : {Compile, Match, Differentiate}) {
    if (!(GetParam().asks & question))
      continue;
    for (const bool isFirst : {true, false}) {
      const Told told = ask(question, text, 1);
      EXPECT_EQ(told.statuses[0], CERMET_OK) << told.message;
      EXPECT_EQ(told.counters.plans_compiled, isFirst ? 1u : 0u);
      EXPECT_EQ(told.counters.plans_from_directory, isFirst ? 0u : 1u);
      EXPECT_EQ(told.counters.cache_failures, 0u);
      expected += isFirst;
      EXPECT_EQ(filesStored(), expected);
    }
  }
}

TEST_P(GraphLimits, BeyondItNothingIsStored) {
  const std::string text = GetParam().text(1);
  for (const Ask question : {Compile, Match, Differentiate}) {
    if (!(GetParam().asks & question))
      continue;
    const Told told = ask(question, text, 2);
    EXPECT_EQ(told.statuses, std::vector(2, GetParam().status));
    EXPECT_TRUE(told.message.ends_with(GetParam().message)) << told.message.substr(0, 500);
    EXPECT_EQ(told.counters.plans_compiled, 0u);
    EXPECT_EQ(told.counters.plans_from_memory, 0u);
    EXPECT_EQ(told.counters.plans_from_directory, 0u);
    EXPECT_EQ(told.counters.cache_failures, 0u);
    EXPECT_EQ(filesStored(), 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Graph, GraphLimits, testing::ValuesIn(kLimits),
                         [](const auto& info) { return info.param.name; });

} // namespace
} // namespace cermet
