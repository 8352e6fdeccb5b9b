// Layout: what lies where in a cache directory (docs/cache-format.md): the folders, whose each file is, and the bytes
// of the lock file that stand for what is done there.
#pragma once
#include "runtime/cache/Entry.h"
#include "runtime/support/File.h"
#include <optional>
#include <string>
#include <string_view>

namespace cermet {

constexpr std::string_view kTemporaryPrefix = ".tmp."; // of a file that is being written
constexpr std::string_view kBadSuffix = ".bad";        // of an entry that was moved aside
constexpr const char* kLockFile = ".lock";

struct CacheFolder {
  const char* name;
  std::string_view suffix; // what ends the name of what is kept in it
};
constexpr const char* kGainFolder = "gain"; // of the torch frontend's timings
constexpr CacheFolder kCacheFolders[] = {{"plan", kEntrySuffix},
                                         {"match", kEntrySuffix},
                                         {"gradient", kEntrySuffix},
                                         {"kernel", kEntrySuffix},
                                         {kGainFolder, ".json"}};

enum class FileRole { Kept, Temporary, Aside };
// Nothing for what is not ours.
std::optional<FileRole> roleOf(std::string_view name, std::string_view suffix);

// Whether a temporary file's writer is gone: nobody has it locked and it is no new one, or it is an hour old.
bool isAbandoned(const Folder& folder, const Folder::Item& temporary);

// Bytes of the lock file: of whoever makes the entry that has this name in its kind's folder, and of whoever removes.
uint64_t makersByte(EntryKind kind, std::string_view fileName);
constexpr uint64_t kRemoversByte = uint64_t(1) << 62; // above all others

} // namespace cermet
