#include "runtime/cache/Directory.h"
#include "runtime/cache/Layout.h"
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <ctime>
#include <set>
#include <sys/stat.h>
#include <system_error>
#include <thread>
#include <unistd.h>

namespace cermet {

namespace {

// An entry is marked as used when it was not for so long, so that a process does not write for each that it reads.
constexpr time_t kUsedSeconds = 10 * 60;
// How long to sleep before another look at what another process makes; more with each look.
constexpr std::chrono::milliseconds kFirstNap{1}, kLongestNap{20};
constexpr int kAttempts = 5;

// Unique among threads by the counter, among processes by the id, among hosts and containers that share a directory by
// the clock's nanoseconds (the file is opened with O_EXCL in any case).
std::string temporaryName() {
  static std::atomic<uint64_t> serial{0};
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return fmt::format("{}{}.{}.{}", kTemporaryPrefix, getpid(), serial.fetch_add(1),
                     static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec);
}

} // namespace

Directory::Directory(std::string path, Log& log, Counters& counters, NvrtcVersion nvrtcVersion, uint64_t bound,
                     Ranges ranges)
    : path_(std::move(path)), log_(log), counters_(counters), nvrtcVersion_(std::move(nvrtcVersion)),
      bound_(bound, counters), ranges_(ranges) {}

void Directory::fail(const char* kind, const std::string& text) {
  Counters::raise(counters_.cacheFailures);
  log_.warnOnce(kind, text);
}

// A kernel's image is code that this process runs: it is taken only from where nobody else could have put it.
void Directory::failToOpen(const Status& why) {
  if (why.code() == CERMET_UNSUPPORTED)
    fail("untrusted cache directory", fmt::format("the cache directory {}; it is not used", why.message()));
  else
    fail("cache directory not writable",
         fmt::format("the cache directory {}; what is compiled stays in memory", why.message()));
}

std::optional<Folder> Directory::open(EntryKind kind, Complaints complaints) {
  if (path_.empty())
    return std::nullopt;
  const Result<Folder> whole = Folder::open(path_, false);
  Result<Folder> folder = whole.ok() ? whole->inner(name(kind), false) : whole.status();
  if (folder.ok())
    return std::move(*folder);
  if (folder.status().code() != CERMET_NOT_FOUND && complaints == Complaints::Yes)
    failToOpen(folder.status());
  return std::nullopt;
}

std::optional<Entry> Directory::read(EntryKind kind, const std::string& key) {
  return read(kind, key, Complaints::Yes);
}

std::optional<Entry> Directory::read(EntryKind kind, const std::string& key, Complaints complaints) {
  const std::optional<Folder> folder = open(kind, complaints);
  if (!folder)
    return std::nullopt;
  std::optional<Entry> found = readFile(*folder, kind, entryFileName(key), key, complaints);
  if (found || kind != EntryKind::Kernel)
    return found;
  const int version = nvrtcVersion();
  return version > 0 ? readFile(*folder, kind, entryFileName(key, version), key, complaints)
                     : readOfAnyNvrtc(*folder, key, complaints);
}

std::optional<Entry> Directory::readOfAnyNvrtc(const std::string& key) {
  const std::optional<Folder> folder = open(EntryKind::Kernel, Complaints::Yes);
  return folder ? readOfAnyNvrtc(*folder, key, Complaints::Yes) : std::nullopt;
}

std::optional<Entry> Directory::readOfAnyNvrtc(const Folder& folder, const std::string& key, Complaints complaints) {
  std::set<int, std::greater<>> versions; // the newest first
  const std::string stem = entryFileName(key).substr(0, kHashDigits);
  for (const std::string& name : folder.names())
    if (const int version = name.starts_with(stem) ? nvrtcVersionIn(name, key) : -1; version > 0)
      versions.insert(version);
  for (int version : versions)
    if (std::optional<Entry> found = readFile(folder, EntryKind::Kernel, entryFileName(key, version), key, complaints))
      return found;
  return std::nullopt;
}

std::optional<Entry> Directory::readFile(const Folder& folder, EntryKind kind, const std::string& leaf,
                                         const std::string& key, Complaints complaints) {
  struct stat state {};
  const Result<std::string> bytes = folder.read(leaf, &state);
  if (!bytes.ok()) {
    if (complaints == Complaints::No)
      return std::nullopt;
    if (bytes.status().code() == CERMET_UNSUPPORTED)
      fail("untrusted cache entry", fmt::format("the cache entry {}; it is not used", bytes.status().message()));
    else if (bytes.status().code() != CERMET_NOT_FOUND)
      fail("cache entry not readable", fmt::format("a cache entry cannot be read: {}", bytes.status().message()));
    return std::nullopt;
  }
  Result<Entry> entry = decode(*bytes);
  const Status problem = entry.ok() ? checkPayload(*entry) : entry.status();
  if (!problem.ok()) {
    moveAside(folder, leaf, problem.message());
    return std::nullopt;
  }
  // Two keys may share a hash, and a file may have been renamed by hand.
  if (entry->kind != kind || entry->key != key) {
    if (complaints == Complaints::Yes)
      fail("foreign cache entry",
           fmt::format("the cache entry '{}/{}' is of another key; it is not used", folder.path(), leaf));
    return std::nullopt;
  }
  Counters::raise(counters_.cacheBytesRead, bytes->size());
  if (time(nullptr) - state.st_mtime > kUsedSeconds)
    folder.touch(leaf);
  entry->file = leaf;
  return std::move(*entry);
}

void Directory::moveAside(EntryKind kind, const std::string& file, const std::string& why) {
  if (const std::optional<Folder> folder = open(kind, Complaints::Yes))
    moveAside(*folder, file, why);
}

// Moved, not removed: someone may want to look at it, for some days from now, and the next write needs the name.
void Directory::moveAside(const Folder& folder, const std::string& leaf, const std::string& why) {
  const std::string aside = leaf + std::string(kBadSuffix);
  const bool moved = folder.rename(leaf, aside) == 0;
  folder.touch(aside);
  fail("damaged cache entry", fmt::format("the cache entry '{}/{}' is not used: {}{}", folder.path(), leaf, why,
                                          moved ? " (moved aside as .bad)" : ""));
}

Directory::Turn Directory::turn(EntryKind kind, const std::string& key,
                                const std::function<bool(const Entry&)>& wants) {
  if (path_.empty() || takesNothing_)
    return {};
  const Result<Folder> whole = Folder::open(path_, true); // this may be the first process of all
  if (!whole.ok())
    return {}; // as write() will say
  const std::string file = entryFileName(key, kind == EntryKind::Kernel ? nvrtcVersion() : 0);
  FileLock lock(whole->openForLocks(kLockFile), makersByte(kind, file));
  const auto began = std::chrono::steady_clock::now();
  const auto deadline = began + makerPatience.load();
  std::optional<Range> waiting;
  for (auto nap = kFirstNap;; nap = std::min(2 * nap, kLongestNap)) {
    const FileLock::Answer answer = lock.tryTake();
    if (answer == FileLock::Answer::Refused)
      return {};
    // Read behind the lock: who had it may have written since the caller looked.
    std::optional<Entry> entry = read(kind, key, Complaints::No);
    const bool here = entry && wants(*entry), late = std::chrono::steady_clock::now() > deadline;
    if (here || late || answer == FileLock::Answer::Taken) {
      if (waiting)
        Counters::raise(counters_.cacheWaitMicroseconds,
                        static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(
                                                  std::chrono::steady_clock::now() - began)
                                                  .count()));
      if (here)
        return {std::move(entry), std::nullopt};
      if (answer == FileLock::Answer::Taken)
        return {std::nullopt, std::move(lock)};
      log_.warnOnce("slow maker",
                    fmt::format("another process has been making an entry of the cache directory '{}' for "
                                "{} s; it is made here too",
                                path_, std::chrono::duration<double>(makerPatience.load()).count()));
      return {};
    }
    if (!waiting) {
      Counters::raise(counters_.cacheWaits);
      waiting.emplace(ranges_, RangeKind::Wait, [&] { return title({kind, key, "", 0, ""}); });
    }
    std::this_thread::sleep_for(nap);
  }
}

