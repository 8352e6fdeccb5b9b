#include "runtime/cache/Entry.h"
#include "BuildId.h"
#include <algorithm>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace cermet {

namespace {

constexpr char kMagic[8] = {'C', 'E', 'R', 'M', 'E', 'T', '\r', '\n'};
constexpr uint32_t kFormatVersion = 1;

// Little-endian, as the only hosts are.
struct Prefix {
  char magic[8];
  uint32_t version;
  uint32_t headerBytes;
  uint64_t keyBytes;
  uint64_t payloadBytes;
};
static_assert(sizeof(Prefix) == 32);

Status damaged(const char* what) {
  return error(CERMET_NOT_FOUND, "{}", what);
}

} // namespace

Checksum checksum(std::string_view bytes) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  Checksum sum;
  static_assert(sizeof(sum) == sizeof(canonical));
  std::memcpy(&sum, &canonical, sizeof(sum));
  return sum;
}

std::string hashOf(std::string_view key) {
  const Checksum sum = checksum(key);
  return {reinterpret_cast<const char*>(&sum), sizeof(sum)};
}

const char* name(EntryKind kind) {
  constexpr const char* names[] = {"plan", "match", "gradient", "kernel"};
  return names[static_cast<int>(kind)];
}

std::string encode(const Entry& entry) {
  const nlohmann::json header = {
      {"kind", name(entry.kind)}, {"nvrtc_version", entry.nvrtcVersion}, {"build_id", CERMET_BUILD_ID}};
  const std::string headerText = header.dump();
  Prefix prefix;
  std::memcpy(prefix.magic, kMagic, sizeof(kMagic));
  prefix.version = kFormatVersion;
  prefix.headerBytes = static_cast<uint32_t>(headerText.size());
  prefix.keyBytes = entry.key.size();
  prefix.payloadBytes = entry.payload.size();
  std::string bytes;
  bytes.reserve(sizeof(prefix) + headerText.size() + entry.key.size() + entry.payload.size() + sizeof(Checksum));
  bytes.append(reinterpret_cast<const char*>(&prefix), sizeof(prefix));
  bytes.append(headerText).append(entry.key).append(entry.payload);
  const Checksum sum = checksum(bytes);
  bytes.append(reinterpret_cast<const char*>(&sum), sizeof(sum));
  return bytes;
}

Result<Entry> decode(std::string_view bytes) {
  return CERMET_TRY(decodeInPlace(bytes)).copy();
}

Result<EntryView> decodeInPlace(std::string_view bytes) {
  Prefix prefix;
  if (bytes.size() < sizeof(prefix) + sizeof(Checksum))
    return damaged("it is truncated");
  std::memcpy(&prefix, bytes.data(), sizeof(prefix));
  if (std::memcmp(prefix.magic, kMagic, sizeof(kMagic)) != 0)
    return damaged("it is not a cache entry");
  if (prefix.version != kFormatVersion)
    return error(CERMET_NOT_FOUND, "it has format version {}, expected {}", prefix.version, kFormatVersion);
  const std::string_view body = bytes.substr(0, bytes.size() - sizeof(Checksum));
  // Each size is compared with what is left, so that no sum can wrap.
  std::string_view rest = body.substr(sizeof(prefix));
  if (prefix.headerBytes > rest.size() || prefix.keyBytes > rest.size() - prefix.headerBytes ||
      prefix.payloadBytes != rest.size() - prefix.headerBytes - prefix.keyBytes)
    return damaged("its length is not what its header says");
  const Checksum sum = checksum(body);
  if (std::memcmp(&sum, bytes.data() + body.size(), sizeof(sum)) != 0)
    return damaged("its checksum is wrong");

  const auto header = nlohmann::json::parse(rest.substr(0, prefix.headerBytes), nullptr, false);
  if (!header.is_object() || !header.contains("kind") || !header.contains("nvrtc_version") ||
      !header["nvrtc_version"].is_number_integer())
    return damaged("its header lacks a field");
  EntryView entry;
  const EntryKind* kind = nullptr;
  for (const EntryKind& candidate : kEntryKinds)
    if (header["kind"] == name(candidate))
      kind = &candidate;
  if (!kind)
    return damaged("its kind is unknown");
  entry.kind = *kind;
  const int64_t version = header["nvrtc_version"].get<int64_t>();
  if (version < 0 || version > INT32_MAX)
    return damaged("its NVRTC's version is none");
  entry.nvrtcVersion = static_cast<int>(version);
  rest.remove_prefix(prefix.headerBytes);
  entry.key = rest.substr(0, prefix.keyBytes);
  entry.payload = rest.substr(prefix.keyBytes);
  return entry;
}

std::string title(const Entry& entry) {
  std::string_view key = entry.key;
  key.remove_prefix(std::min(key.size(), key.find('\n') + 1));
  const auto lineWith = [&](std::string_view word) {
    const size_t at = key.find(word);
    return at == key.npos ? std::string_view() : key.substr(at, key.find_first_of("\n(", at) - at);
  };
  if (entry.kind == EntryKind::Kernel)
    return fmt::format("{} {}", lineWith("target "), lineWith("program "));
  return fmt::format("{} {}", key.substr(0, key.find('\n')), lineWith("@"));
}

std::string entryFileName(std::string_view key, int nvrtcVersion) {
  const Checksum sum = checksum(key);
  std::string file;
  for (unsigned char byte : sum.digest)
    file += fmt::format("{:02x}", byte);
  if (nvrtcVersion > 0)
    file += fmt::format("-{}", nvrtcVersion);
  return file.append(kEntrySuffix);
}

int nvrtcVersionIn(std::string_view fileName, std::string_view key) {
  if (fileName == entryFileName(key))
    return 0;
  const size_t dash = fileName.find('-') + 1;
  int version = 0;
  std::from_chars(fileName.data() + dash, fileName.data() + fileName.size(), version);
  return version > 0 && fileName == entryFileName(key, version) ? version : -1;
}

} // namespace cermet
