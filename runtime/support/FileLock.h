// FileLock: one byte of a file, locked by the kernel for an open file of this holder's own (fcntl's "open file
// description" locks). So it excludes threads, contexts and processes alike, and it ends with its holder, however that
// ends: nobody can keep one by being killed, and a child that is forked meanwhile does not have it. Nothing waits here.
// Where the file system has no locks, or the file cannot be opened, every attempt is refused.
#pragma once
#include "runtime/support/File.h"
#include <cstdint>

namespace cermet {

class FileLock {
public:
  // `file` is open for writing, or none (a negative descriptor); no other lock uses it.
  FileLock(Descriptor file, uint64_t byte);
  ~FileLock();
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&&) = delete;

  enum class Answer { Taken, Busy, Refused };
  Answer tryTake();

private:
  Descriptor file_;
  uint64_t byte_;
  uint64_t generation_; // of the fork that this process is
};

} // namespace cermet
