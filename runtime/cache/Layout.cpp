#include "runtime/cache/Layout.h"
#include <ctime>
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace cermet {

// A writer locks its file as soon as it has made it, and writes another where somebody was too quick; where there are
// no locks, an hour is long after it is done.
constexpr time_t kNewSeconds = 2, kTemporarySeconds = 60 * 60;

std::optional<FileRole> roleOf(std::string_view name, std::string_view suffix) {
  if (name.starts_with(kTemporaryPrefix))
    return FileRole::Temporary;
  if (name.ends_with(suffix))
    return FileRole::Kept;
  if (name.ends_with(kBadSuffix) && name.substr(0, name.size() - kBadSuffix.size()).ends_with(suffix))
    return FileRole::Aside;
  return std::nullopt;
}

bool isAbandoned(const Folder& folder, const Folder::Item& temporary) {
  const time_t age = time(nullptr) - temporary.state.st_mtime;
  return age > kTemporarySeconds || (age > kNewSeconds && folder.isLocked(temporary.name) == false);
}

uint64_t makersByte(EntryKind kind, std::string_view fileName) {
  const std::string name = fmt::format("{}/{}", cermet::name(kind), fileName);
  return XXH3_64bits(name.data(), name.size()) >> 2;
}

} // namespace cermet
