// Status: how everything in the runtime fails. A status is a cermet_status code and, unless it is CERMET_OK, a message
// that says what was given, what was expected and what to do. A Result is a value or the status that explains its
// absence. Success carries no string and allocates nothing, so the launch path returns Status too.
#pragma once
#include "frontends/c/cermet.h"
#include <fmt/format.h>
#include <optional>
#include <string>
#include <utility>

namespace cermet {

class [[nodiscard]] Status {
public:
  Status() = default;
  Status(cermet_status code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == CERMET_OK; }
  cermet_status code() const { return code_; }
  const std::string& message() const { return message_; }

private:
  cermet_status code_ = CERMET_OK;
  std::string message_;
};

template <typename... Arguments>
[[gnu::cold, gnu::noinline]] Status error(cermet_status code, fmt::format_string<Arguments...> format,
                                          Arguments&&... arguments) {
  return {code, fmt::format(format, std::forward<Arguments>(arguments)...)};
}

template <typename T> class [[nodiscard]] Result {
public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) {}

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

private:
  std::optional<T> value_;
  Status status_;
};

} // namespace cermet

// Leaves the function with the failure, if there is one.
#define CERMET_RETURN_IF_ERROR(expression)                                                                             \
  do {                                                                                                                 \
    if (::cermet::Status cermetStatus = (expression); !cermetStatus.ok()) [[unlikely]]                                 \
      return cermetStatus;                                                                                             \
  } while (false)

// The value of a Result; leaves the function with the failure where there is none.
#define CERMET_TRY(expression)                                                                                         \
  ({                                                                                                                   \
    auto cermetResult = (expression);                                                                                  \
    if (!cermetResult.ok()) [[unlikely]]                                                                               \
      return cermetResult.status();                                                                                    \
    std::move(*cermetResult);                                                                                          \
  })
