#include "frontends/c/Guard.h"

namespace cermet::guard {

static thread_local std::string message;
static thread_local cermet_status failure = CERMET_OK;

const std::string& lastMessage() noexcept {
  return message;
}

cermet_status lastFailure() noexcept {
  return failure;
}

cermet_status report(const Status& status) {
  if (!status.ok()) [[unlikely]] {
    message = status.message();
    failure = status.code();
  }
  return status.code();
}

void describe(const char* text) noexcept {
  failure = CERMET_INTERNAL;
  try {
    message = text;
  } catch (...) {
    message.clear();
  }
}

Status nullArgument(const char* function, const char* argument) {
  return error(CERMET_INVALID_ARGUMENT, "{}: {} is NULL", function, argument);
}

Status noHandle(const char* function, const char* argument, const void* given) {
  if (!given)
    return nullArgument(function, argument);
  return error(CERMET_INVALID_ARGUMENT, "{}: {} was destroyed, or is none that this library made", function, argument);
}

} // namespace cermet::guard
