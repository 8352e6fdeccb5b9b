// A system call that a signal interrupts is made again, but not for ever: a file system in user space, a tracer or a
// storm of signals may answer EINTR to each.
#pragma once
#include <cerrno>

namespace cermet {

constexpr int kMostInterruptions = 100; // one after the other

// What `call` returns, as soon as it is no -1 with EINTR; after so many of those, EINTR is an error as any other.
template <typename Call> auto uninterrupted(const Call& call) {
  auto answer = call();
  for (int times = 0; answer < 0 && errno == EINTR && times < kMostInterruptions; ++times)
    answer = call();
  return answer;
}

} // namespace cermet
