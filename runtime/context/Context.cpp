#include "runtime/context/Context.h"
#include "BuildId.h"
#include "runtime/context/NvrtcFiles.h"
#include "runtime/device/Target.h"
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace cermet {

// A relative directory is one of where the process is now, wherever it goes.
static Config withAbsoluteCache(Config config) {
  std::error_code failure;
  if (!config.cacheDirectory.empty())
    if (const auto absolute = std::filesystem::absolute(config.cacheDirectory, failure); !failure)
      config.cacheDirectory = absolute.string();
  return config;
}

// A dump is of what is compiled, so with one nothing comes from the directory.
Result<std::shared_ptr<Context>> Context::create(Config config) {
  if (config.cacheOnly && !config.dumpDirectory.empty())
    return error(CERMET_INVALID_ARGUMENT,
                 "a dump into '{}' is asked for, which compiles everything, and CERMET_CACHE is "
                 "only, which compiles nothing; leave out one of the two",
                 config.dumpDirectory);
  Packs packs = CERMET_TRY(Packs::open(config.packs));
  return std::make_shared<Context>(std::move(config), std::move(packs));
}

Context::Context(Config config, Packs packs)
    : config_(withAbsoluteCache(std::move(config))), log_(config_.log, config_.events), ranges_(config_.nvtx),
      store_(config_.cacheDirectory, log_, counters_,
             {.reads = config_.dumpDirectory.empty(),
              .bound = config_.cacheBytes,
              .nvrtcVersion = [this] { return nvrtcVersion(); },
              .packs = std::move(packs),
              .ranges = ranges_,
              .only = config_.cacheOnly}),
      compiler_(config_, [this](const std::string& what) { noteDumpFailure(what); }) {
  if (config_.cacheDirectory.empty() && !config_.cacheProblem.empty())
    log_.warnOnce("no cache directory", config_.cacheProblem);
  addForkable(this);
}

Context::~Context() {
  removeForkable(this);
}

void Context::lockForFork(ForkDeadline deadline) {
  for (ForkLock* lock : {&own_, &stores_, &compilers_, &logs_})
    lock->lock(deadline);
}

void Context::unlockAfterFork() {
  for (ForkLock* lock : {&own_, &stores_, &compilers_, &logs_})
    lock->unlock();
}

void Context::renewInChild() {
  for (ForkLock* lock : {&own_, &stores_, &compilers_, &logs_})
    whole_ &= lock->renew();
  if (whole_)
    store_.forgetUnfinished();
}

Status Context::checkWhole() const {
  if (whole_) [[likely]]
    return {};
  return error(CERMET_UNSUPPORTED, "this context cannot be used in this process, which was forked while another thread "
                                   "was loading into it for long; make another context, or start such processes anew "
                                   "(in Python with the start method 'spawn')");
}

int Context::nvrtcVersion() {
  std::lock_guard lock(mutex_);
  if (!nvrtcVersion_)
    nvrtcVersion_ = nvrtcVersionByName(config_.nvrtcLibrary);
  return *nvrtcVersion_;
}

Result<std::string> Context::resolveTarget(std::string_view target) {
  if (target == "host")
    return hostTarget();
  if (target == "auto") {
    const auto opened = driver();
    if (opened.ok())
      return deviceTarget((*opened)->devices().front());
    if (opened.status().code() != CERMET_NOT_FOUND)
      return opened.status();
    return hostTarget();
  }
  CERMET_RETURN_IF_ERROR(checkTarget(target));
  return std::string(target);
}

Result<Store::Payload> Context::graphAnswer(EntryKind kind, std::string_view question, std::string_view text,
                                            const std::function<Result<std::string>()>& ask) {
  if (text.size() > CERMET_MAX_TEXT)
    return error(CERMET_INVALID_GRAPH, "graph:1:1: the text has {} bytes, expected at most {}", text.size(),
                 CERMET_MAX_TEXT);
  // The question's own text has no line break, so two different questions never make one key.
  const std::string key = fmt::format("{}\n{}\n{}", CERMET_BUILD_ID, question, text);
  const Store::Sources sources{counters_.plansCompiled, counters_.plansFromMemory, counters_.plansFromPacks,
                               counters_.plansFromDirectory};
  return store_.get(kind, key, sources, [&](Entry& entry) -> Status {
    const auto start = std::chrono::steady_clock::now();
    const Range range(ranges_, RangeKind::Compile, [&] { return title(entry); });
    entry.payload = CERMET_TRY(ask());
    const auto took = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start);
    Counters::raise(counters_.planCompileMicroseconds, static_cast<uint64_t>(took.count()));
    log_.info(fmt::format("made a {} for {}", name(kind), question));
    noteMade(entry, took.count());
    return {};
  });
}

