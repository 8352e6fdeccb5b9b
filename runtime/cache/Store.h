// Store: key to payload, asked in order: memory, packs, directory, else made by the caller. In a process every key is
// made at most once at a time: threads that ask for it meanwhile wait for the first. Among the processes that share a
// directory it is made once, too, where they can agree on that (Directory.h). A failure is handed to all that waited
// and is not kept. Thread-safe; never used by a launch.
#pragma once
#include "runtime/cache/Directory.h"
#include "runtime/cache/Entry.h"
#include "runtime/cache/Packs.h"
#include "runtime/support/Bytes.h"
#include "runtime/support/Counters.h"
#include "runtime/support/Ranges.h"
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

namespace cermet {

struct StoreSettings {
  bool reads = true;  // if not, everything is made afresh, and written as ever
  uint64_t bound = 0; // of the directory, in bytes; 0 is none
  Directory::NvrtcVersion nvrtcVersion = {};
  Packs packs = {};
  Ranges ranges = Ranges();
  bool only = false; // what no pack and no directory holds is NOT_STORED, and nothing is written
};

class Store {
public:
  Store(std::string directory, Log& log, Counters& counters, StoreSettings settings = {})
      : settings_(std::move(settings)), log_(log), counters_(counters),
        directory_(std::move(directory), log, counters, settings_.nvrtcVersion, settings_.bound, settings_.ranges) {}

  using Payload = Bytes;
  // Fills an entry's payload and nvrtcVersion. Where it fails, a kernel of another NVRTC's serves, if there is one.
  using Maker = std::function<Status(Entry&)>;
  struct Sources {
    Counter &made, &memory, &packs, &directory;
  };
  Result<Payload> get(EntryKind kind, const std::string& key, const Sources& sources, const Maker& make);
  // For what get() gave and its caller cannot use, though it is whole, as an image that does not load; `why` says so.
  // If it was not made here it is made again, once for all that ask, and what is made takes its place in the directory.
  // Where the same is made, or get() made it, the entry is not at fault and the answer is `why`.
  Result<Payload> mend(EntryKind kind, const std::string& key, const Sources& sources, const Maker& make,
                       const Payload& refused, const Status& why);

  // All that was asked for until now, and is here.
  std::vector<Entry> all();

  const std::string& directory() const { return directory_.path(); }

  // For a fork: in the child, which took the mutex, nobody makes what the parent's threads were making.
  std::mutex& mutex() { return mutex_; }
  void forgetUnfinished();

private:
  struct Found {
    Payload payload;
    int nvrtcVersion = 0;
    enum class Origin { Made, Pack, Directory } origin = Origin::Made;
    std::string file = ""; // of the directory
  };
  struct Slot {
    bool done = false;
    Status status;
    Found found;
  };
  using Finder = std::function<Result<Found>()>;
  Result<Payload> fill(EntryKind kind, const std::string& key, const std::shared_ptr<Slot>& slot, const Finder& find);
  Result<Found> find(EntryKind kind, const std::string& key, const Sources& sources, const Maker& make);
  Result<Found> remake(EntryKind kind, const std::string& key, const Sources& sources, const Maker& make,
                       const Found& refused, const Status& why);
  std::optional<Found> stored(EntryKind kind, const std::string& key, const Sources& sources);
  void waitFor(const Slot& slot, EntryKind kind, const std::string& key, std::unique_lock<std::mutex>& lock);
  void noteFound(EntryKind kind, const std::string& key, size_t bytes, const char* source) const;
  Found fromDirectory(Entry entry, const Sources& sources);
  Status notStored(EntryKind kind, const std::string& key) const;
  Found keep(Entry entry, const Sources& sources); // what was made

  const StoreSettings settings_;
  Log& log_;
  Counters& counters_;
  Directory directory_;
  std::mutex mutex_;
  std::condition_variable finished_;
  std::once_flag foreign_;
  std::unordered_map<std::string, std::shared_ptr<Slot>> slots_[std::size(kEntryKinds)];
};

} // namespace cermet
