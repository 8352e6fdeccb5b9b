// Directory: the cache on disk. One file is one immutable entry, published by rename, so a reader sees all of it or
// none. It never fails a caller: what cannot be read is a miss, what cannot be written stays in memory, and both raise
// a counter and give one warning per cause. Any number of threads and processes may share a directory. One of them
// makes an entry while the others wait, for a time; where that cannot be agreed upon, each makes its own, which is as
// right.
#pragma once
#include "runtime/cache/Bound.h"
#include "runtime/cache/Entry.h"
#include "runtime/cache/Payload.h"
#include "runtime/support/Counters.h"
#include "runtime/support/File.h"
#include "runtime/support/FileLock.h"
#include "runtime/support/Log.h"
#include "runtime/support/Ranges.h"
#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace cermet {

// How long one process waits for another that makes an entry.
inline std::atomic<std::chrono::milliseconds> makerPatience{std::chrono::milliseconds(30'000)};

class Directory {
public:
  // The version of the NVRTC that this process would compile with, 0 where it cannot be told.
  using NvrtcVersion = std::function<int()>;
  // `path` "" is a directory that holds nothing and takes nothing. Nothing is touched before the first read or write.
  // It is kept within `bound` bytes; 0 is no bound.
  Directory(std::string path, Log& log, Counters& counters, NvrtcVersion nvrtcVersion = {}, uint64_t bound = 0,
            Ranges ranges = Ranges());

  // The entry with exactly this kind and key. One that is damaged, or whose payload is not an answer of its kind
  // (Payload.h), is moved aside as `.bad`. Of a kernel that NVRTC made it is that of this process's version; of any
  // where that cannot be told.
  std::optional<Entry> read(EntryKind kind, const std::string& key);
  // A kernel that another version of NVRTC made, for where this process cannot make its own.
  std::optional<Entry> readOfAnyNvrtc(const std::string& key);
  void write(const Entry& entry);
  // An entry that read() gave, by its `file`, and that is of no use.
  void moveAside(EntryKind kind, const std::string& file, const std::string& why);

  // Whose turn it is to make an entry that is not here: as long as a process has one, others wait for what it writes.
  // Either the `entry` is here by now, or it is this caller's to make, with a lock or without.
  struct Turn {
    std::optional<Entry> entry;
    std::optional<FileLock> lock;
  };
  // `wants` is false of an entry that would be no use.
  Turn turn(EntryKind kind, const std::string& key, const std::function<bool(const Entry&)>& wants);
  const std::string& path() const { return path_; }

private:
  // Whether what is wrong with a file is said and counted: not each time that one question looks at it.
  enum class Complaints { Yes, No };
  void fail(const char* kind, const std::string& text);
  void failToOpen(const Status& why);
  // A kind's own; none where it cannot be opened, which was said if it is there.
  std::optional<Folder> open(EntryKind kind, Complaints complaints);
  std::optional<Entry> read(EntryKind kind, const std::string& key, Complaints complaints);
  std::optional<Entry> readFile(const Folder& folder, EntryKind kind, const std::string& leaf, const std::string& key,
                                Complaints complaints);
  std::optional<Entry> readOfAnyNvrtc(const Folder& folder, const std::string& key, Complaints complaints);
  Status publish(const Entry& entry, const std::string& bytes); // NOT_FOUND where it was removed meanwhile
  void moveAside(const Folder& folder, const std::string& leaf, const std::string& why);
  int nvrtcVersion() const { return nvrtcVersion_ ? nvrtcVersion_() : 0; }

  const std::string path_;
  Log& log_;
  Counters& counters_;
  const NvrtcVersion nvrtcVersion_;
  Bound bound_;
  const Ranges ranges_;
  std::atomic<bool> takesNothing_{false}; // the last write failed, so nobody needs to wait for the next
};

} // namespace cermet
