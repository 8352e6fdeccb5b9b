// Checks in a process of their own.
#include "tests/fuzz/Check.h"
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

// Of the program that holds this: what a check leaves behind ends with its process, and most memory is the compiler's.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "detect_leaks=0:quarantine_size_mb=16:malloc_context_size=4";
}

namespace cermet::fuzz {
namespace {

constexpr int kMaxSeconds = 60; // of one check

void send(int to, const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    ssize_t written = write(to, text.data() + at, text.size() - at);
    if (written <= 0)
      _exit(1);
    at += written;
  }
}

std::string readAll(int from) {
  std::string text;
  char part[4096];
  for (ssize_t got; (got = read(from, part, sizeof part)) > 0;)
    text.append(part, got);
  close(from);
  return text;
}

// Checks from `first` on, as far as the process lives.
void checkSome(const std::vector<Case>& given, std::vector<Failure>& failures, int& compared) {
  int answers[2];
  std::unique_ptr<FILE, int (*)(FILE*)> words(std::tmpfile(), std::fclose); // what it prints before it dies
  if (!words || pipe2(answers, O_CLOEXEC) != 0) {
    failures.push_back({"crash", fmt::format("no pipe or file: {}", std::strerror(errno))});
    return;
  }
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    dup2(fileno(words.get()), STDERR_FILENO);
    for (size_t i = failures.size(); i < given.size(); ++i) {
      alarm(kMaxSeconds);
      int count = 0;
      const Failure failure = check(given[i], count);
      send(answers[1], fmt::format("{}\n{}\n{}", count, failure.kind, failure.message) + '\0');
    }
    _exit(0);
  }
  close(answers[1]);
  const std::string text = readAll(answers[0]);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) {
    failures.push_back({"crash", "no process"});
    return;
  }
  for (size_t begin = 0, end; (end = text.find('\0', begin)) != std::string::npos; begin = end + 1) {
    const size_t first = text.find('\n', begin), second = text.find('\n', first + 1);
    compared += std::atoi(text.c_str() + begin);
    failures.push_back({text.substr(first + 1, second - first - 1), text.substr(second + 1, end - second - 1)});
  }
  if (failures.size() == given.size())
    return;
  const std::string how =
      WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : fmt::format("exit {}", WEXITSTATUS(status));
  std::rewind(words.get());
  std::string printed(1 << 14, '\0');
  printed.resize(std::fread(printed.data(), 1, printed.size(), words.get()));
  failures.push_back({"crash", how + "\n" + printed});
}

} // namespace

std::vector<Failure> checkApart(const std::vector<Case>& given, int& compared) {
  std::vector<Failure> failures;
  while (failures.size() < given.size())
    checkSome(given, failures, compared);
  return failures;
}

Failure checkApart(const Case& given) {
  int compared = 0;
  return checkApart(std::vector{given}, compared)[0];
}

} // namespace cermet::fuzz
