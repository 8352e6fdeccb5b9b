// Store: key to payload, asked in order: memory, directory, else made by the caller. In a process every key is made at
// most once at a time: threads that ask for it meanwhile wait for the first. Among the processes that share a directory
// it is made once, too, where they can agree on that (Directory.h). A failure is handed to all that waited and is not
// kept. Thread-safe; never used by a launch.
#pragma once
#include "runtime/support/Counters.h"
#include "runtime/cache/Directory.h"
#include "runtime/cache/Entry.h"
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace cermet {

struct StoreSettings {
  bool reads = true;  // if not, everything is made afresh, and written as ever
  uint64_t bound = 0; // of the directory, in bytes; 0 is none
  Directory::NvrtcVersion nvrtcVersion = {};
};

class Store {
public:
  Store(std::string directory, Log& log, Counters& counters, StoreSettings settings = {})
      : settings_(std::move(settings)), counters_(counters),
        directory_(std::move(directory), log, counters, settings_.nvrtcVersion, settings_.bound) {}

  using Payload = std::shared_ptr<const std::string>;
  // Fills an entry's payload and nvrtcVersion. Where it fails, a kernel of another NVRTC's serves, if there is one.
  using Maker = std::function<Status(Entry&)>;
  struct Sources {
    Counter &made, &memory, &directory;
  };
  Result<Payload> get(EntryKind kind, const std::string& key, const Sources& sources, const Maker& make);
  // For what get() gave and its caller cannot use, though it is whole, as an image that does not load; `why` says so.
  // If it came from the directory it is made again, once for all that ask, and what is made takes its place. Where the
  // same is made, or get() did not have it from the directory, the entry is not at fault and the answer is `why`.
  Result<Payload> mend(EntryKind kind, const std::string& key, const Sources& sources, const Maker& make,
                       const Payload& refused, const Status& why);

  const std::string& directory() const { return directory_.path(); }

  // For a fork: in the child, which took the mutex, nobody makes what the parent's threads were making.
  std::mutex& mutex() { return mutex_; }
  void forgetUnfinished();

private:
  struct Found {
    Payload payload;
    std::string file; // of the directory; "" where it was made here
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
  static Found stored(Entry entry, const Sources& sources);
  Found keep(Entry entry, const Sources& sources); // what was made

  const StoreSettings settings_;
  Counters& counters_;
  Directory directory_;
  std::mutex mutex_;
  std::condition_variable finished_;
  std::unordered_map<std::string, std::shared_ptr<Slot>> slots_[std::size(kEntryKinds)];
};

} // namespace cermet
