// Log: lines on stderr, each opening with "cermet: ". A warning is given once per kind and context, so that a full disk
// does not fill a terminal; the counters say how often it happened. Who listens to events is told each time, whatever
// the level. Any thread may write.
#pragma once
#include "frontends/c/cermet.h"
#include <fmt/format.h>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

namespace cermet {

enum class LogLevel { Off, Warn, Info };

struct EventSink {
  cermet_event_callback callback = nullptr;
  void* user = nullptr;
};

class Log {
public:
  explicit Log(LogLevel level, EventSink sink = {}) : level_(level), sink_(sink) {}

  // `kind` names the cause ("cache directory not writable"), not the occurrence.
  void warnOnce(std::string_view kind, const std::string& text);
  void info(const std::string& text) const;
  std::mutex& mutex() { return mutex_; } // for a fork
  bool informs() const { return level_ >= LogLevel::Info; }
  bool isListenedTo() const { return sink_.callback != nullptr; }
  // An event, if somebody listens. With no lock held.
  void tell(cermet_event_kind kind, const char* what, const std::string& text, const char* source = nullptr,
            uint64_t microseconds = 0, uint64_t bytes = 0) const noexcept;

private:
  const LogLevel level_;
  const EventSink sink_;
  std::mutex mutex_;
  std::set<std::string, std::less<>> given_;
};

} // namespace cermet
