// libcermet_compiler through its one export, as libcermet calls it.
#include "BuildId.h"
#include "runtime/abi/CompilerApi.h"
#include "runtime/abi/Limits.h"
#include "runtime/abi/Targets.h"
#include "tests/unit/compiler/GraphTexts.h"
#include <cmath>
#include <cstring>
#include <filesystem>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <vector>

using namespace cermet;
using namespace cermet::tests;
using nlohmann::json;

namespace {

const cermet_compiler_table& table = *cermet_compiler_table_v1();

// An answer or an error, released.
std::string take(cermet_buffer& buffer) {
  std::string result(buffer.data ? buffer.data : "", buffer.size);
  table.release(&buffer);
  EXPECT_EQ(buffer.data, nullptr);
  return result;
}

struct Reply {
  cermet_status status;
  std::string answer, error;
};

template <typename Call> Reply ask(Call call) {
  cermet_buffer answer{}, error{};
  cermet_status status = call(&answer, &error);
  return {status, take(answer), take(error)};
}

Reply compile(const std::string& text, const char* target, const char* dump = "") {
  cermet_compiler_options options{"", dump};
  return ask([&](cermet_buffer* answer, cermet_buffer* error) {
    return table.compile(text.data(), text.size(), target, &options, answer, error);
  });
}

const std::string kNorm = rmsNorm({"r0", "r1", "64"}, "bf16", "bf16", "bf16", "eps = 1.0e-6");

TEST(Table, NamesItsBuild) {
  EXPECT_EQ(table.table_version, 1u);
  EXPECT_STREQ(table.build_id, CERMET_BUILD_ID);
}

TEST(Table, CompilesForEveryTarget) {
  std::vector<const char*> targets(std::begin(kHostTargets), std::end(kHostTargets));
  for (const CudaTarget& target : kCudaTargets)
    targets.push_back(target.name);
  for (const char* target : targets) {
    Reply reply = compile(kNorm, target);
    ASSERT_EQ(reply.status, CERMET_OK) << reply.error;
    EXPECT_EQ(json::parse(reply.answer)["target"], target);
  }
}

TEST(Table, RefusesAnUnknownTarget) {
  Reply reply = compile(kNorm, "sm_70");
  EXPECT_EQ(reply.status, CERMET_UNSUPPORTED);
  EXPECT_EQ(reply.error, "target `sm_70` is not known; expected one of sm_80 sm_86 sm_89 sm_90 sm_100 sm_120 "
                         "host:x86-64-v2 host:x86-64-v3 host:x86-64-v4");
}

// Each question about a graph, at the limit and one beyond: the text holds one operation that is needed, the rest is
// dead.
TEST(Table, AGraphHasAtMostSoManyOperations) {
  for (const int count : {kMaxGraphOperations, kMaxGraphOperations + 1}) {
    std::string body;
    for (int i = 1; i < count; ++i)
      body += fmt::format("    %{} = cermet.constant 0.0 : tensor<1xf32>\n", i);
    const std::string type = tensor({"1", "8"}, "f32"),
                      text = graph("f", "%x: " + type, type,
                                   body + "    %y = cermet.neg %x : " + type + "\n    return %y : " + type + "\n");
    const cermet_compiler_options options{"", ""};
    const uint8_t wanted = 1;
    double given[8] = {1}, made[8] = {};
    const int64_t sizes[] = {1, 8};
    cermet_tensor tensors[2] = {};
    for (auto [it, data] : {std::pair(&tensors[0], given), std::pair(&tensors[1], made)}) {
      it->data = data;
      it->dtype = CERMET_F32;
      it->rank = 2;
      it->sizes = sizes;
    }
    const Reply replies[] = {compile(text, "sm_90"), ask([&](cermet_buffer* answer, cermet_buffer* error) {
                               return table.match(text.data(), text.size(), &options, answer, error);
                             }),
                             ask([&](cermet_buffer* answer, cermet_buffer* error) {
                               return table.differentiate(text.data(), text.size(), &wanted, 1, &options, answer,
                                                          error);
                             }),
                             ask([&](cermet_buffer*, cermet_buffer* error) {
                               return table.interpret(text.data(), text.size(), 1, tensors, 2, error);
                             })};
    const bool isOne = count == kMaxGraphOperations;
    for (const Reply& reply : replies) {
      EXPECT_EQ(reply.status, isOne ? CERMET_OK : CERMET_UNSUPPORTED);
      EXPECT_EQ(reply.error, isOne ? "" : "@f has 100001 operations, expected at most 100000");
    }
    EXPECT_EQ(made[0], isOne ? -1 : 0);
  }
}

TEST(Table, BuildsAHostKernel) {
  std::string spec = json::parse(compile(kNorm, "host:x86-64-v2").answer)["steps"][0]["spec"];
  int32_t version = -1;
  cermet_compiler_options options{"", ""};
  Reply reply = ask([&](cermet_buffer* answer, cermet_buffer* error) {
    return table.build_kernel(spec.data(), spec.size(), &options, answer, &version, error);
  });
  ASSERT_EQ(reply.status, CERMET_OK) << reply.error;
  EXPECT_EQ(reply.answer.substr(0, 4), "\x7f"
                                       "ELF");
  EXPECT_EQ(version, 0);
}

TEST(Table, ShowsSources) {
  for (auto [target, word] : {std::pair{"sm_90", "__global__"}, {"host:x86-64-v3", "define"}}) {
    std::string spec = json::parse(compile(kNorm, target).answer)["steps"][0]["spec"];
    Reply reply = ask([&](cermet_buffer* answer, cermet_buffer* error) {
      return table.kernel_source(spec.data(), spec.size(), answer, error);
    });
    ASSERT_EQ(reply.status, CERMET_OK) << reply.error;
    EXPECT_NE(reply.answer.find(word), std::string::npos) << reply.answer;
  }
}

TEST(Table, RefusesASpecThatIsNone) {
  std::string spec = json::parse(compile(kNorm, "sm_90").answer)["steps"][0]["spec"];
  size_t at = spec.find("sm_90");
  std::string other = std::string(spec).replace(at, 5, "sm_70");
  int32_t version = 0;
  cermet_compiler_options options{"", ""};
  for (auto [text, status, message] :
       {std::tuple{std::string("nonsense"), CERMET_INVALID_ARGUMENT,
                   "kernel spec, line 1: begins with `nonsense`, expected `cermet.kernel.1`"},
        {std::string(), CERMET_INVALID_ARGUMENT, "kernel spec, line 0: begins with ``, expected `cermet.kernel.1`"},
        {other, CERMET_UNSUPPORTED, "target `sm_70` is not known"}}) {
    Reply reply = ask([&](cermet_buffer* answer, cermet_buffer* error) {
      return table.build_kernel(text.data(), text.size(), &options, answer, &version, error);
    });
    EXPECT_EQ(reply.status, status);
    EXPECT_EQ(reply.error.substr(0, strlen(message)), message);
  }
}

// What would end MLIR's parser, or what walks its attributes, is refused before it, whoever asks.
TEST(Table, EveryEntryRefusesWhatNoParserSurvives) {
  std::string chain = "#a0 = 1\n", doubled = "#a0 = [1]\n";
  for (int i = 1; i <= 100000; ++i)
    chain += fmt::format("#a{} = [#a{}]\n", i, i - 1);
  for (int i = 1; i <= 40; ++i)
    doubled += fmt::format("#a{0} = [#a{1}, #a{1}]\n", i, i - 1);
  const auto graph = [](const std::string& attribute, const std::string& number) {
    return fmt::format("module attributes {{cermet.version = 1 : i64, a = {}}} {{ func.func @f(%x: tensor<4xf32>) -> "
                       "tensor<4xf32> {{ %0 = cermet.constant {} : tensor<4xf32> %1 = cermet.add %x, %0 : "
                       "tensor<4xf32> return %1 : tensor<4xf32> }} }}",
                       attribute, number);
  };
  for (auto [text, message] :
       {std::pair{graph("1", "1." + std::string(40000, '7')), "a word of 40002 characters"},
        {chain + graph("#a100000", "1.0"), "brackets nest deeper than 256 with #a256 written out"},
        {doubled + graph("#a40", "1.0"), "with its aliases written out the text has more bytes than 67108864"}}) {
    cermet_compiler_options options{"", ""};
    const uint8_t wanted = 1;
    const Reply replies[] = {
        compile(text, "sm_90"),
        ask([&](auto* answer, auto* error) { return table.match(text.data(), text.size(), &options, answer, error); }),
        ask([&](auto* answer, auto* error) {
          return table.differentiate(text.data(), text.size(), &wanted, 1, &options, answer, error);
        }),
        ask([&](auto*, auto* error) { return table.interpret(text.data(), text.size(), 1, nullptr, 0, error); })};
    for (const Reply& reply : replies) {
      EXPECT_EQ(reply.status, CERMET_INVALID_GRAPH);
      EXPECT_NE(reply.error.find(message), std::string::npos) << reply.error;
    }
  }
}

TEST(Table, MatchesWithoutATarget) {
  cermet_compiler_options options{"", ""};
  Reply reply = ask([&](cermet_buffer* answer, cermet_buffer* error) {
    return table.match(kNorm.data(), kNorm.size(), &options, answer, error);
  });
  ASSERT_EQ(reply.status, CERMET_OK) << reply.error;
  EXPECT_EQ(json::parse(reply.answer)["format"], "cermet.match.1");
}

TEST(Table, DifferentiatesWhatIsWanted) {
  cermet_compiler_options options{"", ""};
  auto differentiate = [&](std::vector<uint8_t> wanted) {
    return ask([&](cermet_buffer* answer, cermet_buffer* error) {
      return table.differentiate(kNorm.data(), kNorm.size(), wanted.data(), static_cast<int32_t>(wanted.size()),
                                 &options, answer, error);
    });
  };
  Reply reply = differentiate({1, 1});
  ASSERT_EQ(reply.status, CERMET_OK) << reply.error;
  json answer = json::parse(reply.answer);
  EXPECT_EQ(answer["format"], "cermet.gradient.1");
  EXPECT_EQ(answer["backward_outputs"], json::array({json::array({0}), json::array({1})}));
  // One kernel each way: nothing of a norm's gradient needs a second pass over memory.
  for (const char* part : {"forward", "backward"}) {
    Reply plan = compile(answer[part], "sm_90");
    ASSERT_EQ(plan.status, CERMET_OK) << plan.error;
    EXPECT_EQ(json::parse(plan.answer)["steps"].size(), 1u);
  }
  EXPECT_EQ(json::parse(differentiate({0, 1}).answer)["backward_outputs"], json::array({json::array({1})}));
  EXPECT_EQ(differentiate({1}).error, "differentiate: `wanted` has 1 entries, expected 2 (one for each input)");
  EXPECT_EQ(differentiate({0, 0}).error,
            "differentiate: no input is wanted; set the entry of at least one in `wanted`");
}

TEST(Table, InterpretsInFloat64) {
  std::string text = rmsNorm({"r0", "2"}, "f64", "f64", "f64", "eps = 0.0");
  double x[] = {3, 4, 6, 8}, weight[] = {1, 2}, y[4] = {};
  int64_t tile[] = {2, 2}, column[] = {2}, wrong[] = {4, 2};
  cermet_tensor tensors[] = {
      {x, tile, nullptr, 2, CERMET_F64}, {weight, column, nullptr, 1, CERMET_F64}, {y, tile, nullptr, 2, CERMET_F64}};
  auto interpret = [&](int32_t count) {
    return ask([&](cermet_buffer*, cermet_buffer* error) {
      return table.interpret(text.data(), text.size(), 0, tensors, count, error);
    });
  };
  Reply reply = interpret(3);
  ASSERT_EQ(reply.status, CERMET_OK) << reply.error;
  for (int row = 0; row < 2; ++row) {
    EXPECT_NEAR(y[2 * row], 3 / std::sqrt(12.5), 1e-14);
    EXPECT_NEAR(y[2 * row + 1], 2 * 4 / std::sqrt(12.5), 1e-14);
  }
  EXPECT_EQ(interpret(2).error, "interpret: 2 tensors given, expected 3 (2 inputs, then 1 outputs)");
  tensors[2].sizes = wrong;
  EXPECT_EQ(interpret(3).error, "output 0: sizes are [4, 2], expected [2, 2]");
  tensors[2] = {nullptr, tile, nullptr, 2, CERMET_F64};
  EXPECT_EQ(interpret(3).error, "output 0: data is NULL, expected 4 float64 numbers");
  tensors[0].dtype = CERMET_F32;
  EXPECT_EQ(interpret(3).error, "x: dtype is 0, expected 3 (the graph's, as cermet_dtype)");
  tensors[0] = {x, column, nullptr, 1, CERMET_F64};
  EXPECT_EQ(interpret(3).error, "x: rank is 1, expected 2");
  tensors[0] = {x, nullptr, nullptr, 2, CERMET_F64};
  EXPECT_EQ(interpret(3).error, "x: sizes is NULL, expected 2 numbers");
}

TEST(Table, AnswersThreadsAtOnceAndAlike) {
  std::vector<std::string> answers(8);
  std::vector<std::thread> threads;
  for (std::string& answer : answers)
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i)
        answer = compile(kNorm, "sm_90").answer;
    });
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_FALSE(answers[0].empty());
  for (const std::string& answer : answers)
    EXPECT_EQ(answer, answers[0]);
}

