// Listing: what a cache directory holds, for those who look after it.
#pragma once
#include "runtime/cache/Entry.h"
#include "runtime/cache/Payload.h"
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace cermet {

struct StoredFile {
  std::string path;
  uint64_t bytes = 0;
  int64_t used = 0;      // when it was written or last read, in seconds since 1970; of a reader's some minutes late
  bool leftover = false; // a temporary file of a process that ended, or an entry moved aside
  std::optional<Entry> entry; // without its payload; empty where `problem` says why, and beside a timing
  std::string timing;         // of a file that the torch frontend keeps here: device and microseconds
  std::string problem;
};
// `check` says what is wrong with an entry that is whole.
Result<std::vector<StoredFile>> listDirectory(const std::string& path,
                                              const std::function<Status(const Entry&)>& check = checkPayload);

struct Cleared {
  size_t files = 0;
  uint64_t bytes = 0;
  std::vector<std::string> problems; // one for each that is still there, with its path
};
// Removes what listDirectory() lists. What another process removes meanwhile is no problem.
Result<Cleared> clearDirectory(const std::string& path);

} // namespace cermet
