#include "frontends/tools/Commands.h"
#include "runtime/Directory.h"
#include <cstdio>
#include <unistd.h>

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

Status cacheCommand(const Common& common, CacheAction action) {
  const auto context = makeContext(common);
  if (!context.ok())
    return context.status();
  const std::string& directory = (*context)->config().cacheDirectory;
  if (directory.empty())
    return error(CERMET_INVALID_ARGUMENT, "there is no cache directory; set CERMET_CACHE_DIR or give --cache");
  const auto files = action == CacheAction::Verify ? listDirectory(directory, checkPayloadThoroughly)
                                                   : listDirectory(directory);
  if (!files.ok())
    return error(CERMET_INVALID_ARGUMENT, "{}", files.status().message());
  uint64_t bytes = 0;
  size_t entries = 0, damaged = 0, leftovers = 0, removed = 0;
  for (const StoredFile& file : *files) {
    bytes += file.bytes;
    leftovers += file.leftover;
    entries += !file.leftover;
    const bool bad = !file.leftover && !file.problem.empty();
    damaged += bad;
    if (action == CacheAction::Clear) {
      if (unlink(file.path.c_str()) != 0)
        return error(CERMET_INTERNAL, "cannot remove '{}': {}", file.path, std::generic_category().message(errno));
      ++removed;
    } else if (bad || (file.leftover && action == CacheAction::Verify)) {
      fmt::print("{}: {}\n", file.path, file.leftover ? "left by a process that ended, or moved aside" : file.problem);
    } else if (action == CacheAction::List && !file.timing.empty()) {
      fmt::print("{:<9} {:>9}  {}\n", "gain", file.bytes, file.timing);
    } else if (action == CacheAction::List && file.entry) {
      fmt::print("{:<9} {:>9}  {}\n", name(file.entry->kind), file.bytes, title(*file.entry));
    }
  }
  if (action == CacheAction::Clear) {
    fmt::print("{}: removed {} files, {} bytes\n", directory, removed, bytes);
    return {};
  }
  fmt::print("{}: {} entries, {} bytes, {} damaged, {} left over\n", directory, entries, bytes, damaged, leftovers);
  if (damaged > 0)
    return error(CERMET_INTERNAL, "{} of {} entries are damaged; they are ignored and replaced when next needed",
                 damaged, entries);
  return {};
}

} // namespace cermet::tools
