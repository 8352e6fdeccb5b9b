#include "frontends/tools/Commands.h"
#include "frontends/tools/Entries.h"
#include "runtime/cache/Bound.h"
#include "runtime/cache/Listing.h"
#include "runtime/support/File.h"
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <map>
#include <set>

namespace cermet::tools {

namespace {

// A directory that is not there or is not used: the command can be mended.
Status badInput(const Status& status) {
  return error(CERMET_INVALID_ARGUMENT, "{}", status.message());
}

std::string_view nameOf(const StoredFile& file) {
  return std::string_view(file.path).substr(file.path.rfind('/') + 1);
}

Status clear(const std::string& directory) {
  const auto cleared = clearDirectory(directory);
  if (!cleared.ok())
    return badInput(cleared.status());
  fmt::print("{}: removed {} files, {} bytes\n", directory, cleared->files, cleared->bytes);
  for (const std::string& problem : cleared->problems)
    fmt::print("{}\n", problem);
  if (!cleared->problems.empty())
    return error(CERMET_INTERNAL, "{} could not be removed; remove what is in the way by hand",
                 cleared->problems.size());
  return {};
}

Status collect(const std::string& directory, uint64_t bytes) {
  const Result<Folder> cache = Folder::open(directory, false);
  if (!cache.ok())
    return badInput(cache.status());
  const Removed removed = trim(*cache, bytes == 0 ? UINT64_MAX : bytes);
  fmt::print("{}: removed {} files, {} bytes; {} bytes are left{}\n", directory, removed.files, removed.bytes,
             removed.left, bytes == 0 ? "" : fmt::format(" of at most {}", bytes));
  if (bytes > 0 && removed.left > bytes)
    return error(CERMET_INTERNAL, "{} bytes more than the bound could not be removed, or are being written",
                 removed.left - bytes);
  return {};
}

Status list(const std::string& directory, const std::vector<StoredFile>& files, CacheAction action) {
  uint64_t bytes = 0;
  size_t entries = 0, damaged = 0, leftovers = 0;
  for (const StoredFile& file : files) {
    bytes += file.bytes;
    leftovers += file.leftover;
    entries += !file.leftover;
    const bool bad = !file.leftover && !file.problem.empty();
    damaged += bad;
    if (bad || (file.leftover && action == CacheAction::Verify))
      fmt::print("{}: {}\n", file.path, file.leftover ? "left by a process that ended, or moved aside" : file.problem);
    else if (action == CacheAction::List && !file.timing.empty())
      fmt::print("{:<9} {:>9}  {}\n", "gain", file.bytes, file.timing);
    else if (action == CacheAction::List && file.entry)
      printLine(*file.entry, file.bytes, nameOf(file));
  }
  fmt::print("{}: {} entries, {} bytes, {} damaged, {} left over\n", directory, entries, bytes, damaged, leftovers);
  if (damaged > 0)
    return error(CERMET_INTERNAL, "{} of {} entries are damaged; they are ignored and replaced when next needed",
                 damaged, entries);
  return {};
}

Status show(const std::vector<StoredFile>& files, const std::string& beginning) {
  std::vector<const StoredFile*> found;
  for (const StoredFile& file : files)
    if (!file.leftover && nameOf(file).starts_with(beginning))
      found.push_back(&file);
  if (found.size() != 1)
    return error(CERMET_INVALID_ARGUMENT,
                 "{} entries have names that begin with '{}', expected one; cermet cache ls has their names",
                 found.size(), beginning);
  const StoredFile& file = *found.front();
  const std::string bytes = CERMET_TRY(readFile(file.path));
  if (!file.timing.empty()) {
    fmt::print("{}\n{}\n{}\n", file.path, file.timing, bytes);
    return {};
  }
  const Entry entry = CERMET_TRY(decode(bytes));
  printWhole(entry, bytes.size(), file.path);
  return file.problem.empty() ? Status() : error(CERMET_INTERNAL, "{}: {}", file.path, file.problem);
}

std::string day(int64_t seconds) {
  const time_t time = seconds;
  tm parts{};
  char text[32] = "";
  if (gmtime_r(&time, &parts))
    std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M UTC", &parts);
  return text;
}

void printStatistics(const std::string& directory, const std::vector<StoredFile>& files, uint64_t bound) {
  struct Sum {
    size_t files = 0;
    uint64_t bytes = 0;
  };
  std::map<std::string, Sum> kinds;
  std::set<std::string_view> builds;
  uint64_t bytes = 0;
  int64_t oldest = INT64_MAX, newest = 0;
  for (const StoredFile& file : files) {
    const std::string kind = file.leftover           ? "left over"
                             : !file.timing.empty()  ? "gain"
                             : !file.problem.empty() ? "damaged"
                                                     : name(file.entry->kind);
    ++kinds[kind].files;
    kinds[kind].bytes += file.bytes;
    bytes += file.bytes;
    oldest = std::min(oldest, file.used);
    newest = std::max(newest, file.used);
    if (file.entry)
      builds.insert(std::string_view(file.entry->key).substr(0, file.entry->key.find('\n')));
  }
  fmt::print("{}\n", directory);
  for (const auto& [kind, sum] : kinds)
    fmt::print("  {:<9} {:>9} files {:>12} bytes\n", kind, sum.files, sum.bytes);
  fmt::print("  {:<9} {:>9} files {:>12} bytes{}\n", "all", files.size(), bytes,
             bound == 0 ? ", no bound" : fmt::format(" of at most {}", bound));
  if (!files.empty())
    fmt::print("  used last from {} to {}, by {} build{}\n", day(oldest), day(newest), builds.size(),
               builds.size() == 1 ? "" : "s");
}

} // namespace

Status cacheCommand(const Common& common, const CacheOptions& options) {
  const auto context = CERMET_TRY(makeContext(common));
  const std::string& directory = context->config().cacheDirectory;
  if (directory.empty())
    return error(CERMET_INVALID_ARGUMENT, "there is no cache directory; set CERMET_CACHE_DIR or give --cache");
  const uint64_t bound = options.bytes.value_or(context->config().cacheBytes);
  if (options.action == CacheAction::Clear)
    return clear(directory);
  if (options.action == CacheAction::Collect)
    return collect(directory, bound);
  const auto files = options.action == CacheAction::Verify ? listDirectory(directory, checkPayloadThoroughly)
                                                           : listDirectory(directory);
  if (!files.ok())
    return badInput(files.status());
  if (options.action == CacheAction::Show)
    return show(*files, options.entry);
  if (options.action == CacheAction::Statistics) {
    printStatistics(directory, *files, bound);
    return {};
  }
  return list(directory, *files, options.action);
}

} // namespace cermet::tools
