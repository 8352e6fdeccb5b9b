// CompilerLibrary: libcermet_compiler, opened on the first miss and never closed. Every function answers as the seam
// (runtime/abi/CompilerApi.h) says, with buffers copied into strings and errors into Status. Thread-safe.
#pragma once
#include "runtime/abi/CompilerApi.h"
#include "runtime/context/Config.h"
#include "runtime/support/Status.h"
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace cermet {

class CompilerLibrary {
public:
  // Told of each text of a dump that could not be written.
  using DumpFailed = std::function<void(const std::string& what)>;
  CompilerLibrary(const Config& config, DumpFailed dumpFailed) : config_(config), dumpFailed_(std::move(dumpFailed)) {}

  Result<std::string> compile(std::string_view text, const std::string& target);
  Result<std::string> match(std::string_view text);
  Result<std::string> differentiate(std::string_view text, const std::vector<uint8_t>& wanted);
  Result<std::string> linearLoss(std::string_view text, const std::vector<uint8_t>& wanted);
  struct Image {
    std::string bytes;
    int32_t nvrtcVersion = 0;
  };
  Result<Image> buildKernel(const std::string& spec);
  Result<std::string> kernelSource(const std::string& spec);
  // Fills the outputs among `tensors`.
  Status interpret(std::string_view text, bool honourCasts, const std::vector<cermet_tensor>& tensors);

  std::mutex& mutex() { return mutex_; } // for a fork

  // Where it is or would be: the configured path, else beside the code that asks, else in ../lib of it.
  static std::string path(const Config& config);

private:
  Result<const cermet_compiler_table*> open();
  template <typename Call> Result<std::string> ask(const char* what, const Call& call);

  const Config& config_; // of the context, which outlives this
  const DumpFailed dumpFailed_;
  std::mutex mutex_;
  const cermet_compiler_table* table_ = nullptr; // guarded by mutex_
};

} // namespace cermet
