#include "runtime/support/Log.h"
#include <cstdio>

namespace cermet {

// One write per line, so that lines of several processes on one terminal stay whole.
static void writeLine(std::string_view prefix, const std::string& text) {
  const std::string line = fmt::format("cermet: {}{}\n", prefix, text);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void Log::warnOnce(std::string_view kind, const std::string& text) {
  if (level_ < LogLevel::Warn)
    return;
  {
    std::lock_guard lock(mutex_);
    if (!given_.emplace(kind).second)
      return;
  }
  writeLine("warning: ", text);
}

void Log::info(const std::string& text) const {
  if (informs())
    writeLine("", text);
}

} // namespace cermet
