#include "runtime/support/Log.h"
#include <cstdio>

namespace cermet {

// One write per line, so that lines of several processes on one terminal stay whole.
static void writeLine(std::string_view prefix, const std::string& text) {
  const std::string line = fmt::format("cermet: {}{}\n", prefix, text);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void Log::tell(cermet_event_kind kind, const char* what, const std::string& text, const char* source,
               uint64_t microseconds, uint64_t bytes) const noexcept {
  if (!sink_.callback)
    return;
  const cermet_event event{sizeof(event), kind, what, text.c_str(), source, microseconds, bytes};
  try {
    sink_.callback(sink_.user, &event);
  } catch (...) { // not the library's, and nobody here could act on it
  }
}

void Log::warnOnce(std::string_view kind, const std::string& text) {
  if (isListenedTo())
    tell(CERMET_EVENT_WARNING, std::string(kind).c_str(), text);
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
