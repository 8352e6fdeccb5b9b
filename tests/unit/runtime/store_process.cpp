// store_process DIRECTORY [NAME=NUMBER ...]: asks stores for keys in an order of its own. A payload that is not what
// its key makes ends it with 3; what the counters say is printed: kernels made here, failures, waits and removals.
//   keys   each is asked for once; 0: keys of a thousand, at random, for ever (until killed)       seed   of the order
//   asks   so many questions at random instead of for ever       make   milliseconds that it takes to make one
//   bound  of the directory, in bytes       locks   0: the file system has none
//   inplace   1: no file gets its name when it is whole; it is written under it, as a control
#include "runtime/cache/Store.h"
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <unistd.h>

static bool hasLocks = true, writesInPlace = false;

// In the place of the C library's, for this program.
extern "C" int renameat(int fromFolder, const char* from, int toFolder, const char* to) noexcept {
  static const auto real = reinterpret_cast<int (*)(int, const char*, int, const char*)>(dlsym(RTLD_NEXT, "renameat"));
  if (!writesInPlace)
    return real(fromFolder, from, toFolder, to);
  const int source = openat(fromFolder, from, O_RDONLY),
            target = openat(toFolder, to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  char piece[16];
  for (ssize_t size; (size = read(source, piece, sizeof(piece))) > 0;)
    if (write(target, piece, static_cast<size_t>(size)) != size)
      break;
  close(source);
  close(target);
  return unlinkat(fromFolder, from, 0);
}

extern "C" int fcntl(int file, int command, ...) {
  va_list rest;
  va_start(rest, command);
  void* argument = va_arg(rest, void*);
  va_end(rest);
  if (!hasLocks && (command == F_OFD_SETLK || command == F_OFD_GETLK)) {
    errno = ENOLCK;
    return -1;
  }
  static const auto real = reinterpret_cast<int (*)(int, int, void*)>(dlsym(RTLD_NEXT, "fcntl"));
  return real(file, command, argument);
}

int main(int count, char** arguments) {
  std::map<std::string, long> given{{"keys", 0},  {"seed", 0},  {"asks", 0},   {"make", 0},
                                    {"bound", 0}, {"locks", 1}, {"inplace", 0}};
  for (int index = 2; index < count; ++index) {
    const char* value = std::strchr(arguments[index], '=');
    const auto known =
        value ? given.find(std::string(arguments[index], static_cast<size_t>(value - arguments[index]))) : given.end();
    if (known == given.end())
      return 4;
    known->second = std::atol(value + 1);
  }
  hasLocks = given["locks"] != 0;
  writesInPlace = given["inplace"] != 0;
  const unsigned keys = static_cast<unsigned>(given["keys"]);
  const long asks = keys > 0 ? keys : given["asks"];
  std::mt19937 random(static_cast<unsigned>(given["seed"]));
  cermet::Log log(cermet::LogLevel::Warn);
  cermet::Counters counters;
  std::unique_ptr<cermet::Store> store;
  for (long asked = 0; asks == 0 || asked < asks; ++asked) {
    // A new store every few questions: little is remembered, so most questions reach the directory.
    if (asked % 20 == 0)
      store = std::make_unique<cermet::Store>(arguments[1], log, counters,
                                              cermet::StoreSettings{.bound = static_cast<uint64_t>(given["bound"])});
    const unsigned number = keys == 0 ? random() % 1000 : (static_cast<unsigned>(asked) * 7919u) % keys;
    const std::string key = "key " + std::to_string(number);
    std::string payload;
    for (unsigned word = 0; word < 5000; ++word)
      payload += std::to_string(number * 31 + word) + " ";
    const auto got = store->get(cermet::EntryKind::Kernel, key,
                                {counters.kernelsCompiled, counters.kernelsFromMemory, counters.kernelsFromPacks,
                                 counters.kernelsFromDirectory},
                                [&](cermet::Entry& entry) -> cermet::Status {
                                  std::this_thread::sleep_for(std::chrono::milliseconds(given["make"]));
                                  entry.payload = payload;
                                  return {};
                                });
    if (!got.ok() || **got != payload)
      return 3;
  }
  const auto counted = counters.snapshot();
  std::printf("%ld %ld %ld %ld\n", static_cast<long>(counted.kernels_compiled),
              static_cast<long>(counted.cache_failures), static_cast<long>(counted.cache_waits),
              static_cast<long>(counted.cache_removals));
  return 0;
}
