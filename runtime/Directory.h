// Directory: the cache on disk. One file is one immutable entry, published by rename, so a reader sees all of it or
// none. It never locks and never fails a caller: what cannot be read is a miss, what cannot be written stays in memory,
// and both raise a counter and give one warning per cause. Any number of threads and processes may share a directory.
#pragma once
#include "runtime/Counters.h"
#include "runtime/Entry.h"
#include "runtime/Log.h"
#include <optional>
#include <string>
#include <vector>

namespace cermet {

class Directory {
public:
  // `path` "" is a directory that holds nothing and takes nothing. Nothing is touched before the first read or write.
  Directory(std::string path, Log& log, Counters& counters);

  // The entry with exactly this kind and key. One that is damaged is moved aside as `.bad`.
  std::optional<Entry> read(EntryKind kind, const std::string& key);
  void write(const Entry& entry);
  const std::string& path() const { return path_; }

private:
  void fail(const char* kind, const std::string& text);
  bool trusts(const std::string& directory);
  std::string fileOf(EntryKind kind, const std::string& key) const;

  const std::string path_;
  Log& log_;
  Counters& counters_;
};

// For the tool: what a cache directory holds.
struct StoredFile {
  std::string path;
  uint64_t bytes = 0;
  bool leftover = false;      // a temporary file of a process that ended, or an entry moved aside
  std::optional<Entry> entry; // without its payload; empty where `problem` says why, and beside a timing
  std::string timing;         // of a file that the torch frontend keeps here: device and microseconds
  std::string problem;
};
Result<std::vector<StoredFile>> listDirectory(const std::string& path);

} // namespace cermet