Status Directory::publish(const Entry& entry, const std::string& bytes) {
  const Folder whole = CERMET_TRY(Folder::open(path_, true));
  const Folder folder = CERMET_TRY(whole.inner(name(entry.kind), true));
  if (!bound_.makeRoom(whole, bytes.size()))
    return error(CERMET_INTERNAL, "'{}' cannot take an entry of {} bytes within its bound (CERMET_CACHE_BYTES)", path_,
                 bytes.size());
  // Under the version that this process would look for, so that it finds what it wrote, however that was told.
  const int version = entry.nvrtcVersion > 0 && nvrtcVersion() > 0 ? nvrtcVersion() : entry.nvrtcVersion;
  const int failure = folder.publish(temporaryName(), entryFileName(entry.key, version), bytes);
  if (failure == 0)
    return {};
  return error(failure == ENOENT ? CERMET_NOT_FOUND : CERMET_INTERNAL, "'{}' cannot be written: {}", folder.path(),
               std::generic_category().message(failure));
}

void Directory::write(const Entry& entry) {
  if (path_.empty())
    return;
  const std::string bytes = encode(entry);
  // Somebody may remove the directory, or what is being written, at any moment.
  Status failure = publish(entry, bytes);
  for (int attempt = 1; failure.code() == CERMET_NOT_FOUND && attempt < kAttempts; ++attempt)
    failure = publish(entry, bytes);
  takesNothing_ = !failure.ok();
  if (!failure.ok())
    return failToOpen(failure);
  Counters::raise(counters_.cacheBytesWritten, bytes.size());
}

} // namespace cermet
