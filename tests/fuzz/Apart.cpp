// A check in a process of its own.
#include "tests/fuzz/Check.h"
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

namespace cermet::fuzz {

constexpr int kMostSeconds = 120;
constexpr size_t kMostBytes = 60000; // what a pipe holds

Failure checkApart(const Case& given, int& compared) {
  int answer[2], words[2]; // what it answers, what it prints
  if (pipe2(answer, O_CLOEXEC) != 0 || pipe2(words, O_CLOEXEC) != 0)
    return {"crash", fmt::format("no pipe: {}", std::strerror(errno))};
  std::fflush(nullptr);
  pid_t child = fork();
  if (child == 0) {
    dup2(words[1], STDERR_FILENO);
    alarm(kMostSeconds);
    int count = 0;
    Failure failure = check(given, count);
    std::string text = fmt::format("{}\n{}\n{}", count, failure.kind, failure.message).substr(0, kMostBytes);
    for (size_t at = 0; at < text.size();) {
      ssize_t written = write(answer[1], text.data() + at, text.size() - at);
      if (written <= 0)
        break;
      at += written;
    }
    _exit(0);
  }
  close(answer[1]);
  close(words[1]);
  auto drain = [](int from) {
    std::string text;
    char part[4096];
    for (ssize_t got; (got = read(from, part, sizeof part)) > 0;)
      text.append(part, got);
    close(from);
    return text;
  };
  std::string printed = drain(words[0]), text = drain(answer[0]);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child)
    return {"crash", "no process"};
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || text.empty()) {
    std::string how = WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : fmt::format("exit {}", WEXITSTATUS(status));
    return {"crash", fmt::format("{}\n{}", how, printed)};
  }
  size_t first = text.find('\n'), second = text.find('\n', first + 1);
  compared += std::stoi(text);
  return {text.substr(first + 1, second - first - 1), text.substr(second + 1)};
}

} // namespace cermet::fuzz
