// Time from a graph's text to its plan, to what patterns find in it and to its gradient, for graphs of many operations
// (tests/unit/compiler/plan/LargeGraphs.h), on one thread and without a cache: the processor's time, the least of a few
// runs. No kernel is compiled and no GPU needed.
//
//     plans [--graph layers ...] [--operations 1000 ...] [--ask compile ...] [--repeats 1] [--out FILE]
#include "BuildId.h"
#include "bench/Environment.h"
#include "runtime/abi/CompilerApi.h"
#include "tests/unit/compiler/plan/LargeGraphs.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <ctime>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>

namespace {

using Json = nlohmann::ordered_json;

// Milliseconds of one call, and what it answered.
Json ask(const std::string& what, const std::string& text) {
  const cermet_compiler_table* table = cermet_compiler_table_v1();
  const cermet_compiler_options options{"", ""};
  cermet_buffer answer{}, error{};
  // Of all inputs.
  std::vector<uint8_t> wanted;
  for (size_t at = 0, end = text.find(") -> ("); (at = text.find("%a", at)) < end; ++at)
    wanted.resize(wanted.size() + (text[text.find_first_not_of("0123456789", at + 2)] == ':'), 1);
  const auto start = std::chrono::steady_clock::now();
  const std::clock_t processor = std::clock();
  cermet_status status = CERMET_INTERNAL;
  if (what == "compile")
    status = table->compile(text.data(), text.size(), "sm_90", &options, &answer, &error);
  else if (what == "match")
    status = table->match(text.data(), text.size(), &options, &answer, &error);
  else
    status = table->differentiate(text.data(), text.size(), wanted.data(), int32_t(wanted.size()), &options, &answer,
                                  &error);
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
  const double processorMs = double(std::clock() - processor) * 1e3 / CLOCKS_PER_SEC;
  Json result{{"ms", time.count()}, {"processor_ms", processorMs}, {"status", int(status)}};
  if (status != CERMET_OK)
    result["error"] = std::string(error.data, std::min<size_t>(error.size, 300));
  else if (const Json plan = what == "compile" ? Json::parse(answer.data, answer.data + answer.size) : Json();
           !plan.is_null())
    result["steps"] = plan["steps"].size();
  table->release(&answer);
  table->release(&error);
  return result;
}

} // namespace

int main(int argc, char** argv) {
  CLI::App app{"Time from a graph's text to its plan"};
  std::string out;
  std::vector<std::string> graphs, asked{"compile", "match", "differentiate"};
  std::vector<size_t> sizes{1000, 10000, 50000};
  int repeats = 1;
  app.add_option("--graph", graphs, "default: each");
  app.add_option("--operations", sizes, "of each graph, about");
  app.add_option("--ask", asked, "compile, match, differentiate");
  app.add_option("--repeats", repeats, "the least time of so many")->check(CLI::PositiveNumber);
  app.add_option("--out", out, "write the JSON here too");
  CLI11_PARSE(app, argc, argv);
  Json rows = Json::array();
  for (const cermet::tests::LargeGraph& graph : cermet::tests::kLargeGraphs)
    for (size_t size : sizes) {
      if (!graphs.empty() && std::find(graphs.begin(), graphs.end(), graph.name) == graphs.end())
        continue;
      const std::string text = graph.text(size);
      for (const std::string& what : asked) {
        Json best = ask(what, text);
        for (int i = 1; i < repeats; ++i)
          if (Json again = ask(what, text); again["processor_ms"] < best["processor_ms"])
            best = again;
        Json row{{"graph", graph.name}, {"operations", size}, {"ask", what}};
        row.update(best);
        fmt::print(stderr, "{}\n", row.dump());
        rows.push_back(row);
      }
    }
  const Json answer{{"benchmark", "plans"},     {"environment", cermet::bench::environment()},
                    {"build", CERMET_BUILD_ID}, {"target", "sm_90"},
                    {"repeats", repeats},       {"times", rows}};
  fmt::print("{}\n", answer.dump(1));
  if (!out.empty() && !(std::ofstream(out) << answer.dump(1) << '\n')) {
    fmt::print(stderr, "plans: cannot write {}\n", out);
    return 1;
  }
  return 0;
}
