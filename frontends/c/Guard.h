// What every function of the C interface begins and ends with: arguments that are there, handles that are alive, and
// what fails or is thrown as a status whose text the calling thread keeps.
#pragma once
#include "frontends/c/Handle.h"
#include "frontends/c/cermet.h"
#include "runtime/context/Context.h"
#include "runtime/launch/Executable.h"
#include <new>

struct cermet_context : cermet::Handle<cermet::Context> {};
struct cermet_plan : cermet::Handle<const cermet::Plan> {};
struct cermet_executable : cermet::Handle<cermet::Executable> {};

namespace cermet::guard {

// Of the calling thread.
const std::string& lastMessage() noexcept;
cermet_status lastFailure() noexcept;

cermet_status report(const Status& status);
void describe(const char* message) noexcept; // of what has no status: CERMET_INTERNAL

// Runs `body`, which returns a Status; nothing that it throws passes.
template <typename Body> cermet_status guarded(const Body& body) noexcept {
  try {
    return report(body());
  } catch (const std::bad_alloc&) {
    describe("out of memory"); // short enough for no allocation
  } catch (const std::exception& failure) {
    describe(failure.what());
  } catch (...) {
    describe("something that is no std::exception was thrown");
  }
  return CERMET_INTERNAL;
}

Status nullArgument(const char* function, const char* argument);
Status noHandle(const char* function, const char* argument, const void* given);

// Leaves `function`'s body with the name of the argument that is missing.
#define CERMET_REQUIRE_IN(function, argument)                                                                          \
  if (!(argument)) [[unlikely]]                                                                                        \
  return cermet::guard::nullArgument(function, #argument)

// An array of `count`, which may be missing where that is 0.
#define CERMET_REQUIRE_ARRAY(function, argument, count)                                                                \
  if (!(argument) && (count) != 0) [[unlikely]]                                                                        \
  return cermet::error(CERMET_INVALID_ARGUMENT, "{}: {} is NULL, expected an array of {}", function, #argument, count)

#define CERMET_REQUIRE_HANDLE(function, argument)                                                                      \
  if (!(argument) || !(argument)->alive()) [[unlikely]]                                                                \
  return cermet::guard::noHandle(function, #argument, argument)

// The same for what a context does off the launch path.
#define CERMET_REQUIRE_CONTEXT(function)                                                                               \
  CERMET_REQUIRE_HANDLE(function, context);                                                                            \
  CERMET_RETURN_IF_ERROR((*context)->checkWhole())

template <typename Kind> bool isAlive(const Kind* handle) {
  return handle && handle->alive();
}

} // namespace cermet::guard
