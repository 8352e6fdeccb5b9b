// Directory: the cache on disk. One file is one immutable entry, published by rename, so a reader sees all of it or
// none. It never locks and never fails a caller: what cannot be read is a miss, what cannot be written stays in memory,
// and both raise a counter and give one warning per cause. Any number of threads and processes may share a directory.
// The first write also removes what processes left there long ago: temporary files and entries that were moved aside.
#pragma once
#include "runtime/support/Counters.h"
#include "runtime/cache/Entry.h"
#include "runtime/support/File.h"
#include "runtime/support/Log.h"
#include "runtime/cache/Payload.h"
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace cermet {

class Directory {
public:
  // The version of the NVRTC that this process would compile with, 0 where it cannot be told.
  using NvrtcVersion = std::function<int()>;
  // `path` "" is a directory that holds nothing and takes nothing. Nothing is touched before the first read or write.
  Directory(std::string path, Log& log, Counters& counters, NvrtcVersion nvrtcVersion = {});

  // The entry with exactly this kind and key. One that is damaged, or whose payload is not an answer of its kind
  // (Payload.h), is moved aside as `.bad`. Of a kernel that NVRTC made it is that of this process's version; of any
  // where that cannot be told.
  std::optional<Entry> read(EntryKind kind, const std::string& key);
  // A kernel that another version of NVRTC made, for where this process cannot make its own.
  std::optional<Entry> readOfAnyNvrtc(const std::string& key);
  void write(const Entry& entry);
  // An entry that read() gave, by its `file`, and that is of no use.
  void moveAside(EntryKind kind, const std::string& file, const std::string& why);
  const std::string& path() const { return path_; }

private:
  void fail(const char* kind, const std::string& text);
  void failToOpen(const Status& why);
  // A kind's own; none where it cannot be opened, which was said if it is there.
  std::optional<Folder> open(EntryKind kind);
  std::optional<Entry> readFile(const Folder& folder, EntryKind kind, const std::string& leaf, const std::string& key);
  std::optional<Entry> readOfAnyNvrtc(const Folder& folder, const std::string& key);
  void moveAside(const Folder& folder, const std::string& leaf, const std::string& why);
  int nvrtcVersion() const { return nvrtcVersion_ ? nvrtcVersion_() : 0; }

  const std::string path_;
  Log& log_;
  Counters& counters_;
  const NvrtcVersion nvrtcVersion_;
  std::once_flag swept_;
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
