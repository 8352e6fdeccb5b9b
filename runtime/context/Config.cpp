#include "runtime/context/Config.h"
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>
#include <thread>

namespace cermet {

constexpr int kMaxThreads = 1024, kMaxDefaultThreads = 16;

namespace {

using Json = nlohmann::ordered_json;

struct Field : Setting {
  Status (*parse)(const Field& field, std::string_view value, Config& config);
  Json (*tell)(const Config& config);
};

template <auto member> Json tell(const Config& config) {
  return config.*member;
}

Status invalid(const Field& field, std::string_view value) {
  return error(CERMET_INVALID_ARGUMENT, "{} is '{}', expected {}", field.variable, value, field.values);
}

template <std::string Config::*member> Status parseText(const Field&, std::string_view value, Config& config) {
  config.*member = value;
  return {};
}

template <int Config::*member> Status parseThreads(const Field& field, std::string_view value, Config& config) {
  int& threads = config.*member;
  const auto [end, failure] = std::from_chars(value.data(), value.data() + value.size(), threads);
  if (failure != std::errc() || end != value.data() + value.size() || threads < 1 || threads > kMaxThreads)
    return invalid(field, value);
  return {};
}

Status parseCacheBytes(const Field& field, std::string_view value, Config& config) {
  const auto [end, failure] = std::from_chars(value.data(), value.data() + value.size(), config.cacheBytes);
  return failure == std::errc() && end == value.data() + value.size() ? Status() : invalid(field, value);
}

Json tellCache(const Config& config) {
  return config.cacheOnly ? "only" : "on";
}

template <bool Config::*member> Status parseSwitch(const Field& field, std::string_view value, Config& config) {
  if (value != "0" && value != "1")
    return invalid(field, value);
  config.*member = value == "1";
  return {};
}

constexpr std::string_view kLogLevels[] = {"off", "warn", "info"};

Json tellLog(const Config& config) {
  return kLogLevels[static_cast<int>(config.log)];
}

const Field kFields[] = {
    {{"CERMET_CACHE_DIR", "a directory, or nothing to switch it off",
      "`$XDG_CACHE_HOME/cermet`, or `$HOME/.cache/cermet`; of these only an absolute path counts",
      "Where plans and kernels are kept between processes. It is made with mode 0700 if it is not there."},
     parseText<&Config::cacheDirectory>,
     tell<&Config::cacheDirectory>},
    {{"CERMET_CACHE_BYTES", "a whole number; 0 for no bound", "2147483648",
      "How many bytes of files the directory may hold. What was used longest ago goes when there would be more."},
     parseCacheBytes,
     tell<&Config::cacheBytes>},
    {{"CERMET_PACKS", "paths with `:` between them", "none",
      "Packs ([cache-format.md](cache-format.md)) that are asked before the directory, in this order. `PATH#DIGEST` "
      "demands the digest that `cermet pack ls` prints."},
     parseText<&Config::packs>,
     tell<&Config::packs>},
    {{"CERMET_CACHE", "on or only", "on",
      "only: nothing is compiled or written; what no pack and no directory holds is an error that says what would "
      "make it."},
     [](const Field& field, std::string_view value, Config& config) {
       return parseCache(value, config, field.variable);
     },
     tellCache},
    {{"CERMET_NVRTC", "a path", "found by name",
      "The `libnvrtc.so.*` that compiles CUDA C++. It is opened on the first kernel that no cache holds."},
     parseText<&Config::nvrtcLibrary>,
     tell<&Config::nvrtcLibrary>},
    {{"CERMET_DUMP", "a directory", "no dump",
      "Where the compiler writes every text it makes, titled by kernel. Everything is then compiled, cached or not."},
     parseText<&Config::dumpDirectory>,
     tell<&Config::dumpDirectory>},
    {{"CERMET_COMPILER_LIBRARY", "a path", "`libcermet_compiler.so` beside `libcermet`",
      "The library that compiles what no cache holds."},
     parseText<&Config::compilerLibrary>,
     tell<&Config::compilerLibrary>},
    {{"CERMET_CUDA_LIBRARY", "a path or a name", "`libcuda.so.1`",
      "The CUDA driver library; a name that is not there leaves the host target only."},
     parseText<&Config::cudaLibrary>,
     tell<&Config::cudaLibrary>},
    {{"CERMET_THREADS", "a number from 1 to 1024", "one for each processor, at most 16",
      "Threads of a launch on the host target. The result does not depend on it."},
     parseThreads<&Config::threads>,
     tell<&Config::threads>},
    {{"CERMET_COMPILE_THREADS", "a number from 1 to 1024", "one for each processor",
      "Kernels of a plan that are compiled at once."},
     parseThreads<&Config::compileThreads>,
     tell<&Config::compileThreads>},
    {{"CERMET_CHECK", "0 or 1", "0",
      "1: a CUDA launch also asks the driver whether each pointer and the stream are of the right device; the torch "
      "frontend compares every kernel's first launch with what it replaced, and looks at every loss's labels "
      "([explain.md](explain.md))."},
     parseSwitch<&Config::check>,
     tell<&Config::check>},
    {{"CERMET_NVTX", "0 or 1", "0",
      "1: launches and their steps, compiles, loads and waits for others' compiles are NVTX ranges of the domain "
      "`cermet`, which Nsight Systems shows; without a profiler nothing happens."},
     parseSwitch<&Config::nvtx>,
     tell<&Config::nvtx>},
    {{"CERMET_LOG", "off, warn or info", "warn",
      "What is written to stderr: nothing, each kind of warning once, or also every compile, and in Python every pass "
      "over a graph with its milliseconds. There it sets the level of the logger `cermet`."},
     [](const Field& field, std::string_view value, Config& config) { return parseLog(value, config, field.variable); },
     tellLog},
};

int processors() {
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMaxThreads);
}

// A relative path in these is ignored, as the XDG specification says.
std::string defaultCacheDirectory(const Config::Environment& variable) {
  if (const char* base = variable("XDG_CACHE_HOME"); base && base[0] == '/')
    return fmt::format("{}/cermet", base);
  if (const char* home = variable("HOME"); home && home[0] == '/')
    return fmt::format("{}/.cache/cermet", home);
  return "";
}

} // namespace

