#include "frontends/tools/Output.h"
#include <cerrno>
#include <cstdio>
#include <system_error>

namespace cermet::tools {

Status outputFailed(int number) {
  return error(CERMET_INTERNAL, "standard output cannot be written: {}",
               number ? std::generic_category().message(number) : "an earlier write failed");
}

Status finishOutput() {
  errno = 0;
  if (std::fflush(stdout) != 0 || std::ferror(stdout))
    return outputFailed(errno);
  return {};
}

void complain(std::string_view text) {
  const std::string line = fmt::format("cermet: {}\n", text);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

Status writeText(const std::string& path, std::string_view text) {
  const auto failed = [&] {
    return error(CERMET_INTERNAL, "cannot write '{}': {}", path, std::generic_category().message(errno));
  };
  std::FILE* file = std::fopen(path.c_str(), "wbe");
  if (!file)
    return failed();
  Status status = std::fwrite(text.data(), 1, text.size(), file) == text.size() ? Status() : failed();
  if (std::fclose(file) != 0 && status.ok())
    return failed();
  return status;
}

} // namespace cermet::tools
