// Context: one configuration with its caches, counters, driver and loaded kernels; what a cermet_context is. Everything
// here is thread-safe and off the launch path. It lives until the last executable that was prepared in it is gone. In a
// forked process it goes on with what it had in memory (Fork.h).
#pragma once
#include "runtime/context/CompilerLibrary.h"
#include "runtime/context/Config.h"
#include "runtime/support/Counters.h"
#include "runtime/device/CudaImage.h"
#include "runtime/support/Fork.h"
#include "runtime/device/HostImage.h"
#include "runtime/support/Log.h"
#include "runtime/support/Ranges.h"
#include "runtime/plan/Plan.h"
#include "runtime/cache/Store.h"
#include "runtime/support/ThreadPool.h"
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>

namespace cermet {

class Context final : private Forkable {
public:
  // With the packs that the config names. An error where one cannot be used, or where settings contradict one another.
  static Result<std::shared_ptr<Context>> create(Config config);
  explicit Context(Config config, Packs packs = {});
  ~Context();
  // UNSUPPORTED in a process that was forked while a lock of the context was not to be had: it may not be whole.
  Status checkWhole() const;

  const Config& config() const { return config_; }
  Counters& counters() { return counters_; }
  const Counters& counters() const { return counters_; }
  CompilerLibrary& compiler() { return compiler_; }
  const Ranges& ranges() const { return ranges_; }

  // "auto" and "host" become a concrete target; others are checked.
  Result<std::string> resolveTarget(std::string_view target);

  Result<std::shared_ptr<const Plan>> compile(std::string_view text, std::string_view target);
  Result<std::string> match(std::string_view text);
  Result<std::string> differentiate(std::string_view text, const std::vector<uint8_t>& wanted);
  Result<std::string> linearLoss(std::string_view text, const std::vector<uint8_t>& wanted);
  // Images of kernels, from the canonical texts of their specs, in their order and each once. What no cache holds is
  // compiled by up to config().compileThreads threads at once. Of several failures it is that of the first spec.
  struct KernelImage {
    Store::Payload payload;
    int64_t compileMicroseconds = -1; // -1: it was not compiled here
  };
  Result<std::vector<KernelImage>> kernelImages(const std::vector<std::string>& specs);

  // Opened at the first call; a failure is asked again at the next.
  Result<std::shared_ptr<const Driver>> driver();
  Result<std::shared_ptr<const CudaDevice>> device(int ordinal);

  // A kernel to load, and the entries that its image must have. Equal specs have equal entries.
  struct NeededKernel {
    std::string spec;
    std::vector<std::string> entries;
  };
  // The image of each spec, loaded once per spec (and device) for the life of the context. Loading is the caller's. One
  // from the directory that does not load or lacks an entry is compiled again.
  template <typename Image> using Loaded = std::map<std::string, std::shared_ptr<const Image>>;
  Result<Loaded<CudaImage>> cudaImages(const std::vector<NeededKernel>& kernels,
                                       const std::shared_ptr<const CudaDevice>& device);
  Result<Loaded<HostImage>> hostImages(const std::vector<NeededKernel>& kernels);
  ThreadPool& pool();

  // Everything that was asked for until now, and is here, as a pack.
  Result<PackWriter::Written> writePack(const std::string& path);

  std::string targetsJson();
  // The first text of a dump that could not be written, and why; "" if there was none.
  std::string dumpProblem();

private:
  void lockForFork(ForkDeadline deadline) override;
  void unlockAfterFork() override;
  void renewInChild() override;

  void noteDumpFailure(const std::string& what);
  void noteMade(const Entry& entry, int64_t microseconds) const;
  Result<Store::Payload> graphAnswer(EntryKind kind, std::string_view question, std::string_view text,
                                     const std::function<Result<std::string>()>& ask);
  Result<KernelImage> kernelImage(const std::string& spec);
  // What kernelImage() gave is of no use: Store::mend().
  Result<Store::Payload> mendKernel(const std::string& spec, const Store::Payload& refused, const Status& why);
  Status buildKernel(const std::string& spec, Entry& entry, int64_t& microseconds);
  int nvrtcVersion();
  template <typename Image>
  Result<Loaded<Image>> load(Loaded<Image>& known, const std::vector<NeededKernel>& kernels,
                             const std::function<Result<std::shared_ptr<const Image>>(std::string_view)>& loadOne);

  const Config config_;
  Log log_;
  const Ranges ranges_;
  Counters counters_;
  Store store_;
  CompilerLibrary compiler_;

  std::mutex mutex_; // guards what follows
  std::shared_ptr<const Driver> driver_;
  std::map<int, std::shared_ptr<const CudaDevice>> devices_;
  std::map<int, Loaded<CudaImage>> cudaImages_; // by device
  Loaded<HostImage> hostImages_;
  std::unique_ptr<ThreadPool> pool_;
  std::string dumpProblem_;
  std::optional<int> nvrtcVersion_;

  bool whole_ = true;
  ForkLock own_{mutex_}, stores_{store_.mutex()}, compilers_{compiler_.mutex()}, logs_{log_.mutex()};
};

} // namespace cermet