Status parseCache(std::string_view value, Config& config, const char* given) {
  if (value != "on" && value != "only")
    return error(CERMET_INVALID_ARGUMENT, "{} is '{}', expected on or only", given, value);
  config.cacheOnly = value == "only";
  return {};
}

Status parseLog(std::string_view value, Config& config, const char* given) {
  const auto* level = std::find(std::begin(kLogLevels), std::end(kLogLevels), value);
  if (level == std::end(kLogLevels))
    return error(CERMET_INVALID_ARGUMENT, "{} is '{}', expected off, warn or info", given, value);
  config.log = static_cast<LogLevel>(level - kLogLevels);
  return {};
}

Result<Config> Config::read(const Environment& variable) {
  Config config;
  config.cacheDirectory = defaultCacheDirectory(variable);
  config.cudaLibrary = "libcuda.so.1";
  config.threads = std::min(processors(), kMaxDefaultThreads);
  config.compileThreads = processors();
  for (const Field& field : kFields)
    if (const char* value = variable(field.variable))
      CERMET_RETURN_IF_ERROR(field.parse(field, value, config));
  if (config.cacheDirectory.empty() && !variable("CERMET_CACHE_DIR"))
    config.cacheProblem = "there is no cache directory, since neither HOME nor XDG_CACHE_HOME is an absolute path; "
                          "what is compiled stays in memory. Set CERMET_CACHE_DIR to a directory, or to nothing if "
                          "this is what you want";
  return config;
}

const Result<Config>& Config::environment() {
  static const Result<Config> config = now();
  return config;
}

Result<Config> Config::now() {
  return read([](const char* variable) { return std::getenv(variable); });
}

std::string settingsJson(const Config& config) {
  Json result = Json::object();
  for (const Field& field : kFields)
    result[field.variable] = field.tell(config);
  return result.dump(-1, ' ', false, Json::error_handler_t::replace);
}

const std::vector<Setting>& settings() {
  static const std::vector<Setting> list(std::begin(kFields), std::end(kFields));
  return list;
}

std::string settingsTable() {
  std::string table = "| variable | values | without it | meaning |\n|---|---|---|---|\n";
  for (const Setting& setting : settings())
    table += fmt::format("| `{}` | {} | {} | {} |\n", setting.variable, setting.values, setting.fallback,
                         setting.description);
  return table;
}

} // namespace cermet