Result<std::shared_ptr<const Plan>> Context::compile(std::string_view text, std::string_view target) {
  const std::string concrete = CERMET_TRY(resolveTarget(target));
  const auto json = graphAnswer(EntryKind::Plan, concrete, text, [&] { return compiler_.compile(text, concrete); });
  if (!json.ok())
    return json.status();
  Plan plan = CERMET_TRY(parsePlan(std::string(**json)));
  return std::make_shared<const Plan>(std::move(plan));
}

Result<std::string> Context::match(std::string_view text) {
  const auto json = graphAnswer(EntryKind::Match, "", text, [&] { return compiler_.match(text); });
  return json.ok() ? Result<std::string>(std::string(**json)) : json.status();
}

Result<std::string> Context::differentiate(std::string_view text, const std::vector<uint8_t>& wanted) {
  std::string question;
  for (uint8_t one : wanted)
    question += one ? '1' : '0';
  const auto json =
      graphAnswer(EntryKind::Gradient, question, text, [&] { return compiler_.differentiate(text, wanted); });
  return json.ok() ? Result<std::string>(std::string(**json)) : json.status();
}

Result<std::string> Context::linearLoss(std::string_view text, const std::vector<uint8_t>& wanted) {
  std::string question = "linear ";
  for (uint8_t one : wanted)
    question += fmt::format("{},", one);
  const auto json =
      graphAnswer(EntryKind::Gradient, question, text, [&] { return compiler_.linearLoss(text, wanted); });
  return json.ok() ? Result<std::string>(std::string(**json)) : json.status();
}

Result<std::shared_ptr<const Driver>> Context::driver() {
  const ForkSection section;
  std::lock_guard lock(mutex_);
  if (driver_) {
    CERMET_RETURN_IF_ERROR(driver_->checkOfThisProcess());
    return driver_;
  }
  auto opened = Driver::open(config_.cudaLibrary);
  if (opened.ok())
    driver_ = *opened;
  return opened;
}

Result<std::shared_ptr<const CudaDevice>> Context::device(int ordinal) {
  auto opened = CERMET_TRY(driver());
  const ForkSection section;
  std::lock_guard lock(mutex_);
  if (auto known = devices_.find(ordinal); known != devices_.end())
    return known->second;
  auto device = CudaDevice::open(opened, ordinal);
  if (device.ok())
    devices_.emplace(ordinal, *device);
  return device;
}

ThreadPool& Context::pool() {
  const ForkSection section;
  std::lock_guard lock(mutex_);
  if (!pool_)
    pool_ = std::make_unique<ThreadPool>(config_.threads);
  return *pool_;
}

void Context::noteDumpFailure(const std::string& what) {
  log_.warnOnce("dump not writable", what);
  std::lock_guard lock(mutex_);
  if (dumpProblem_.empty())
    dumpProblem_ = what;
}

void Context::noteMade(const Entry& entry, int64_t microseconds) const {
  if (log_.isListenedTo())
    log_.tell(CERMET_EVENT_MADE, name(entry.kind), title(entry), "compiler", static_cast<uint64_t>(microseconds),
              entry.payload.size());
}

std::string Context::dumpProblem() {
  std::lock_guard lock(mutex_);
  return dumpProblem_;
}

Result<PackWriter::Written> Context::writePack(const std::string& path) {
  PackWriter writer;
  for (const Entry& entry : store_.all())
    writer.add(entry);
  return writer.write(path);
}

std::string Context::targetsJson() {
  using nlohmann::json;
  json devices = json::array();
  json driverJson = nullptr;
  const auto opened = driver();
  if (opened.ok()) {
    driverJson = {{"library", config_.cudaLibrary}, {"version", (*opened)->version()}};
    for (const Device& device : (*opened)->devices()) {
      const Result<std::string> target = deviceTarget(device);
      devices.push_back({{"ordinal", devices.size()},
                         {"name", device.name},
                         {"compute_capability", fmt::format("{}.{}", device.major, device.minor)},
                         {"multiprocessors", device.multiprocessors},
                         {"target", target.ok() ? json(*target) : json(nullptr)}});
    }
  }
  json names = json::array();
  for (const CudaTarget& target : kCudaTargets)
    names.push_back(target.name);
  const Result<std::string> host = hostTarget();
  if (host.ok())
    names.push_back(*host);
  const json answer = {{"targets", names},
                       {"devices", devices},
                       {"driver", driverJson},
                       {"driver_problem", opened.ok() ? json(nullptr) : json(opened.status().message())},
                       {"host", {{"target", host.ok() ? json(*host) : json(nullptr)}, {"threads", config_.threads}}},
                       {"nvrtc", config_.nvrtcLibrary},
                       {"compiler_library", CompilerLibrary::path(config_)},
                       {"cache_directory", config_.cacheDirectory}};
  return answer.dump(1, ' ', false, json::error_handler_t::replace);
}

} // namespace cermet
