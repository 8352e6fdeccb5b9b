// A forked process of a test's: what it does ends with a number, or it hangs and is killed.
#pragma once
#include <csignal>
#include <functional>
#include <sys/wait.h>
#include <unistd.h>

namespace cermet {

constexpr int kHangs = -SIGALRM;

// What `work` returns in a child of this process, or minus the signal that ended it: kHangs after so many seconds.
inline int inChild(const std::function<int()>& work, unsigned seconds = 30) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(seconds);
    int code = 99;
    try {
      code = work();
    } catch (...) {
    }
    _exit(code);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child)
    return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

} // namespace cermet
