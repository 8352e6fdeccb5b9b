// Log: lines on stderr, each opening with "cermet: ". A warning is given once per kind and context, so that a full disk
// does not fill a terminal; the counters say how often it happened. Any thread may write.
#pragma once
#include <fmt/format.h>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

namespace cermet {

enum class LogLevel { Off, Warn, Info };

class Log {
public:
  explicit Log(LogLevel level) : level_(level) {}

  // `kind` names the cause ("cache directory not writable"), not the occurrence.
  void warnOnce(std::string_view kind, const std::string& text);
  void info(const std::string& text) const;
  std::mutex& mutex() { return mutex_; } // for a fork
  bool informs() const { return level_ >= LogLevel::Info; }

private:
  const LogLevel level_;
  std::mutex mutex_;
  std::set<std::string, std::less<>> given_;
};

} // namespace cermet
