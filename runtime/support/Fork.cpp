#include "runtime/support/Fork.h"
#include <algorithm>
#include <condition_variable>
#include <pthread.h>
#include <thread>
#include <vector>

namespace cermet {

namespace {

struct Forks {
  std::mutex forking; // one fork at a time; guards the members
  std::vector<Forkable*> members;

  std::mutex gate; // guards what follows
  std::condition_variable changed;
  int inside = 0; // sections
  int closed = 0; // forks that begin: nothing new is entered
  bool drained = true, cut = false;

  void before();
  void inParent();
  void inChild();
};

// Never destroyed: contexts may outlive every static object.
Forks& forks = *new Forks;

void Forks::before() {
  const ForkDeadline deadline = std::chrono::steady_clock::now() + forkPatience.load();
  bool wasDrained;
  {
    std::unique_lock lock(gate);
    ++closed;
    wasDrained = changed.wait_until(lock, deadline, [&] { return inside == 0; });
  }
  forking.lock();
  drained = wasDrained;
  for (Forkable* member : members)
    member->lockForFork(deadline);
}

void Forks::inParent() {
  for (Forkable* member : members)
    member->unlockAfterFork();
  forking.unlock();
  {
    std::lock_guard lock(gate);
    --closed;
  }
  changed.notify_all();
}

void Forks::inChild() {
  renew(forking);
  renew(gate);
  renew(changed);
  inside = closed = 0;
  cut |= !drained;
  forkGeneration.fetch_add(1);
  for (Forkable* member : members)
    member->renewInChild();
}

[[maybe_unused]] const int registered =
    pthread_atfork([] { forks.before(); }, [] { forks.inParent(); }, [] { forks.inChild(); });

thread_local int sections = 0; // that this thread is in

uint64_t enter() {
  std::unique_lock lock(forks.gate);
  forks.changed.wait(lock, [] { return forks.closed == 0; });
  ++forks.inside;
  return forkGeneration.load();
}

} // namespace

void addForkable(Forkable* member) {
  std::lock_guard lock(forks.forking);
  forks.members.push_back(member);
}

void removeForkable(Forkable* member) {
  std::lock_guard lock(forks.forking);
  std::erase(forks.members, member);
}

ForkSection::ForkSection() : outermost_(sections++ == 0), generation_(outermost_ ? enter() : 0) {}

ForkSection::~ForkSection() {
  --sections;
  if (!outermost_)
    return;
  std::lock_guard lock(forks.gate);
  if (generation_ == forkGeneration.load() && --forks.inside == 0) // else the thread forked in the middle of it
    forks.changed.notify_all();
}

Status checkNotCutByFork() {
  std::lock_guard lock(forks.gate);
  if (!forks.cut)
    return {};
  return error(CERMET_UNSUPPORTED,
               "nothing can be compiled in this process: it was forked while another thread compiled for more than {} "
               "s; fork before or after that, or start such processes anew (in Python with the start method 'spawn')",
               std::chrono::duration<double>(forkPatience.load()).count());
}

void ForkLock::lock(ForkDeadline deadline) {
  // A timed mutex would do, but a condition variable waits on a plain one.
  while (!(held_ = mutex_.try_lock()) && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::microseconds(100));
}

void ForkLock::unlock() {
  if (std::exchange(held_, false))
    mutex_.unlock();
}

bool ForkLock::renew() {
  cermet::renew(mutex_);
  return std::exchange(held_, false);
}

} // namespace cermet
