// Processes that share a cache directory: store_process, with what it printed when it was done.
#pragma once
#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <spawn.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

extern char** environ;

namespace cermet {

class StoreProcess {
public:
  // `options` as store_process.cpp has them: "keys=40".
  StoreProcess(const std::string& directory, const std::vector<std::string>& options) {
    std::vector<const char*> arguments{STORE_PROCESS, directory.c_str()};
    for (const std::string& option : options)
      arguments.push_back(option.c_str());
    arguments.push_back(nullptr);
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
      return;
    output_ = ends[0];
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    if (posix_spawn(&id_, STORE_PROCESS, &actions, nullptr, const_cast<char**>(arguments.data()), environ) != 0)
      id_ = -1;
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
  }
  StoreProcess(StoreProcess&& other) noexcept
      : id_(std::exchange(other.id_, -1)), output_(std::exchange(other.output_, -1)) {}
  ~StoreProcess() {
    if (id_ > 0) {
      send(SIGKILL);
      wait();
    }
    if (output_ >= 0)
      close(output_);
  }

  void send(int signal) const { kill(id_, signal); }
  bool isDone() {
    int status = 0;
    if (id_ > 0 && waitpid(id_, &status, WNOHANG) == id_) {
      id_ = -1;
      code_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }
    return id_ < 0;
  }
  // The exit code, or minus the signal that ended it.
  int wait() {
    int status = 0;
    if (id_ > 0 && waitpid(std::exchange(id_, -1), &status, 0) > 0)
      code_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    return code_;
  }
  // What a process that is done counted.
  struct Counts {
    long made = -1, failures = -1, waits = -1, removals = -1;
  };
  Counts counts() const {
    char text[128] = {};
    Counts counts;
    if (read(output_, text, sizeof(text) - 1) > 0)
      std::sscanf(text, "%ld %ld %ld %ld", &counts.made, &counts.failures, &counts.waits, &counts.removals);
    return counts;
  }

private:
  pid_t id_ = -1;
  int output_ = -1, code_ = -1;
};

} // namespace cermet
