#include "runtime/support/Bytes.h"
#include <algorithm>
#include <fcntl.h>
#include <iterator>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

namespace cermet {

namespace {

// File systems that have no way to write, whatever they are mounted with.
constexpr int64_t kNeverWritten[] = {SQUASHFS_MAGIC, EROFS_SUPER_MAGIC_V1, CRAMFS_MAGIC, ISOFS_SUPER_MAGIC};

class Mapping {
public:
  Mapping(void* begin, size_t size) : begin_(begin), size_(size) {}
  ~Mapping() { munmap(begin_, size_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::string_view bytes() const { return {static_cast<const char*>(begin_), size_}; }

private:
  void* const begin_;
  const size_t size_;
};

template <typename Owner> struct Held {
  Owner owner;
  std::string_view bytes;
};

template <typename Owner> Bytes held(Owner owner, std::string_view bytes) {
  const auto both = std::make_shared<const Held<Owner>>(Held<Owner>{std::move(owner), bytes});
  return {both, &both->bytes};
}

} // namespace

Bytes hold(std::string bytes) {
  const auto owner = std::make_shared<const std::string>(std::move(bytes));
  return held(owner, *owner);
}

Bytes partOf(const Bytes& whole, std::string_view part) {
  return held(whole, part);
}

FileFacts factsOf(const Descriptor& file) {
  FileFacts facts;
  if (const int seals = fcntl(file.number(), F_GET_SEALS); seals > 0)
    facts.seals = seals;
  struct statx state {};
  if (statx(file.number(), "", AT_EMPTY_PATH, 0, &state) == 0)
    facts.attributes = state.stx_attributes;
  struct statfs system {};
  if (fstatfs(file.number(), &system) == 0)
    facts.system = static_cast<uint32_t>(system.f_type);
  return facts;
}

bool isUnchangeable(const FileFacts& facts) {
  return ((facts.seals & F_SEAL_SHRINK) && (facts.seals & F_SEAL_WRITE)) || (facts.attributes & STATX_ATTR_VERITY) ||
         std::find(std::begin(kNeverWritten), std::end(kNeverWritten), facts.system) != std::end(kNeverWritten);
}

Bytes mapUnchangeable(const Descriptor& file, uint64_t size) {
  if (size == 0 || !isUnchangeable(factsOf(file)))
    return nullptr;
  void* begin = mmap(nullptr, size, PROT_READ, MAP_SHARED, file.number(), 0);
  if (begin == MAP_FAILED)
    return nullptr;
  const auto mapping = std::make_shared<const Mapping>(begin, size);
  return held(mapping, mapping->bytes());
}

} // namespace cermet
