// Context: one configuration with its caches, counters, driver and loaded kernels; what a cermet_context is. Everything
// here is thread-safe and off the launch path. It lives until the last executable that was prepared in it is gone.
#pragma once
#include "runtime/CompilerLibrary.h"
#include "runtime/Config.h"
#include "runtime/Counters.h"
#include "runtime/CudaImage.h"
#include "runtime/HostImage.h"
#include "runtime/Log.h"
#include "runtime/Plan.h"
#include "runtime/Store.h"
#include "runtime/ThreadPool.h"
#include <map>
#include <memory>
#include <mutex>
#include <string_view>

namespace cermet {

class Context {
public:
  explicit Context(Config config);

  const Config& config() const { return config_; }
  Counters& counters() { return counters_; }
  const Counters& counters() const { return counters_; }
  CompilerLibrary& compiler() { return compiler_; }

  // "auto" and "host" become a concrete target; others are checked.
  Result<std::string> resolveTarget(std::string_view target);

  Result<std::shared_ptr<const Plan>> compile(std::string_view text, std::string_view target);
  Result<std::string> match(std::string_view text);
  Result<std::string> differentiate(std::string_view text, const std::vector<uint8_t>& wanted);
  // A kernel's image, from its spec's canonical text.
  Result<Store::Payload> kernelImage(const std::string& spec);

  // Opened at the first call; a failure is asked again at the next.
  Result<std::shared_ptr<const Driver>> driver();
  Result<std::shared_ptr<const CudaDevice>> device(int ordinal);

  // Loaded once per spec (and device), for the life of the context.
  Result<std::shared_ptr<const CudaImage>> cudaImage(const std::string& spec, const std::shared_ptr<const CudaDevice>&);
  Result<std::shared_ptr<const HostImage>> hostImage(const std::string& spec);
  ThreadPool& pool();

  std::string targetsJson();

private:
  Result<Store::Payload> graphAnswer(EntryKind kind, std::string_view question, std::string_view text,
                                     const std::function<Result<std::string>()>& ask);

  const Config config_;
  Log log_;
  Counters counters_;
  Store store_;
  CompilerLibrary compiler_;

  std::mutex mutex_; // guards what follows
  std::shared_ptr<const Driver> driver_;
  std::map<int, std::shared_ptr<const CudaDevice>> devices_;
  std::map<std::pair<int, std::string>, std::shared_ptr<const CudaImage>> cudaImages_;
  std::map<std::string, std::shared_ptr<const HostImage>> hostImages_;
  ThreadPool::Pointer pool_;
};

} // namespace cermet
