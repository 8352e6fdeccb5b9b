// Config: every choice that a user can make from outside, read once when a context is created. Nothing else in the
// runtime looks at the environment. docs/environment.md is the same list for readers; a test keeps the two equal.
#pragma once
#include "runtime/support/Log.h"
#include "runtime/support/Status.h"
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace cermet {

struct Config {
  std::string cacheDirectory;              // CERMET_CACHE_DIR: plans and kernels; "" keeps them in memory only
  uint64_t cacheBytes = uint64_t(2) << 30; // CERMET_CACHE_BYTES: what the directory may hold; 0 is no bound
  std::string packs;                       // CERMET_PACKS: files that are asked before the directory, ':' between them
  bool cacheOnly = false;                  // CERMET_CACHE: nothing is made that neither holds
  std::string nvrtcLibrary;                // CERMET_NVRTC: path of libnvrtc.so.*; "" searches by name
  std::string dumpDirectory;               // CERMET_DUMP: where the compiler writes what it makes; "" nowhere
  std::string compilerLibrary;   // CERMET_COMPILER_LIBRARY: path; "" is libcermet_compiler.so beside libcermet
  std::string cudaLibrary;       // CERMET_CUDA_LIBRARY: path or name of the CUDA driver library
  int threads = 0;               // CERMET_THREADS: threads of a host launch, the caller's included
  int compileThreads = 0;        // CERMET_COMPILE_THREADS: kernels that one prepare compiles at once
  bool check = false;            // CERMET_CHECK: also make the launch checks that cost a driver query per tensor
  bool nvtx = false;             // CERMET_NVTX: ranges for a profiler
  LogLevel log = LogLevel::Warn; // CERMET_LOG
  EventSink events;              // no setting: whom the context tells what it does
  std::string cacheProblem;      // no setting: why `cacheDirectory` is "" where nobody switched it off, and what to set

  // `variable` returns the value of an environment variable or null. A value that cannot be understood is an error.
  using Environment = std::function<const char*(const char* variable)>;
  static Result<Config> read(const Environment& variable);
  static Result<Config> now(); // of the process's own environment
  // The same as it was at the first call.
  static const Result<Config>& environment();
};

// "on" or "only", CERMET_CACHE's values; an error says `given` is neither.
Status parseCache(std::string_view value, Config& config, const char* given);

// "off", "warn" or "info", CERMET_LOG's values.
Status parseLog(std::string_view value, Config& config, const char* given);

struct Setting {
  const char* variable;
  const char* values;      // what may be given
  const char* fallback;    // what holds without it
  const char* description; // one sentence
};

// One for each field of Config that is read, in order.
const std::vector<Setting>& settings();
// A config's fields as JSON, by their variables.
std::string settingsJson(const Config& config);
// The Markdown table of docs/environment.md.
std::string settingsTable();

} // namespace cermet
