// store_process DIRECTORY KEYS SEED: asks a store for keys in an order of its own, for ever if KEYS is 0 (until
// killed), else once each. A payload that is not what its key makes ends it with 3; the count of keys made here is
// printed.
#include "runtime/cache/Store.h"
#include <cstdio>
#include <cstdlib>
#include <random>

int main(int, char** arguments) {
  const int keys = std::atoi(arguments[2]);
  std::mt19937 random(static_cast<unsigned>(std::atoi(arguments[3])));
  cermet::Log log(cermet::LogLevel::Warn);
  cermet::Counters counters;
  for (int asked = 0; keys == 0 || asked < keys; ++asked) {
    // A store per key: nothing is remembered, so every question reaches the directory.
    cermet::Store store(arguments[1], log, counters);
    const unsigned number = keys == 0 ? random() % 1000 : (static_cast<unsigned>(asked) * 7919u) % unsigned(keys);
    const std::string key = "key " + std::to_string(number);
    std::string payload;
    for (unsigned word = 0; word < 5000; ++word)
      payload += std::to_string(number * 31 + word) + " ";
    const auto got = store.get(cermet::EntryKind::Kernel, key,
                               {counters.kernelsCompiled, counters.kernelsFromMemory, counters.kernelsFromDirectory},
                               [&](cermet::Entry& entry) -> cermet::Status {
                                 entry.payload = payload;
                                 return {};
                               });
    if (!got.ok() || **got != payload)
      return 3;
  }
  std::printf("%llu %llu\n", static_cast<unsigned long long>(counters.kernelsCompiled.load()),
              static_cast<unsigned long long>(counters.cacheFailures.load()));
  return 0;
}
