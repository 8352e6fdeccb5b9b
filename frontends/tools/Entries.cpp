#include "frontends/tools/Entries.h"
#include "BuildId.h"
#include <cstdio>
#include <nlohmann/json.hpp>

namespace cermet::tools {

constexpr size_t kShownOfHash = 12; // enough to name one of millions

void printLine(const Entry& entry, uint64_t bytes, std::string_view fileName) {
  fmt::print("{:<9} {:>9}  {}  {}\n", name(entry.kind), bytes, fileName.substr(0, kShownOfHash), title(entry));
}

void printWhole(const Entry& entry, uint64_t bytes, std::string_view where) {
  const std::string_view key = entry.key, build = key.substr(0, key.find('\n'));
  fmt::print("{}\n  kind      {}\n  for       {}\n  bytes     {}, {} of the payload\n  build     {}{}\n", where,
             name(entry.kind), title(entry), bytes, entry.payload.size(), build,
             build == CERMET_BUILD_ID ? ", this one" : fmt::format(", this one is {}", CERMET_BUILD_ID));
  if (entry.nvrtcVersion > 0)
    fmt::print("  NVRTC     {}.{}\n", entry.nvrtcVersion / 1000, entry.nvrtcVersion % 1000 / 10);
  fmt::print("key:\n{}\n", key.substr(std::min(key.size(), build.size() + 1)));
  const auto json = nlohmann::ordered_json::parse(entry.payload, nullptr, false);
  if (!json.is_discarded())
    fmt::print("payload:\n{}\n", json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace));
}

void printWritten(std::string_view path, const PackWriter::Written& written) {
  fmt::print("{}: {} entries, {} bytes, digest {}\n", path, written.entries, written.bytes, written.digest);
}

} // namespace cermet::tools
