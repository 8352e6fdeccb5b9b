#include "tests/unit/runtime/FailingCalls.h"
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

using cermet::FailingCalls;

enum class Kind { Other, Write, Lock };
constexpr size_t kShort = 7;

std::atomic<bool> isOn{false};
std::atomic<long> callsMade{0}, callsFailed{0};
FailingCalls::Which which;
long nth;
int error;

bool isShort() {
  return isOn && which == FailingCalls::Which::Short;
}

// Whether this call fails, with errno set.
bool fails(Kind kind) {
  if (!isOn)
    return false;
  const bool is = which == FailingCalls::Which::One || which == FailingCalls::Which::All ||
                  (which == FailingCalls::Which::Writes && kind == Kind::Write) ||
                  (which == FailingCalls::Which::Locks && kind == Kind::Lock);
  const long number = ++callsMade;
  if (!is || (which == FailingCalls::Which::One ? number != nth : number < nth))
    return false;
  ++callsFailed;
  errno = error;
  return true;
}

template <typename Function> Function* real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

Kind opening(int flags) {
  return flags & (O_CREAT | O_TRUNC) ? Kind::Write : Kind::Other;
}

} // namespace

namespace cermet {

FailingCalls::FailingCalls(Which asked, long number, int with) {
  which = asked;
  nth = number;
  error = with;
  callsMade = callsFailed = 0;
  isOn = true;
}
FailingCalls::~FailingCalls() {
  isOn = false;
}
long FailingCalls::made() {
  return callsMade;
}
long FailingCalls::failed() {
  return callsFailed;
}

} // namespace cermet

// In the C library's place. A name's own call is looked for when it is first used.
#define IN_PLACE extern "C" [[gnu::visibility("default")]]
#define REAL(name) static const auto call = real<decltype(name)>(#name)
#define FAILING(result, name, parameters, exceptions, kind, failure, ...)                                              \
  IN_PLACE result name parameters exceptions {                                                                         \
    REAL(name);                                                                                                        \
    return fails(kind) ? failure : call(__VA_ARGS__);                                                                  \
  }

FAILING(int, ftruncate, (int file, off_t size), noexcept, Kind::Write, -1, file, size)
FAILING(int, rename, (const char* from, const char* to), noexcept, Kind::Write, -1, from, to)
FAILING(int, renameat, (int one, const char* from, int other, const char* to), noexcept, Kind::Write, -1, one, from,
        other, to)
FAILING(int, unlink, (const char* path), noexcept, Kind::Other, -1, path)
FAILING(int, unlinkat, (int folder, const char* path, int flags), noexcept, Kind::Other, -1, folder, path, flags)
FAILING(int, mkdir, (const char* path, mode_t mode), noexcept, Kind::Write, -1, path, mode)
FAILING(int, mkdirat, (int folder, const char* path, mode_t mode), noexcept, Kind::Write, -1, folder, path, mode)
FAILING(int, stat, (const char* path, struct stat* state), noexcept, Kind::Other, -1, path, state)
FAILING(int, fstat, (int file, struct stat* state), noexcept, Kind::Other, -1, file, state)
FAILING(int, lstat, (const char* path, struct stat* state), noexcept, Kind::Other, -1, path, state)
FAILING(int, fstatat, (int folder, const char* path, struct stat* state, int flags), noexcept, Kind::Other, -1, folder,
        path, state, flags)
FAILING(int, utimensat, (int folder, const char* path, const timespec times[2], int flags), noexcept, Kind::Other, -1,
        folder, path, times, flags)
FAILING(int, memfd_create, (const char* name, unsigned flags), noexcept, Kind::Write, -1, name, flags)
FAILING(DIR*, fdopendir, (int file), , Kind::Other, nullptr, file)
FAILING(dirent*, readdir, (DIR * directory), , Kind::Other, nullptr, directory)

// Nobody cuts the power of a test, and there are many.
IN_PLACE int fsync(int file) {
  REAL(fsync);
  return fails(Kind::Write) ? -1 : isOn ? 0 : call(file);
}
IN_PLACE int open(const char* path, int flags, ...) {
  REAL(open);
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = va_arg(rest, mode_t);
  va_end(rest);
  return fails(opening(flags)) ? -1 : call(path, flags, mode);
}
IN_PLACE int openat(int folder, const char* path, int flags, ...) {
  REAL(openat);
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = va_arg(rest, mode_t);
  va_end(rest);
  return fails(opening(flags)) ? -1 : call(folder, path, flags, mode);
}
IN_PLACE ssize_t read(int file, void* bytes, size_t size) {
  REAL(read);
  return fails(Kind::Other) ? -1 : call(file, bytes, isShort() ? std::min(size, kShort) : size);
}
IN_PLACE ssize_t pread(int file, void* bytes, size_t size, off_t from) {
  REAL(pread);
  return fails(Kind::Other) ? -1 : call(file, bytes, isShort() ? std::min(size, kShort) : size, from);
}
IN_PLACE ssize_t write(int file, const void* bytes, size_t size) {
  REAL(write);
  return fails(Kind::Write) ? -1 : call(file, bytes, isShort() ? std::min(size, kShort) : size);
}
// What is closed is closed, whatever the answer.
IN_PLACE int close(int file) {
  REAL(close);
  const bool fail = fails(Kind::Other);
  const int before = errno, answer = call(file);
  if (fail)
    errno = before;
  return fail ? -1 : answer;
}
// Of memory that is no file's there is enough.
IN_PLACE void* mmap(void* address, size_t size, int protection, int flags, int file, off_t offset) noexcept {
  REAL(mmap);
  return file >= 0 && fails(Kind::Other) ? MAP_FAILED : call(address, size, protection, flags, file, offset);
}
IN_PLACE int fcntl(int file, int command, ...) {
  REAL(fcntl);
  va_list rest;
  va_start(rest, command);
  void* argument = va_arg(rest, void*);
  va_end(rest);
  const bool locks = command == F_OFD_SETLK || command == F_OFD_GETLK;
  return fails(locks ? Kind::Lock : Kind::Other) ? -1 : call(file, command, argument);
}
