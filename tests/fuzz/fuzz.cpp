// fuzz: random graphs through the interpreter and everything that compiles them. A graph that fails is made small and
// printed with the command that repeats it.
#include "runtime/abi/Targets.h"
#include "tests/fuzz/Shrink.h"
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <iostream>
#include <random>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace cermet::fuzz;

namespace {

constexpr int kBadInput = 2, kSkipped = 77; // exit codes
constexpr int kSmallGraph = 9;              // operations

std::vector<std::string> architectures() {
  std::vector<std::string> result;
  for (const cermet::CudaTarget& target : cermet::kCudaTargets)
    result.push_back(target.name);
  return result;
}

struct Options {
  int graphs = 2000, simt = 60, nvrtc = 60, jobs = 0, gradients = 3, mostFailures = 3;
  ShrinkLimits shrinking;
  double seconds = 0;
  uint64_t seed = 0;
  std::vector<std::string> targets;
  std::string text;
  std::vector<std::string> sizes;
  bool gradient = false, noHost = false, print = false;
};

// Starting a process costs as much as a graph or two; one that goes through every layer costs seconds.
constexpr size_t kCasesPerProcess = 25, kThoroughCases = 5;

bool outOfTime(const Options& options) {
  static const auto began = std::chrono::steady_clock::now();
  return options.seconds > 0 &&
         std::chrono::steady_clock::now() - began > std::chrono::duration<double>(options.seconds);
}

Failure onCase(const Case& given) {
  return checkApart(given);
}

struct Totals {
  int graphs = 0, runs = 0, failures = 0;
};

std::string sizeOptions(const Sizes& sizes) {
  std::string text;
  for (const auto& [symbol, size] : sizes)
    text += fmt::format(" --size {}={}", symbol, size);
  return text;
}

void print(const Case& failing, const Failure& failure, const std::string& origin, const std::string& file) {
  std::ofstream(file) << failing.text;
  std::string command = fmt::format("build/bin/fuzz --text {} --seed {}", file, failing.seed);
  if (!failing.sizes.empty())
    command += sizeOptions(failing.sizes[0]);
  if (failing.gradient)
    command += " --gradient";
  if (failing.simt)
    command += " --simt 1";
  if (!failing.targets.empty())
    command += fmt::format(" --nvrtc 1 --targets {}", fmt::join(failing.targets, " "));
  fmt::print("FAILED ({}), {}\n{}\n{} operations, also in {}:\n{}repeat: {}\n\n", failure.kind, origin, failure.message,
             operationCount(failing.text), file, failing.text, command);
  std::fflush(stdout);
}

// What there is to know of a failure, with a text that repeats it: as it was found, since making it small may be ended
// from outside, and small.
void report(const Case& failing, Failure failure, const std::string& origin, const ShrinkLimits& limits) {
  const std::string file = fmt::format("fuzz-{}.mlir", failing.seed);
  print(failing, failure, origin, file);
  const Case small = shrink(failing, failure, onCase, limits);
  if (small.text != failing.text)
    print(small, failure, "the same, shrunk", file);
}

Case caseOf(const Options& options, int index) {
  const uint64_t seed = options.seed + index;
  // The first graphs go through every layer, small ones, since each of their kernels is compiled many times.
  bool simt = index < options.simt, nvrtc = index < options.nvrtc;
  Case made;
  made.seed = seed;
  made.host = !options.noHost;
  made.gradient = options.gradients > 0 && !simt && !nvrtc && index % options.gradients == 0;
  made.simt = simt;
  if (nvrtc)
    made.targets = options.targets;
  RandomGraph graph = randomGraph(seed, {simt || nvrtc ? kSmallGraph : 25, made.gradient});
  made.text = graph.text;
  made.sizes = graph.sizes;
  return made;
}

Totals work(const Options& options, int first, int jobs) {
  Totals totals;
  for (int index = first; index < options.graphs && totals.failures < options.mostFailures && !outOfTime(options);) {
    std::vector<Case> cases;
    const size_t most = index < std::max(options.simt, options.nvrtc) ? kThoroughCases : kCasesPerProcess;
    for (; index < options.graphs && cases.size() < most; index += jobs) {
      cases.push_back(caseOf(options, index));
      if (options.print)
        fmt::print("// seed {}{}\n{}", cases.back().seed, sizeOptions(cases.back().sizes[0]), cases.back().text);
    }
    std::vector<Failure> failures = checkApart(cases, totals.runs);
    totals.graphs += static_cast<int>(cases.size());
    for (size_t i = 0; i < cases.size(); ++i)
      if (failures[i]) {
        ++totals.failures;
        report(cases[i], failures[i],
               fmt::format("seed {}{}", cases[i].seed, cases[i].gradient ? ", or its gradient" : ""),
               options.shrinking);
      }
  }
  return totals;
}

// One process for each job; a pipe brings its totals back.
Totals workInParallel(const Options& options) {
  std::vector<std::pair<pid_t, int>> workers;
  for (int job = 0; job < options.jobs; ++job) {
    int ends[2];
    if (pipe(ends) != 0)
      break;
    std::fflush(nullptr);
    pid_t child = fork();
    if (child == 0) {
      Totals totals = work(options, job, options.jobs);
      std::fflush(nullptr);
      _exit(write(ends[1], &totals, sizeof totals) == sizeof totals ? 0 : 1);
    }
    close(ends[1]);
    workers.emplace_back(child, ends[0]);
  }
  Totals sum;
  for (auto [child, end] : workers) {
    Totals totals;
    if (read(end, &totals, sizeof totals) != sizeof totals) {
      fmt::print("FAILED: a worker ended before its work did\n");
      totals.failures = 1;
    }
    close(end);
    waitpid(child, nullptr, 0);
    sum = {sum.graphs + totals.graphs, sum.runs + totals.runs, sum.failures + totals.failures};
  }
  return sum;
}

int runText(const Options& options) {
  std::ifstream file(options.text);
  if (!file) {
    fmt::print(stderr, "fuzz: cannot read '{}'\n", options.text);
    return kBadInput;
  }
  Case given;
  given.text.assign(std::istreambuf_iterator<char>(file), {});
  given.seed = options.seed;
  given.gradient = options.gradient;
  given.host = !options.noHost;
  given.simt = options.simt > 0;
  if (options.nvrtc > 0)
    given.targets = options.targets;
  given.sizes.emplace_back();
  for (const std::string& size : options.sizes) {
    size_t equals = size.find('=');
    if (equals == std::string::npos) {
      fmt::print(stderr, "fuzz: --size is '{}', expected a symbol and a number, as in r0=3\n", size);
      return kBadInput;
    }
    given.sizes[0][size.substr(0, equals)] = std::atoll(size.c_str() + equals + 1);
  }
  int runs = 0;
  if (Failure failure = checkApart(std::vector{given}, runs)[0]) {
    report(given, failure, options.text, options.shrinking);
    return 1;
  }
  fmt::print("{}: ok, {} runs compared\n", options.text, runs);
  return 0;
}

} // namespace

