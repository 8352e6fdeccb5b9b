#include "runtime/cache/Directory.h"
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace cermet {

namespace {

constexpr std::string_view kTemporaryPrefix = ".tmp.";
constexpr std::string_view kBadSuffix = ".bad";

constexpr std::string_view kGainSuffix = ".json";
constexpr const char* kGainFolder = "gain"; // of the torch frontend's timings

// True for what a broken process left or was moved aside, false for an entry; nothing for what is not ours.
std::optional<bool> leftoverOrEntry(std::string_view name, std::string_view suffix) {
  if (name.starts_with(kTemporaryPrefix) || name.ends_with(std::string(suffix) + std::string(kBadSuffix)))
    return true;
  return name.ends_with(suffix) ? std::optional(false) : std::nullopt;
}

// Long after whoever wrote it is done, or whoever wanted to look at it has.
constexpr time_t kTemporarySeconds = 60 * 60, kBadSeconds = 7 * 24 * 60 * 60;

bool isOld(const Folder::Item& item) {
  const bool temporary = std::string_view(item.name).starts_with(kTemporaryPrefix);
  return time(nullptr) - item.state.st_mtime > (temporary ? kTemporarySeconds : kBadSeconds);
}

// The folders of a cache directory, with what ends the name of an entry in each.
void forEachFolder(const std::function<void(const char* folder, std::string_view suffix)>& visit) {
  for (EntryKind kind : kEntryKinds)
    visit(name(kind), kEntrySuffix);
  visit(kGainFolder, kGainSuffix);
}

void sweep(const Folder& cache) {
  forEachFolder([&](const char* name, std::string_view suffix) {
    if (const Result<Folder> folder = cache.inner(name, false); folder.ok())
      for (const Folder::Item& item : folder->list())
        if (leftoverOrEntry(item.name, suffix).value_or(false) && S_ISREG(item.state.st_mode) && isOld(item))
          folder->remove(item.name);
  });
}

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

Directory::Directory(std::string path, Log& log, Counters& counters, NvrtcVersion nvrtcVersion)
    : path_(std::move(path)), log_(log), counters_(counters), nvrtcVersion_(std::move(nvrtcVersion)) {}

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

std::optional<Folder> Directory::open(EntryKind kind) {
  if (path_.empty())
    return std::nullopt;
  const Result<Folder> whole = Folder::open(path_, false);
  Result<Folder> folder = whole.ok() ? whole->inner(name(kind), false) : whole.status();
  if (folder.ok())
    return std::move(*folder);
  if (folder.status().code() != CERMET_NOT_FOUND)
    failToOpen(folder.status());
  return std::nullopt;
}

std::optional<Entry> Directory::read(EntryKind kind, const std::string& key) {
  const std::optional<Folder> folder = open(kind);
  if (!folder)
    return std::nullopt;
  std::optional<Entry> found = readFile(*folder, kind, entryFileName(key), key);
  if (found || kind != EntryKind::Kernel)
    return found;
  const int version = nvrtcVersion();
  return version > 0 ? readFile(*folder, kind, entryFileName(key, version), key) : readOfAnyNvrtc(*folder, key);
}

std::optional<Entry> Directory::readOfAnyNvrtc(const std::string& key) {
  const std::optional<Folder> folder = open(EntryKind::Kernel);
  return folder ? readOfAnyNvrtc(*folder, key) : std::nullopt;
}

std::optional<Entry> Directory::readOfAnyNvrtc(const Folder& folder, const std::string& key) {
  std::set<int, std::greater<>> versions; // the newest first
  for (const Folder::Item& item : folder.list())
    if (const int version = nvrtcVersionIn(item.name, key); version > 0)
      versions.insert(version);
  for (int version : versions)
    if (std::optional<Entry> found = readFile(folder, EntryKind::Kernel, entryFileName(key, version), key))
      return found;
  return std::nullopt;
}

std::optional<Entry> Directory::readFile(const Folder& folder, EntryKind kind, const std::string& leaf,
                                         const std::string& key) {
  const Result<std::string> bytes = folder.read(leaf);
  if (!bytes.ok()) {
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
    fail("foreign cache entry",
         fmt::format("the cache entry '{}/{}' is of another key; it is not used", folder.path(), leaf));
    return std::nullopt;
  }
  entry->file = leaf;
  return std::move(*entry);
}

void Directory::moveAside(EntryKind kind, const std::string& file, const std::string& why) {
  if (const std::optional<Folder> folder = open(kind))
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

void Directory::write(const Entry& entry) {
  if (path_.empty())
    return;
  const Result<Folder> whole = Folder::open(path_, true);
  const Result<Folder> folder = whole.ok() ? whole->inner(name(entry.kind), true) : whole.status();
  if (!folder.ok())
    return failToOpen(folder.status());
  std::call_once(swept_, [&] { sweep(*whole); });
  // Under the version that this process would look for, so that it finds what it wrote, however that was told.
  const int version = entry.nvrtcVersion > 0 && nvrtcVersion() > 0 ? nvrtcVersion() : entry.nvrtcVersion;
  if (const int failure = folder->publish(temporaryName(), entryFileName(entry.key, version), encode(entry)))
    failToOpen(
        error(CERMET_INTERNAL, "'{}' cannot be written: {}", folder->path(), std::generic_category().message(failure)));
}

namespace {

void readEntry(StoredFile& file, EntryKind kind, const std::string& bytes,
               const std::function<Status(const Entry&)>& check) {
  Result<Entry> entry = decode(bytes);
  if (!entry.ok()) {
    file.problem = entry.status().message();
  } else if (!file.leftover && (entry->kind != kind ||
                                nvrtcVersionIn(std::filesystem::path(file.path).filename().string(), entry->key) < 0)) {
    file.problem = "its name is not that of its key";
  } else if (const Status problem = file.leftover ? Status() : check(*entry); !problem.ok()) {
    file.problem = problem.message();
  } else {
    entry->payload.clear();
    file.entry = std::move(*entry);
  }
}

// What the torch frontend's tuning.py writes; its key's third line is the device.
void readTiming(StoredFile& file, const std::string& bytes) {
  try {
    const nlohmann::json kept = nlohmann::json::parse(bytes);
    const std::string key = kept.at("key");
    const size_t device = key.find('\n', key.find('\n') + 1) + 1;
    file.timing =
        fmt::format("{}: {:.1f} us fused, {:.1f} us as it was", key.substr(device, key.find('\n', device) - device),
                    kept.at("ours").get<double>(), kept.at("unfused").get<double>());
  } catch (const nlohmann::json::exception&) {
    file.problem = "it is not the JSON of a timing";
  }
}

void listFiles(std::vector<StoredFile>& files, const Folder& cache, const char* kind, std::string_view suffix,
               const std::function<void(StoredFile&, const std::string&)>& read) {
  const Result<Folder> folder = cache.inner(kind, false);
  if (!folder.ok() && folder.status().code() == CERMET_NOT_FOUND)
    return;
  if (!folder.ok()) {
    StoredFile file;
    file.path = fmt::format("{}/{}", cache.path(), kind);
    file.problem = folder.status().message();
    files.push_back(std::move(file));
    return;
  }
  for (const Folder::Item& item : folder->list()) {
    const std::optional<bool> leftover = leftoverOrEntry(item.name, suffix);
    if (!leftover)
      continue; // not ours
    StoredFile file;
    file.path = fmt::format("{}/{}", folder->path(), item.name);
    file.leftover = *leftover;
    const Result<std::string> bytes = folder->read(item.name);
    if (!bytes.ok() && bytes.status().code() == CERMET_NOT_FOUND)
      continue; // another process removed it meanwhile
    file.bytes = bytes.ok() ? bytes->size() : 0;
    if (bytes.ok())
      read(file, *bytes);
    else
      file.problem = bytes.status().message();
    files.push_back(std::move(file));
  }
}

Result<Folder> openCache(const std::string& path) {
  Result<Folder> cache = Folder::open(path, false);
  if (cache.ok() || cache.status().code() != CERMET_NOT_FOUND)
    return cache;
  return error(CERMET_NOT_FOUND, "there is no cache directory '{}'", path);
}

void clearFolder(Cleared& cleared, const Folder& cache, const char* name, std::string_view suffix) {
  const Result<Folder> folder = cache.inner(name, false);
  if (!folder.ok()) {
    if (folder.status().code() != CERMET_NOT_FOUND)
      cleared.problems.push_back(folder.status().message());
    return;
  }
  for (const Folder::Item& item : folder->list()) {
    if (!leftoverOrEntry(item.name, suffix))
      continue; // not ours
    const int failure = folder->remove(item.name);
    if (failure == 0) {
      ++cleared.files;
      cleared.bytes += static_cast<uint64_t>(item.state.st_size);
    } else if (failure != ENOENT) { // which another process removed
      cleared.problems.push_back(
          fmt::format("'{}/{}': {}", folder->path(), item.name, std::generic_category().message(failure)));
    }
  }
}

} // namespace

Result<Cleared> clearDirectory(const std::string& path) {
  const Folder cache = CERMET_TRY(openCache(path));
  Cleared cleared;
  forEachFolder([&](const char* folder, std::string_view suffix) { clearFolder(cleared, cache, folder, suffix); });
  return cleared;
}

Result<std::vector<StoredFile>> listDirectory(const std::string& path,
                                              const std::function<Status(const Entry&)>& check) {
  const Folder cache = CERMET_TRY(openCache(path));
  std::vector<StoredFile> files;
  for (EntryKind kind : kEntryKinds)
    listFiles(files, cache, name(kind), kEntrySuffix,
              [&](StoredFile& file, const std::string& bytes) { readEntry(file, kind, bytes, check); });
  listFiles(files, cache, kGainFolder, kGainSuffix, readTiming);
  std::sort(files.begin(), files.end(), [](const StoredFile& a, const StoredFile& b) { return a.path < b.path; });
  return files;
}

} // namespace cermet
