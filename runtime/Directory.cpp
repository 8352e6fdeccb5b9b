#include "runtime/Directory.h"
#include "runtime/File.h"
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <sys/stat.h>
#include <unistd.h>

namespace cermet {

namespace {

constexpr std::string_view kTemporaryPrefix = ".tmp.";
constexpr std::string_view kBadSuffix = ".bad";

std::string errorText(int number) {
  return std::generic_category().message(number);
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

std::string Directory::fileOf(EntryKind kind, const std::string& leaf) const {
  return fmt::format("{}/{}/{}", path_, name(kind), leaf);
}

void Directory::fail(const char* kind, const std::string& text) {
  Counters::raise(counters_.cacheFailures);
  log_.warnOnce(kind, text);
}

// A kernel's image is code that this process runs: it is taken only from where nobody else could have put it.
bool Directory::trusts(const std::string& directory) {
  struct stat state;
  if (stat(directory.c_str(), &state) != 0)
    return false;
  if (S_ISDIR(state.st_mode) && (state.st_uid == geteuid() || state.st_uid == 0) && !(state.st_mode & S_IWOTH))
    return true;
  fail("untrusted cache directory",
       fmt::format("the cache directory '{}' is not a directory that only this user can write; it is not used",
                   directory));
  return false;
}

std::optional<Entry> Directory::read(EntryKind kind, const std::string& key) {
  std::optional<Entry> found = readFile(kind, entryFileName(key), key);
  if (found || kind != EntryKind::Kernel)
    return found;
  const int version = nvrtcVersion();
  return version > 0 ? readFile(kind, entryFileName(key, version), key) : readOfAnyNvrtc(key);
}

std::optional<Entry> Directory::readOfAnyNvrtc(const std::string& key) {
  std::set<int, std::greater<>> versions; // the newest first
  std::error_code failure;
  std::filesystem::directory_iterator file(fmt::format("{}/{}", path_, name(EntryKind::Kernel)), failure), end;
  for (; !failure && file != end; file.increment(failure))
    versions.insert(nvrtcVersionIn(file->path().filename().string(), key));
  for (int version : versions)
    if (version > 0)
      if (std::optional<Entry> found = readFile(EntryKind::Kernel, entryFileName(key, version), key))
        return found;
  return std::nullopt;
}

std::optional<Entry> Directory::readFile(EntryKind kind, const std::string& leaf, const std::string& key) {
  if (path_.empty())
    return std::nullopt;
  const std::string file = fileOf(kind, leaf);
  Result<std::string> bytes = cermet::readFile(file);
  if (!bytes.ok()) {
    if (bytes.status().code() != CERMET_NOT_FOUND)
      fail("cache entry not readable", fmt::format("a cache entry cannot be read: {}", bytes.status().message()));
    return std::nullopt;
  }
  if (!trusts(path_) || !trusts(fmt::format("{}/{}", path_, name(kind))))
    return std::nullopt;
  Result<Entry> entry = decode(*bytes);
  const Status problem = entry.ok() ? checkPayload(*entry) : entry.status();
  if (!problem.ok()) {
    moveAside(kind, leaf, problem.message());
    return std::nullopt;
  }
  // Two keys may share a hash, and a file may have been renamed by hand.
  if (entry->kind != kind || entry->key != key) {
    fail("foreign cache entry", fmt::format("the cache entry '{}' is of another key; it is not used", file));
    return std::nullopt;
  }
  entry->file = leaf;
  return std::move(*entry);
}

// Moved, not removed: someone may want to look at it, and the next write needs the name.
void Directory::moveAside(EntryKind kind, const std::string& leaf, const std::string& why) {
  const std::string file = fileOf(kind, leaf);
  const bool moved = rename(file.c_str(), (file + std::string(kBadSuffix)).c_str()) == 0;
  fail("damaged cache entry",
       fmt::format("the cache entry '{}' is not used: {}{}", file, why, moved ? " (moved aside as .bad)" : ""));
}

void Directory::write(const Entry& entry) {
  if (path_.empty())
    return;
  const std::string directory = fmt::format("{}/{}", path_, name(entry.kind));
  if (int failure = makeDirectories(directory)) {
    fail("cache directory not writable",
         fmt::format("the cache directory '{}' cannot be made: {}; what is compiled stays in memory", directory,
                     errorText(failure)));
    return;
  }
  if (!trusts(path_) || !trusts(directory))
    return;
  // Under the version that this process would look for, so that it finds what it wrote, however that was told.
  const int version = entry.nvrtcVersion > 0 && nvrtcVersion() > 0 ? nvrtcVersion() : entry.nvrtcVersion;
  const std::string leaf = entryFileName(entry.key, version);
  const std::string temporary = fmt::format("{}/{}", directory, temporaryName());
  int failure = writeFile(temporary, encode(entry));
  if (!failure && rename(temporary.c_str(), fileOf(entry.kind, leaf).c_str()) != 0)
    failure = errno;
  if (!failure)
    return;
  unlink(temporary.c_str());
  fail("cache directory not writable",
       fmt::format("the cache directory '{}' cannot be written: {}; what is compiled stays in memory", directory,
                   errorText(failure)));
}

namespace {

void readEntry(StoredFile& file, EntryKind kind, const std::string& bytes,
               const std::function<Status(const Entry&)>& check) {
  Result<Entry> entry = decode(bytes);
  if (!entry.ok()) {
    file.problem = entry.status().message();
  } else if (!file.leftover &&
             (entry->kind != kind ||
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
    file.timing = fmt::format("{}: {:.1f} us fused, {:.1f} us as it was",
                              key.substr(device, key.find('\n', device) - device), kept.at("ours").get<double>(),
                              kept.at("unfused").get<double>());
  } catch (const nlohmann::json::exception&) {
    file.problem = "it is not the JSON of a timing";
  }
}

void listFiles(std::vector<StoredFile>& files, const std::string& directory, std::string_view suffix,
               const std::function<void(StoredFile&, const std::string&)>& read) {
  std::error_code failure;
  std::filesystem::directory_iterator iterator(directory, failure), end;
  for (; !failure && iterator != end; iterator.increment(failure)) {
    StoredFile file;
    file.path = iterator->path().string();
    const std::string leaf = iterator->path().filename().string();
    const bool temporary = leaf.starts_with(kTemporaryPrefix);
    file.leftover = temporary || leaf.ends_with(std::string(suffix) + std::string(kBadSuffix));
    if (!file.leftover && !leaf.ends_with(suffix))
      continue; // not ours
    const Result<std::string> bytes = readFile(file.path);
    file.bytes = bytes.ok() ? bytes->size() : 0;
    if (bytes.ok())
      read(file, *bytes);
    else
      file.problem = bytes.status().message();
    files.push_back(std::move(file));
  }
}

} // namespace

Result<std::vector<StoredFile>> listDirectory(const std::string& path,
                                              const std::function<Status(const Entry&)>& check) {
  std::vector<StoredFile> files;
  std::error_code failure;
  if (!std::filesystem::is_directory(path, failure))
    return error(CERMET_NOT_FOUND, "there is no cache directory '{}'", path);
  for (EntryKind kind : kEntryKinds)
    listFiles(files, fmt::format("{}/{}", path, name(kind)), kEntrySuffix,
              [&](StoredFile& file, const std::string& bytes) { readEntry(file, kind, bytes, check); });
  listFiles(files, path + "/gain", ".json", readTiming);
  std::sort(files.begin(), files.end(), [](const StoredFile& a, const StoredFile& b) { return a.path < b.path; });
  return files;
}

} // namespace cermet
