// Bound: how much a cache directory may hold, and what goes when it would hold more: what was used longest ago. Nobody
// is told and no load fails, since a reader has read an entry by then or makes it again. A writer looks at the whole
// directory again when it has written a small part of the bound, so that many may write at once. Any thread may ask.
#pragma once
#include "runtime/support/Counters.h"
#include "runtime/support/File.h"
#include <atomic>

namespace cermet {

class Bound {
public:
  // In bytes of files; 0 is none.
  Bound(uint64_t bytes, Counters& counters) : most_(bytes), counters_(counters) {}

  // Whether so much may be written to the directory at all. Removes what is in its way, and the first time also what
  // broken processes left.
  bool makeRoom(const Folder& cache, uint64_t bytes);

private:
  const uint64_t most_;
  Counters& counters_;
  std::atomic<bool> looked_{false};
  std::atomic<uint64_t> written_{0}; // since this last looked at the directory
};

struct Removed {
  size_t files = 0;
  uint64_t bytes = 0, left = 0; // what stays has so many bytes
};
// Removes temporary files of processes that ended, entries that were moved aside a week ago, and then, until at most
// `most` bytes are left, what was used longest ago. Where another process is at it, waits a second for that.
Removed trim(const Folder& cache, uint64_t most);

} // namespace cermet
