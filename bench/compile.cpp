// Time to compile a kernel that no cache holds, for each fused operation, forward and backward, and each architecture:
// from the kernel's spec to machine code, one after the other on one thread; then all of them at once, as a prepare
// does. Needs no GPU. The first kernel also opens the compiler library and NVRTC; it is reported apart.
//
//     compile [--threads 2] [--target sm_90 ...] [--repeats 3] [--out FILE]      writes one JSON object, in
//     milliseconds
#include "BuildId.h"
#include "bench/Environment.h"
#include "runtime/context/Context.h"
#include "runtime/device/Target.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

namespace {

using namespace cermet;
using Json = nlohmann::json;

[[noreturn]] void die(const std::string& what) {
  fmt::print(stderr, "compile: {}\n", what);
  std::exit(1);
}

template <typename T> T need(Result<T> result) {
  if (!result.ok())
    die(result.status().message());
  return std::move(*result);
}

const std::string kTile = R"(tensor<?x4096xbf16, #cermet.symbols<["r0"]>>)", kWeight = "tensor<4096xbf16>";

std::string graph(const std::string& name, const std::string& arguments, const std::string& results,
                  const std::string& body, const std::string& returned) {
  return fmt::format(
      "module attributes {{cermet.version = 1 : i64}} {{ func.func @{}({}) -> ({}) {{\n{}\nreturn {} : {}\n"
      "}} }}",
      name, arguments, results, body, returned, results);
}

struct Graph {
  std::string name, text;
};

// The operations of bench/kernels.py, and their gradients with respect to all inputs.
std::vector<Graph> graphs(Context& context) {
  const std::string eps = "{eps = 1.0e-5 : f64, round_before_weight}";
  const std::pair<Graph, size_t> forwards[] = {
      {{"rms_norm", graph("rms_norm", fmt::format("%x: {}, %w: {}", kTile, kWeight), kTile,
                          fmt::format("%y = cermet.rms_norm %x, %w {0} : {1}, {2} to {1}", eps, kTile, kWeight), "%y")},
       2},
      {{"add_rms_norm",
        graph(
            "add_rms_norm", fmt::format("%x: {0}, %r: {0}, %w: {1}", kTile, kWeight), kTile + ", " + kTile,
            fmt::format("%y, %s = cermet.add_rms_norm %x, %r, %w {0} : {1}, {1}, {2} to {1}, {1}", eps, kTile, kWeight),
            "%y, %s")},
       3},
      {{"glu", graph("glu", fmt::format("%g: {0}, %u: {0}", kTile), kTile,
                     fmt::format("%y = cermet.glu %g, %u : {}", kTile), "%y")},
       2}};
  std::vector<Graph> all;
  for (const auto& [forward, inputs] : forwards) {
    all.push_back(forward);
    const Json gradient = Json::parse(need(context.differentiate(forward.text, std::vector<uint8_t>(inputs, 1))));
    all.push_back({forward.name + "_backward", gradient.at("backward").get<std::string>()});
  }
  return all;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

} // namespace

int main(int argc, char** argv) {
  CLI::App app{"Time to compile kernels that no cache holds"};
  std::string out;
  std::vector<std::string> targets;
  int threads = 2, repeats = 3;
  app.add_option("--target", targets, "default: every architecture");
  app.add_option("--threads", threads, "kernels at once in the last part")->check(CLI::Range(1, 1024));
  app.add_option("--repeats", repeats, "a kernel's time is its median over these")->check(CLI::PositiveNumber);
  app.add_option("--out", out, "write the JSON here too");
  CLI11_PARSE(app, argc, argv);
  if (targets.empty())
    for (const CudaTarget& target : kCudaTargets)
      targets.push_back(target.name);

  Config config = need(Config::environment());
  config.cacheDirectory.clear();
  config.compileThreads = threads;
  std::vector<std::string> specs;
  std::vector<Json> kernels;
  {
    Context context(config);
    for (const Graph& graph : graphs(context))
      for (const std::string& target : targets) {
        const auto plan = need(context.compile(graph.text, target));
        for (const PlanStep& step : plan->steps)
          if (step.kind == StepKind::Kernel) {
            specs.push_back(step.spec);
            kernels.push_back({{"graph", graph.name}, {"kernel", step.name}, {"target", target}});
          }
      }
  }
  double first = 0;
  std::vector<double> medians;
  for (size_t index = 0; index < specs.size(); ++index) {
    std::vector<double> times;
    for (int repeat = 0; repeat < repeats + (index == 0); ++repeat) {
      Context fresh(config); // remembers nothing
      const double ms = double(need(fresh.kernelImages({specs[index]}))[0].compileMicroseconds) * 1e-3;
      if (index == 0 && repeat == 0)
        first = ms;
      else
        times.push_back(ms);
    }
    medians.push_back(median(times));
    kernels[index]["ms"] = medians.back();
  }
  Context together(config);
  const auto start = std::chrono::steady_clock::now();
  (void)need(together.kernelImages(specs));
  const std::chrono::duration<double, std::milli> wall = std::chrono::steady_clock::now() - start;

  double sum = 0;
  for (double ms : medians)
    sum += ms;
  const Json answer = {{"benchmark", "compile"},
                       {"environment", cermet::bench::environment()},
                       {"build", CERMET_BUILD_ID},
                       {"kernels", kernels},
                       {"median_ms", median(medians)},
                       {"largest_ms", *std::max_element(medians.begin(), medians.end())},
                       {"first_ms", first},
                       {"one_after_the_other_ms", sum},
                       {"together_ms", wall.count()},
                       {"threads", threads}};
  fmt::print("{}\n", answer.dump(1));
  if (!out.empty() && !(std::ofstream(out) << answer.dump(1) << '\n'))
    die(fmt::format("cannot write {}", out));
  return 0;
}
