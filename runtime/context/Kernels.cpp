// A context's kernels: from specs to images, several at once, and from images to what is loaded.
#include "BuildId.h"
#include "runtime/context/Context.h"
#include "runtime/support/Fork.h"
#include <algorithm>
#include <atomic>
#include <chrono>
#include <system_error>
#include <thread>

namespace cermet {

static std::string kernelKey(const std::string& spec) {
  return fmt::format("{}\n{}", CERMET_BUILD_ID, spec);
}

static Store::Sources kernelSources(Counters& counters) {
  return {counters.kernelsCompiled, counters.kernelsFromMemory, counters.kernelsFromPacks,
          counters.kernelsFromDirectory};
}

Status Context::buildKernel(const std::string& spec, Entry& entry, int64_t& microseconds) {
  const auto start = std::chrono::steady_clock::now();
  const Range range(ranges_, RangeKind::Compile, [&] { return title(entry); });
  CompilerLibrary::Image image = CERMET_TRY(compiler_.buildKernel(spec));
  const auto took = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start);
  Counters::raise(counters_.kernelCompileMicroseconds, static_cast<uint64_t>(took.count()));
  microseconds = took.count();
  entry.payload = std::move(image.bytes);
  entry.nvrtcVersion = image.nvrtcVersion;
  if (log_.informs())
    log_.info(fmt::format("compiled a kernel in {} ms:\n{}", took.count() / 1000, spec));
  noteMade(entry, took.count());
  return {};
}

Result<Context::KernelImage> Context::kernelImage(const std::string& spec) {
  KernelImage result;
  const auto payload = store_.get(EntryKind::Kernel, kernelKey(spec), kernelSources(counters_),
                                  [&](Entry& entry) { return buildKernel(spec, entry, result.compileMicroseconds); });
  if (!payload.ok())
    return payload.status();
  result.payload = *payload;
  return result;
}

Result<Store::Payload> Context::mendKernel(const std::string& spec, const Store::Payload& refused, const Status& why) {
  int64_t microseconds = 0;
  return store_.mend(
      EntryKind::Kernel, kernelKey(spec), kernelSources(counters_),
      [&](Entry& entry) { return buildKernel(spec, entry, microseconds); }, refused, why);
}

Result<std::vector<Context::KernelImage>> Context::kernelImages(const std::vector<std::string>& specs) {
  std::vector<KernelImage> images(specs.size());
  std::vector<Status> statuses(specs.size());
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{false};
  // Specs are taken in order and a taken one is finished, so what comes before a failure has its own status too.
  const auto work = [&] {
    for (size_t index; !failed && (index = next.fetch_add(1)) < specs.size();) {
      try {
        Result<KernelImage> image = kernelImage(specs[index]);
        if (image.ok())
          images[index] = std::move(*image);
        else
          statuses[index] = image.status();
      } catch (const std::exception& failure) { // none may leave a thread
        statuses[index] = error(CERMET_INTERNAL, "{}", failure.what());
      } catch (...) {
        statuses[index] = error(CERMET_INTERNAL, "something that is no std::exception was thrown by a compile");
      }
      if (!statuses[index].ok())
        failed = true;
    }
  };
  std::vector<std::thread> threads;
  const size_t wanted = std::min(specs.size(), static_cast<size_t>(config_.compileThreads));
  threads.reserve(wanted);
  while (threads.size() + 1 < wanted) {
    try {
      threads.emplace_back(work);
    } catch (const std::system_error&) {
      break; // no more threads to be had: fewer share the work
    }
  }
  work();
  for (std::thread& thread : threads)
    thread.join();
  for (Status& status : statuses)
    if (!status.ok())
      return std::move(status);
  return images;
}

template <typename Image>
Result<Context::Loaded<Image>>
Context::load(Loaded<Image>& known, const std::vector<NeededKernel>& kernels,
              const std::function<Result<std::shared_ptr<const Image>>(std::string_view)>& loadOne) {
  std::vector<std::string> missing;
  std::vector<const NeededKernel*> needed; // of the missing
  std::unique_lock lock(mutex_);
  for (const NeededKernel& kernel : kernels)
    if (!known.contains(kernel.spec) && std::find(missing.begin(), missing.end(), kernel.spec) == missing.end()) {
      missing.push_back(kernel.spec);
      needed.push_back(&kernel);
    }
  lock.unlock();
  const auto images = CERMET_TRY(kernelImages(missing));
  const auto loadWhole = [&](const NeededKernel& kernel, std::string_view image) {
    const Range range(ranges_, RangeKind::Load, [&] {
      return title({EntryKind::Kernel, kernelKey(kernel.spec), "", 0, ""});
    });
    auto loaded = loadOne(image);
    for (const std::string& entry : kernel.entries)
      if (loaded.ok())
        if (Status lacking = (*loaded)->has(entry); !lacking.ok())
          loaded = lacking;
    return loaded;
  };
  // Two threads may both get here; loading is quick, and the second finds the first's.
  std::optional<ForkSection> section(std::in_place);
  lock.lock();
  for (size_t index = 0; index < missing.size(); ++index) {
    const std::string& spec = missing[index];
    if (known.contains(spec))
      continue;
    const Store::Payload& image = images[index].payload;
    auto loaded = loadWhole(*needed[index], *image);
    if (!loaded.ok() && loaded.status().code() != CERMET_CAPTURING) {
      lock.unlock();
      section.reset(); // a compile enters its own
      const auto mended = mendKernel(spec, image, loaded.status());
      section.emplace();
      lock.lock();
      if (!mended.ok())
        return mended.status();
      if (known.contains(spec))
        continue;
      loaded = loadWhole(*needed[index], **mended);
    }
    if (!loaded.ok())
      return loaded.status();
    known.emplace(spec, std::move(*loaded));
  }
  Loaded<Image> result;
  for (const NeededKernel& kernel : kernels)
    result.emplace(kernel.spec, known.at(kernel.spec));
  return result;
}

Result<Context::Loaded<CudaImage>> Context::cudaImages(const std::vector<NeededKernel>& kernels,
                                                       const std::shared_ptr<const CudaDevice>& device) {
  Loaded<CudaImage>* known = nullptr;
  {
    std::lock_guard lock(mutex_);
    known = &cudaImages_[device->ordinal()]; // a map's elements stay where they are
  }
  return load<CudaImage>(*known, kernels, [&](std::string_view image) { return CudaImage::load(device, image); });
}

Result<Context::Loaded<HostImage>> Context::hostImages(const std::vector<NeededKernel>& kernels) {
  return load<HostImage>(hostImages_, kernels, [](std::string_view image) { return HostImage::load(image); });
}

} // namespace cermet