int main(int count, char** arguments) {
  CLI::App app{"Random graphs, compared with the float64 interpreter: each runs on this CPU, a third also with its "
               "gradient; the first ones\nalso run as CUDA text on a simulated GPU and are compiled by NVRTC for every "
               "architecture. A graph that fails is shrunk and\nprinted as text, with the command that repeats it. "
               "Exit code: 0 all passed, 1 one failed, 2 the command is wrong, 77 nothing "
               "to do: NVRTC is not there."};
  Options options;
  options.seed = std::random_device{}();
  options.jobs = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  app.add_option("--graphs", options.graphs, "How many graphs")->capture_default_str();
  app.add_option("--seconds", options.seconds, "Begin no more of them after so long (default: no limit)");
  app.add_option("--seed", options.seed,
                 "Seed of the first graph, the next has the next (default: drawn); with --text (default: 0), of "
                 "its inputs");
  app.add_option("--simt", options.simt, "How many of them run as CUDA text on the simulated GPU")
      ->capture_default_str();
  app.add_option("--nvrtc", options.nvrtc, "How many of them NVRTC compiles")->capture_default_str();
  app.add_option("--targets", options.targets, "What NVRTC compiles for")->default_val(architectures());
  app.add_option("--gradients", options.gradients, "One graph in so many is also differentiated; 0: none")
      ->capture_default_str();
  app.add_option("--jobs", options.jobs, "Processes at once")->capture_default_str();
  app.add_option("--trials", options.shrinking.trials, "How often a failing graph is run again to make it small")
      ->capture_default_str();
  app.add_option("--most-failures", options.mostFailures, "A process stops after so many")->capture_default_str();
  app.add_flag("--no-host", options.noHost, "Leave out what runs on this CPU");
  app.add_flag("--print", options.print, "Print every graph");
  auto* text = app.add_option("--text", options.text,
                              "Check this graph instead of random ones (inputs named whole... hold whole numbers)");
  app.add_option("--size", options.sizes, "With --text: size of a symbolic dimension, as in r0=3; 3 where not given")
      ->needs(text);
  app.add_flag("--gradient", options.gradient, "With --text: its gradient too")->needs(text);
  try {
    app.parse(count, arguments);
  } catch (const CLI::ParseError& failure) {
    return failure.get_exit_code() == 0 ? app.exit(failure) : (app.exit(failure), kBadInput);
  }
  if (!options.text.empty()) {
    if (app.count("--seed") == 0)
      options.seed = 0;
    if (app.count("--simt") == 0)
      options.simt = 0;
    if (app.count("--nvrtc") == 0)
      options.nvrtc = 0;
    return runText(options);
  }
  if (options.nvrtc > 0 && nvrtcLibrary().empty()) {
    fmt::print("skipped: NVRTC for {}: it is not installed (CERMET_NVRTC names it)\n", fmt::join(options.targets, " "));
    if (options.noHost && options.simt <= 0)
      return kSkipped;
    options.nvrtc = 0;
  }
  fmt::print("{} graphs from seed {} on\n", options.graphs, options.seed);
  const auto start = std::chrono::steady_clock::now();
  const Totals totals = workInParallel(options);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print("{} graphs, {} runs compared, {} failed, {:.1f} s\n", totals.graphs, totals.runs, totals.failures,
             seconds);
  return totals.failures > 0;
}
