// Entry: what the cache keeps about one key, as one string of bytes (docs/cache-format.md). The bytes carry the whole
// key and a checksum over everything before it, so that a reader needs to trust neither the file's name nor the disk:
// decode() accepts exactly the bytes that encode() made for that key.
#pragma once
#include "runtime/support/Status.h"
#include <cstdint>
#include <string>
#include <string_view>

namespace cermet {

enum class EntryKind { Plan, Match, Gradient, Kernel };
constexpr EntryKind kEntryKinds[] = {EntryKind::Plan, EntryKind::Match, EntryKind::Gradient, EntryKind::Kernel};
const char* name(EntryKind kind); // "plan", ...: also the name of its directory

constexpr std::string_view kEntrySuffix = ".entry";
constexpr size_t kHashDigits = 32; // that a file's name begins with

struct Entry {
  EntryKind kind = EntryKind::Plan;
  std::string key;      // everything that decides the payload
  std::string payload;  // JSON, or a kernel's image
  int nvrtcVersion = 0; // major * 1000 + minor * 10; 0 where NVRTC had no part
  std::string file;     // its name, where it was read from a directory; no part of the bytes
};

std::string encode(const Entry& entry);
// The status' message says what is wrong with the bytes.
Result<Entry> decode(std::string_view bytes);

// An entry where its bytes are.
struct EntryView {
  EntryKind kind = EntryKind::Plan;
  std::string_view key, payload;
  int nvrtcVersion = 0;
  Entry copy() const { return {kind, std::string(key), std::string(payload), nvrtcVersion, ""}; }
};
Result<EntryView> decodeInPlace(std::string_view bytes);

// XXH3-128 of some bytes, in its canonical form.
struct Checksum {
  unsigned char digest[16];
};
Checksum checksum(std::string_view bytes);
std::string hashOf(std::string_view key); // the same, of a key

// What an entry is for, from its key: the line after the build's id, and the function or program that follows.
std::string title(const Entry& entry);

// A file's name below its kind's directory: the key's XXH3-128 as 32 hexadecimal digits, "-" and NVRTC's version where
// one had a part, and the suffix. So kernels of several NVRTCs lie side by side.
std::string entryFileName(std::string_view key, int nvrtcVersion = 0);
// The version in the name of an entry of this key, 0 where there is none; -1 where it is no such name.
int nvrtcVersionIn(std::string_view fileName, std::string_view key);

} // namespace cermet
