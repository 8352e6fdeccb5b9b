// Functions that the newest C and C++ libraries have and older ones lack, of which both shared libraries have their
// own, hidden, so that they load on every system that manylinux_2_34 names: those of glibc 2.34 and GCC 11.
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <pthread.h>
#include <sys/random.h>

// LLVM's archives, which draw names of temporary files by it, were built where glibc has it (2.36).
extern "C" uint32_t arc4random() noexcept {
  uint32_t number = 0;
  for (;;) {
    if (getrandom(&number, sizeof(number), 0) == sizeof(number))
      return number;
    if (errno != EINTR) // forbidden here; a name that is taken is drawn again
      return static_cast<uint32_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  }
}

// libstdc++ 12 gave it another version (GLIBCXX_3.4.30) for what libpthread became in glibc 2.34, and does the same.
void std::condition_variable::wait(std::unique_lock<std::mutex>& lock) {
  pthread_cond_wait(native_handle(), lock.mutex()->native_handle());
}
