// A shell command's output and exit code.
#pragma once
#include <cstdio>
#include <string>
#include <sys/wait.h>

namespace cermet {

struct CommandOutput {
  int code;
  std::string text; // both streams
};

inline CommandOutput runCommand(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  std::string text;
  char piece[4096];
  while (size_t count = fread(piece, 1, sizeof(piece), pipe))
    text.append(piece, count);
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text};
}

} // namespace cermet
