// From graph text to a launched kernel in a new process whose cache directory is warm. Every turn is a process of its
// own that begins with nothing; its time runs from before it is started until its launch has been queued (host: is
// done), so the loading of the program and its libraries is in it. What the CUDA driver needs to start (cuInit and the
// device's primary context) would be needed without Cermet too, and is taken and reported apart.
//
//     warm_start [--target auto] [--turns 30] [--cache DIRECTORY] [--packed] [--out FILE]     writes one JSON object,
//     in milliseconds
//
// A first process fills the cache; a directory that is given must be warm already, and no compiler is needed then. With
// --packed one process writes a pack of what is in the cache, and those that are measured have that alone.
#include "bench/Calls.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <string>
#include <unistd.h>
#include <vector>

using namespace cermet::bench;

namespace {

constexpr int64_t kRows = 8;
const std::vector<const char*> kParts{"start",   "driver", "context", "compile",
                                      "prepare", "launch", "total",   "without_driver"};

int64_t now() { // of a clock that all processes share
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Starts the driver and gives memory of device 0.
char* startDriver(size_t bytes) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library)
    die("there is no CUDA driver here (libcuda.so.1); --target host measures the host target");
  const auto call = [&](const char* name, auto... arguments) {
    const auto function = reinterpret_cast<int (*)(decltype(arguments)...)>(dlsym(library, name));
    if (const int result = function ? function(arguments...) : -1)
      die(fmt::format("{} returned CUDA error {}", name, result));
  };
  void* primary = nullptr;
  unsigned long long address = 0;
  call("cuInit", 0u);
  call("cuDevicePrimaryCtxRetain", &primary, 0);
  call("cuCtxSetCurrent", primary);
  call("cuMemAlloc_v2", &address, bytes);
  return reinterpret_cast<char*>(address);
}

// One turn: prints its parts in nanoseconds and how many kernels it compiled.
int turn(const std::string& target, int64_t started, const std::string& pack) {
  std::vector<int64_t> at{started, now()};
  constexpr size_t kTile = kRows * kColumns * 2;
  static char host[3 * kTile];
  char* base = target.starts_with("host") ? host : startDriver(3 * kTile);
  at.push_back(now());
  cermet_context* context = nullptr;
  cermet_plan* plan = nullptr;
  cermet_executable* executable = nullptr;
  check(cermet_context_create(nullptr, &context), "cermet_context_create");
  at.push_back(now());
  check(cermet_compile(context, kGraph, std::strlen(kGraph), target.c_str(), &plan), "cermet_compile");
  at.push_back(now());
  check(cermet_prepare(context, plan, 0, &executable), "cermet_prepare");
  at.push_back(now());
  const int64_t sizes[] = {kRows, kColumns}, strides[] = {kColumns, 1}, columns[] = {kColumns}, one[] = {1};
  const cermet_tensor tensors[] = {{base, sizes, strides, 2, CERMET_BF16},
                                   {base + kTile, columns, one, 1, CERMET_BF16},
                                   {base + 2 * kTile, sizes, strides, 2, CERMET_BF16}};
  check(cermet_launch(executable, nullptr, tensors, 3, nullptr, 0), "cermet_launch");
  at.push_back(now());
  for (size_t part = 1; part < at.size(); ++part)
    fmt::print("{} ", at[part] - at[part - 1]);
  cermet_counters counters{};
  counters.size = sizeof(counters);
  check(cermet_context_counters(context, &counters), "cermet_context_counters");
  fmt::print("{}\n", counters.kernels_compiled + counters.plans_compiled);
  char* written = nullptr;
  if (!pack.empty())
    check(cermet_context_write_pack(context, pack.c_str(), &written), "cermet_context_write_pack");
  std::fflush(stdout);
  _exit(0); // the end of a process is not measured
}

