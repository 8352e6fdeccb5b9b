#include "runtime/cache/Bound.h"
#include "runtime/cache/Layout.h"
#include "runtime/support/FileLock.h"
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <thread>
#include <vector>

namespace cermet {

namespace {

constexpr uint64_t kParts = 400;                   // a writer looks again after a part of the bound
constexpr uint64_t kFullPercent = 97;              // at which something must go, for the parts of other writers
constexpr uint64_t kLeftPercent = 90;              // of the bound, when something went
constexpr time_t kAsideSeconds = 7 * 24 * 60 * 60; // whoever wanted to look at it has
constexpr std::chrono::milliseconds kRemoverPatience{1000}, kTurn{5};

struct Stored {
  const Folder* folder;
  std::string name;
  timespec used;
  uint64_t bytes;
};

bool usedBefore(const Stored& a, const Stored& b) {
  if (a.used.tv_sec != b.used.tv_sec)
    return a.used.tv_sec < b.used.tv_sec;
  return a.used.tv_nsec < b.used.tv_nsec;
}

// What a directory holds, without what nobody needs, which is removed.
struct Survey {
  explicit Survey(const Folder& cache);

  std::vector<Folder> folders;
  std::vector<Stored> files; // that may go
  uint64_t bytes = 0;        // of all
  Removed removed;
};

Survey::Survey(const Folder& cache) {
  folders.reserve(std::size(kCacheFolders)); // files point to them
  for (const CacheFolder& kind : kCacheFolders) {
    Result<Folder> opened = cache.inner(kind.name, false);
    if (!opened.ok())
      continue;
    const Folder& folder = folders.emplace_back(std::move(*opened));
    for (const Folder::Item& item : folder.list()) {
      const std::optional<FileRole> role = roleOf(item.name, kind.suffix);
      if (!role || !S_ISREG(item.state.st_mode))
        continue;
      const uint64_t size = static_cast<uint64_t>(item.state.st_size);
      const bool old = role == FileRole::Aside && time(nullptr) - item.state.st_mtime > kAsideSeconds;
      if (old || (role == FileRole::Temporary && isAbandoned(folder, item))) {
        if (folder.remove(item.name) == 0) {
          ++removed.files;
          removed.bytes += size;
        }
        continue;
      }
      bytes += size;
      if (role != FileRole::Temporary) // which is being written
        files.push_back({&folder, item.name, item.state.st_mtim, size});
    }
  }
}

} // namespace

Removed trim(const Folder& cache, uint64_t most) {
  FileLock lock(cache.openForLocks(kLockFile), kRemoversByte);
  const auto deadline = std::chrono::steady_clock::now() + kRemoverPatience;
  while (lock.tryTake() == FileLock::Answer::Busy && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(kTurn);
  Survey survey(cache); // by now, after what another removed
  Removed removed = survey.removed;
  removed.left = survey.bytes;
  std::sort(survey.files.begin(), survey.files.end(), usedBefore);
  for (const Stored& file : survey.files) {
    if (removed.left <= most)
      break;
    // What another removed meanwhile is gone, too; what cannot be removed stays and others go.
    const int failure = file.folder->remove(file.name);
    if (failure == 0) {
      ++removed.files;
      removed.bytes += file.bytes;
    }
    if (failure == 0 || failure == ENOENT)
      removed.left -= file.bytes;
  }
  return removed;
}

bool Bound::makeRoom(const Folder& cache, uint64_t bytes) {
  const uint64_t written = written_.fetch_add(bytes) + bytes;
  const bool first = !looked_.exchange(true);
  if (most_ > 0 && bytes > most_ / 100 * kLeftPercent)
    return false;
  if (!first && (most_ == 0 || written <= most_ / kParts))
    return true;
  written_ = bytes;
  const Survey survey(cache);
  if (most_ > 0 && survey.bytes + bytes > most_ / 100 * kFullPercent) {
    const Removed removed = trim(cache, most_ / 100 * kLeftPercent - bytes);
    Counters::raise(counters_.cacheRemovals, removed.files);
  }
  return true;
}

} // namespace cermet
