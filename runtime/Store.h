// Store: key to payload, asked in order: memory, directory, else made by the caller. In a process every key is made at
// most once at a time: threads that ask for it meanwhile wait for the first. A failure is handed to all that waited and
// is not kept. Thread-safe; never used by a launch.
#pragma once
#include "runtime/Counters.h"
#include "runtime/Directory.h"
#include "runtime/Entry.h"
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace cermet {

class Store {
public:
  // With `readsDirectory` false everything is made afresh, and written as ever.
  Store(std::string directory, Log& log, Counters& counters, bool readsDirectory = true,
        Directory::NvrtcVersion nvrtcVersion = {})
      : directory_(std::move(directory), log, counters, std::move(nvrtcVersion)), readsDirectory_(readsDirectory) {}

  using Payload = std::shared_ptr<const std::string>;
  // Fills an entry's payload and nvrtcVersion. Where it fails, a kernel of another NVRTC's serves, if there is one.
  using Maker = std::function<Status(Entry&)>;
  struct Sources {
    Counter &made, &memory, &directory;
  };
  Result<Payload> get(EntryKind kind, const std::string& key, const Sources& sources, const Maker& make);

  const std::string& directory() const { return directory_.path(); }

  // For a fork: in the child, which took the mutex, nobody makes what the parent's threads were making.
  std::mutex& mutex() { return mutex_; }
  void forgetUnfinished();

private:
  struct Slot {
    bool done = false;
    Status status;
    Payload payload;
  };
  Result<Payload> find(EntryKind kind, const std::string& key, const Sources& sources, const Maker& make);

  Directory directory_;
  const bool readsDirectory_;
  std::mutex mutex_;
  std::condition_variable finished_;
  std::unordered_map<std::string, std::shared_ptr<Slot>> slots_[std::size(kEntryKinds)];
};

} // namespace cermet
