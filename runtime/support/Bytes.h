// Bytes: some bytes that do not change, and what holds them: a string, or a file that is mapped as long as anybody has
// a part of it. A file is mapped only where the system promises that nobody can change or cut it, root neither: what
// was checked would else not be what is used, and a process that has mapped a file that shrinks is ended.
#pragma once
#include "runtime/support/File.h"
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace cermet {

using Bytes = std::shared_ptr<const std::string_view>;

Bytes hold(std::string bytes);
Bytes partOf(const Bytes& whole, std::string_view part);

// What the system says about a file, and whether its bytes are for ever what they are.
struct FileFacts {
  int seals = 0;           // of a file in memory: F_GET_SEALS
  uint64_t attributes = 0; // of statx
  int64_t system = 0;      // f_type of statfs
};
FileFacts factsOf(const Descriptor& file);
bool isUnchangeable(const FileFacts& facts);

// All of a file that is open for reading; null where its bytes may change, or where it cannot be mapped.
Bytes mapUnchangeable(const Descriptor& file, uint64_t size);

} // namespace cermet
