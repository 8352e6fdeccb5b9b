#include "frontends/tools/Commands.h"
#include "runtime/cache/Listing.h"
#include <cstdio>

namespace cermet::tools {

// What an entry is for, from its key: the line after the build's id, and the function or program that follows.
static std::string title(const Entry& entry) {
  std::string_view key = entry.key;
  key.remove_prefix(std::min(key.size(), key.find('\n') + 1));
  const auto lineWith = [&](std::string_view word) {
    const size_t at = key.find(word);
    return at == key.npos ? std::string_view() : key.substr(at, key.find_first_of("\n(", at) - at);
  };
  if (entry.kind == EntryKind::Kernel)
    return fmt::format("{} {}", lineWith("target "), lineWith("program "));
  return fmt::format("{} {}", key.substr(0, key.find('\n')), lineWith("@"));
}

// A directory that is not there or is not used: the command can be mended.
static Status badInput(const Status& status) {
  return error(CERMET_INVALID_ARGUMENT, "{}", status.message());
}

static Status clear(const std::string& directory) {
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

Status cacheCommand(const Common& common, CacheAction action) {
  const auto context = CERMET_TRY(makeContext(common));
  const std::string& directory = context->config().cacheDirectory;
  if (directory.empty())
    return error(CERMET_INVALID_ARGUMENT, "there is no cache directory; set CERMET_CACHE_DIR or give --cache");
  if (action == CacheAction::Clear)
    return clear(directory);
  const auto files =
      action == CacheAction::Verify ? listDirectory(directory, checkPayloadThoroughly) : listDirectory(directory);
  if (!files.ok())
    return badInput(files.status());
  uint64_t bytes = 0;
  size_t entries = 0, damaged = 0, leftovers = 0;
  for (const StoredFile& file : *files) {
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
      fmt::print("{:<9} {:>9}  {}\n", name(file.entry->kind), file.bytes, title(*file.entry));
  }
  fmt::print("{}: {} entries, {} bytes, {} damaged, {} left over\n", directory, entries, bytes, damaged, leftovers);
  if (damaged > 0)
    return error(CERMET_INTERNAL, "{} of {} entries are damaged; they are ignored and replaced when next needed",
                 damaged, entries);
  return {};
}

} // namespace cermet::tools
