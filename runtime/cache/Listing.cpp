#include "runtime/cache/Listing.h"
#include "runtime/cache/Layout.h"
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

namespace cermet {

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
    const std::optional<FileRole> role = roleOf(item.name, suffix);
    if (!role)
      continue; // not ours
    StoredFile file;
    file.path = fmt::format("{}/{}", folder->path(), item.name);
    file.leftover = *role != FileRole::Kept;
    file.used = item.state.st_mtime;
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

void clearFolder(Cleared& cleared, const Folder& cache, const CacheFolder& kind) {
  const Result<Folder> folder = cache.inner(kind.name, false);
  if (!folder.ok()) {
    if (folder.status().code() != CERMET_NOT_FOUND)
      cleared.problems.push_back(folder.status().message());
    return;
  }
  for (const Folder::Item& item : folder->list()) {
    const std::optional<FileRole> role = roleOf(item.name, kind.suffix);
    if (!role)
      continue; // not ours
    if (role == FileRole::Temporary && folder->isLocked(item.name).value_or(false))
      continue; // its writer lives, and would only write it again
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
  for (const CacheFolder& kind : kCacheFolders)
    clearFolder(cleared, cache, kind);
  return cleared;
}

Result<std::vector<StoredFile>> listDirectory(const std::string& path,
                                              const std::function<Status(const Entry&)>& check) {
  const Folder cache = CERMET_TRY(openCache(path));
  std::vector<StoredFile> files;
  for (EntryKind kind : kEntryKinds)
    listFiles(files, cache, name(kind), kEntrySuffix,
              [&](StoredFile& file, const std::string& bytes) { readEntry(file, kind, bytes, check); });
  listFiles(files, cache, kGainFolder, kCacheFolders[std::size(kEntryKinds)].suffix, readTiming);
  std::sort(files.begin(), files.end(), [](const StoredFile& a, const StoredFile& b) { return a.path < b.path; });
  return files;
}

} // namespace cermet