// The parts of a turn in a new process, and what it compiled.
std::vector<double> runTurn(const std::string& program, const std::string& target, int& compiled,
                            const std::string& pack = "") {
  FILE* pipe = popen(
      fmt::format("exec '{}' --target {} --turn {} --write-pack '{}'", program, target, now(), pack).c_str(), "r");
  std::vector<double> parts(kParts.size());
  double value = 0;
  size_t read = 0;
  while (read < kParts.size() - 2 && pipe && std::fscanf(pipe, "%lf", &value) == 1)
    parts[read++] = value * 1e-6;
  if (read != kParts.size() - 2 || std::fscanf(pipe, "%d", &compiled) != 1)
    die("a turn failed");
  pclose(pipe);
  for (size_t part = 0; part < read; ++part)
    parts[read] += parts[part];
  parts[read + 1] = parts[read] - parts[1];
  return parts;
}

} // namespace

int main(int argc, char** argv) {
  CLI::App app{"Time from graph text to a launched kernel in a new process with a warm cache directory"};
  std::string target = "auto", out, cache, pack;
  bool packed = false;
  int turns = 30;
  int64_t started = 0;
  app.add_option("--target", target, "auto, sm_XY or host");
  app.add_option("--turns", turns, "processes that are measured")->check(CLI::PositiveNumber);
  app.add_option("--cache", cache, "a cache directory that holds the graph and its kernel");
  app.add_option("--out", out, "write the JSON here too");
  app.add_flag("--packed", packed, "measure with a pack and no directory");
  app.add_option("--turn", started)->group(""); // what a new process is told
  app.add_option("--write-pack", pack)->group("");
  CLI11_PARSE(app, argc, argv);
  if (started)
    return turn(target, started, pack);

  std::string directory = std::filesystem::temp_directory_path() / "cermet-warm-start-XXXXXX";
  if (cache.empty() && !mkdtemp(directory.data()))
    die("no temporary directory can be made");
  setenv("CERMET_CACHE_DIR", cache.empty() ? directory.c_str() : cache.c_str(), 1);
  const std::string program = std::filesystem::canonical("/proc/self/exe");
  int compiled = 0;
  std::string cold = "null";
  if (cache.empty()) {
    cold = fmt::format("{:.2f}", runTurn(program, target, compiled)[kParts.size() - 2]);
    if (compiled != 2)
      die(fmt::format("the first process compiled {} plans and kernels, expected 2", compiled));
  }
  if (packed) {
    pack = directory + ".cpack";
    runTurn(program, target, compiled, pack);
    setenv("CERMET_PACKS", pack.c_str(), 1);
    setenv("CERMET_CACHE", "only", 1);
    setenv("CERMET_CACHE_DIR", "", 1);
  }
  std::vector<std::vector<double>> times(kParts.size());
  for (int index = 0; index < turns; ++index) {
    const std::vector<double> parts = runTurn(program, target, compiled);
    if (compiled != 0)
      die(fmt::format("a process with a warm cache compiled {} plans and kernels, expected none", compiled));
    for (size_t part = 0; part < parts.size(); ++part)
      times[part].push_back(parts[part]);
  }
  if (cache.empty())
    std::filesystem::remove_all(directory);
  if (packed)
    std::filesystem::remove(pack);

  std::string answer =
      fmt::format(R"({{"benchmark": "warm_start", "version": "{}", "target": "{}", "turns": {}, "packed": {}, )"
                  R"("cold_total_ms": {})",
                  cermet_version(), target, turns, packed, cold);
  for (size_t part = 0; part < kParts.size(); ++part) {
    std::sort(times[part].begin(), times[part].end());
    const auto rank = [&](double share) { return times[part][size_t(share * double(turns - 1))]; };
    answer += fmt::format(R"(, "{}": {{"median_ms": {:.3f}, "p10_ms": {:.3f}, "p90_ms": {:.3f}}})", kParts[part],
                          rank(0.5), rank(0.1), rank(0.9));
  }
  answer += "}\n";
  fmt::print("{}", answer);
  if (!out.empty() && !(std::ofstream(out) << answer))
    die(fmt::format("cannot write {}", out));
  return 0;
}
