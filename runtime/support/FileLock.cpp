#include "runtime/support/FileLock.h"
#include "runtime/support/Fork.h"
#include "runtime/support/Interrupted.h"
#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <mutex>
#include <unistd.h>
#include <vector>

namespace cermet {

namespace {

// The open files of all locks of this process. A child would hold their locks as long as it has them open, so it closes
// them before it does anything else.
class OpenFiles final : private Forkable {
public:
  OpenFiles() { addForkable(this); }
  void add(int file) {
    std::lock_guard lock(mutex_);
    files_.push_back(file);
  }
  void remove(int file) {
    std::lock_guard lock(mutex_);
    std::erase(files_, file);
  }

private:
  void lockForFork(ForkDeadline deadline) override { own_.lock(deadline); }
  void unlockAfterFork() override { own_.unlock(); }
  void renewInChild() override {
    if (own_.renew())
      for (int file : files_)
        close(file);
    files_.clear();
  }

  std::mutex mutex_; // guards what follows
  std::vector<int> files_;
  ForkLock own_{mutex_};
};

// Never destroyed: a thread may hold a lock when the process ends.
OpenFiles& openFiles() {
  static OpenFiles& files = *new OpenFiles;
  return files;
}

struct flock byteRange(short type, uint64_t byte) {
  struct flock range {};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  range.l_start = static_cast<off_t>(byte);
  range.l_len = 1;
  return range;
}

} // namespace

FileLock::FileLock(Descriptor file, uint64_t byte)
    : file_(std::move(file)), byte_(byte), generation_(forkGeneration.load()) {
  const ForkSection section; // a child finds the list made or not, never half
  if (file_.number() >= 0)
    openFiles().add(file_.number());
}

FileLock::FileLock(FileLock&& other) noexcept
    : file_(std::move(other.file_)), byte_(other.byte_), generation_(other.generation_) {}

FileLock::~FileLock() {
  if (file_.number() < 0)
    return;
  if (generation_ != forkGeneration.load()) { // a child closed it; the number may be another file's by now
    file_.forget();
    return;
  }
  struct flock range = byteRange(F_UNLCK, byte_); // also of a copy that is being forked
  fcntl(file_.number(), F_OFD_SETLK, &range);
  openFiles().remove(file_.number());
}

FileLock::Answer FileLock::tryTake() {
  struct flock wanted = byteRange(F_WRLCK, byte_);
  if (file_.number() < 0 || generation_ != forkGeneration.load())
    return Answer::Refused;
  if (uninterrupted([&] { return fcntl(file_.number(), F_OFD_SETLK, &wanted); }) == 0)
    return Answer::Taken;
  // EACCES is of a system that forbids locks, not of another holder: waiting for it would be in vain.
  return errno == EAGAIN ? Answer::Busy : Answer::Refused;
}

} // namespace cermet
