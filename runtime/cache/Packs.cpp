#include "runtime/cache/Packs.h"
#include "BuildId.h"
#include "runtime/cache/Payload.h"
#include <algorithm>

namespace cermet {

namespace {

constexpr size_t kDigestDigits = 64;

bool isDigest(std::string_view text) {
  return text.size() == kDigestDigits && text.find_first_not_of("0123456789abcdef") == text.npos;
}

// Its own build, where no entry is this one's.
std::string foreignBuild(const Pack& pack) {
  std::string build;
  for (const Pack::Item& item : pack.items())
    if (const Result<Entry> entry = pack.read(item); entry.ok()) {
      build = entry->key.substr(0, entry->key.find('\n'));
      if (build == CERMET_BUILD_ID)
        return "";
    }
  return build;
}

} // namespace

Result<Packs> Packs::open(std::string_view list) {
  Packs packs;
  while (!list.empty()) {
    const std::string_view one = list.substr(0, list.find(':'));
    list.remove_prefix(std::min(list.size(), one.size() + 1));
    if (one.empty())
      continue;
    const size_t mark = one.rfind('#');
    const bool demands = mark != one.npos && isDigest(one.substr(mark + 1));
    auto pack = Pack::open(std::string(demands ? one.substr(0, mark) : one),
                           std::string(demands ? one.substr(mark + 1) : std::string_view()));
    if (!pack.ok() && pack.status().code() == CERMET_NOT_FOUND)
      return error(CERMET_NOT_FOUND, "a pack cannot be opened: {}; CERMET_PACKS names files with ':' between them",
                   pack.status().message());
    if (!pack.ok())
      return pack.status();
    packs.packs_.push_back(std::move(*pack));
  }
  return packs;
}

std::optional<Packs::Packed> Packs::read(EntryKind kind, const std::string& key,
                                         const std::function<int()>& nvrtcVersion,
                                         const std::function<void(const std::string& what)>& damaged) const {
  for (const auto& pack : packs_) {
    std::vector<const Pack::Item*> items = pack->find(kind, key);
    if (items.size() > 1 && nvrtcVersion) { // several versions of NVRTC's: this process's first
      const auto own = std::find_if(items.begin(), items.end(), [version = nvrtcVersion()](const Pack::Item* item) {
        return item->nvrtcVersion == version;
      });
      if (own != items.end())
        std::rotate(items.begin(), own, own + 1);
    }
    for (const Pack::Item* item : items) {
      const auto content = pack->content(*item);
      const Status problem = content.ok() ? checkAnswer(kind, *content->payload) : content.status();
      if (!problem.ok())
        damaged(fmt::format("the entry '{}/{}' of the pack '{}' is not used: {}", name(kind), item->fileName(),
                            pack->path(), problem.message()));
      else if (content->key == key) // two keys may share a hash
        return Packed{content->payload, item->nvrtcVersion};
    }
  }
  return std::nullopt;
}

std::string Packs::names() const {
  std::string names;
  for (const auto& pack : packs_)
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ", pack->path());
  return names;
}

std::string Packs::foreign() const {
  std::string text;
  for (const auto& pack : packs_)
    if (const std::string build = foreignBuild(*pack); !build.empty())
      text += fmt::format("{}the pack '{}' is of build {}, this is build {}", text.empty() ? "" : "; ", pack->path(),
                          build, CERMET_BUILD_ID);
  return text;
}

} // namespace cermet