TEST(Table, DumpsEveryTextAndNeverFailsForIt) {
  std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / ("cermet-dump-" + std::to_string(getpid()));
  Reply reply = compile(kNorm, "host:x86-64-v3", folder.c_str());
  ASSERT_EQ(reply.status, CERMET_OK) << reply.error;
  std::string spec = json::parse(reply.answer)["steps"][0]["spec"];
  cermet_compiler_options options{"", folder.c_str()};
  int32_t version;
  reply = ask([&](cermet_buffer* answer, cermet_buffer* error) {
    return table.build_kernel(spec.data(), spec.size(), &options, answer, &version, error);
  });
  ASSERT_EQ(reply.status, CERMET_OK) << reply.error;
  std::set<std::string> extensions;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::string name = entry.path().filename();
    EXPECT_TRUE(name.starts_with("rms_norm-")) << name;
    extensions.insert(name.substr(name.find('.') + 1));
    EXPECT_GT(std::filesystem::file_size(entry), 0u) << name;
  }
  for (const char* expected : {"graph.mlir", "raised.mlir", "small.mlir", "program", "spec", "ll", "so", "sh"})
    EXPECT_TRUE(extensions.contains(expected)) << expected;
  std::filesystem::remove_all(folder);
  EXPECT_EQ(compile(kNorm, "sm_90", "/dev/null/nowhere").status, CERMET_OK);
}

TEST(Table, SaysWhatCannotBeDumped) {
  std::vector<std::string> told;
  const auto tell = [](void* user, const char* what) { static_cast<std::vector<std::string>*>(user)->push_back(what); };
  cermet_compiler_options options{"", "/dev/null/nowhere", tell, &told};
  Reply reply = ask([&](cermet_buffer* answer, cermet_buffer* error) {
    return table.compile(kNorm.data(), kNorm.size(), "sm_90", &options, answer, error);
  });
  EXPECT_EQ(reply.status, CERMET_OK) << reply.error;
  ASSERT_EQ(told.size(), 4u); // graph, raised, small, program
  EXPECT_TRUE(told[0].starts_with("the dump '/dev/null/nowhere/rms_norm-")) << told[0];
  EXPECT_TRUE(told[0].ends_with(".graph.mlir' cannot be written: Not a directory")) << told[0];
}

} // namespace
