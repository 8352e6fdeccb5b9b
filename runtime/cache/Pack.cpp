#include "runtime/cache/Pack.h"
#include "runtime/support/Sha256.h"
#include <algorithm>
#include <cstring>
#include <fcntl.h>

namespace cermet {

namespace {

constexpr char kMagic[8] = {'C', 'E', 'R', 'M', 'P', 'K', '\r', '\n'};
constexpr uint32_t kFormatVersion = 1;

// Little-endian, as the only hosts are.
struct Prefix {
  char magic[8];
  uint32_t version;
  uint32_t entries;
  uint64_t bytes; // of the file
};
static_assert(sizeof(Prefix) == 24);

struct Record {
  char hash[16];
  uint32_t kind; // the place in kEntryKinds
  uint32_t nvrtcVersion;
  uint64_t offset, bytes;
};
static_assert(sizeof(Record) == 40);

Status notWhole(const std::string& path, const std::string& what) {
  return error(CERMET_INVALID_ARGUMENT, "the pack '{}' is not used: {}; make or copy it again", path, what);
}

auto placeOf(const Pack::Item& item) {
  return std::tuple(item.kind, std::string_view(item.hash), item.nvrtcVersion);
}

} // namespace

std::string Pack::Item::fileName() const {
  std::string name;
  for (char byte : hash)
    name += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  if (nvrtcVersion > 0)
    name += fmt::format("-{}", nvrtcVersion);
  return name.append(kEntrySuffix);
}

Result<std::shared_ptr<const Pack>> Pack::open(const std::string& path, const std::string& demanded) {
  uint64_t size = 0;
  Descriptor file = CERMET_TRY(openRegularFile(path, size));
  const std::shared_ptr<Pack> pack(new Pack(path, std::move(file), size));
  pack->whole_ = mapUnchangeable(pack->file_, size);
  if (!demanded.empty()) {
    pack->whole_ = CERMET_TRY(pack->range(0, size));
    if (const std::string digest = sha256(*pack->whole_); digest != demanded)
      return error(CERMET_INVALID_ARGUMENT,
                   "the pack '{}' has digest {}, expected {}; it is not the one that was meant", path, digest,
                   demanded);
  }
  CERMET_RETURN_IF_ERROR(pack->readIndex());
  return std::shared_ptr<const Pack>(pack);
}

Result<Bytes> Pack::range(uint64_t offset, uint64_t bytes) const {
  if (offset > size_ || bytes > size_ - offset)
    return notWhole(path_, "it is truncated");
  if (whole_)
    return partOf(whole_, whole_->substr(offset, bytes));
  std::string read(bytes, '\0');
  CERMET_RETURN_IF_ERROR(readAt(file_, path_, offset, read));
  return hold(std::move(read));
}

Status Pack::readIndex() {
  Prefix prefix;
  if (size_ < sizeof(prefix) + sizeof(Checksum))
    return notWhole(path_, "it is truncated");
  const Bytes head = CERMET_TRY(range(0, sizeof(prefix)));
  std::memcpy(&prefix, head->data(), sizeof(prefix));
  if (std::memcmp(prefix.magic, kMagic, sizeof(kMagic)) != 0)
    return notWhole(path_, "it is no pack");
  if (prefix.version != kFormatVersion)
    return notWhole(path_, fmt::format("it has format version {}, expected {}", prefix.version, kFormatVersion));
  const uint64_t index = sizeof(prefix) + uint64_t(prefix.entries) * sizeof(Record), begin = index + sizeof(Checksum);
  if (prefix.bytes != size_ || begin > size_)
    return notWhole(path_, fmt::format("it has {} bytes, expected {}", size_, prefix.bytes));
  const Bytes held = CERMET_TRY(range(0, begin));
  const std::string_view bytes = *held;
  const Checksum sum = checksum(bytes.substr(0, index));
  if (std::memcmp(&sum, bytes.data() + index, sizeof(sum)) != 0)
    return notWhole(path_, "the checksum of its index is wrong");
  uint64_t next = begin; // entries follow one another, so that no byte belongs to none
  items_.reserve(prefix.entries);
  for (size_t number = 0; number < prefix.entries; ++number) {
    Record record;
    std::memcpy(&record, bytes.data() + sizeof(prefix) + number * sizeof(record), sizeof(record));
    if (record.kind >= std::size(kEntryKinds) || record.nvrtcVersion > INT32_MAX || record.offset != next ||
        record.bytes > size_ - next)
      return notWhole(path_, fmt::format("record {} of its index is none", number));
    next += record.bytes;
    items_.push_back({kEntryKinds[record.kind], std::string(record.hash, sizeof(record.hash)),
                      static_cast<int>(record.nvrtcVersion), record.offset, record.bytes});
    if (number > 0 && !(placeOf(items_[number - 1]) < placeOf(items_[number])))
      return notWhole(path_, fmt::format("record {} of its index is out of order", number));
  }
  return next == size_ ? Status()
                       : notWhole(path_, fmt::format("its entries have {} bytes less than it", size_ - next));
}

std::vector<const Pack::Item*> Pack::find(EntryKind kind, const std::string& key) const {
  const std::string hash = hashOf(key);
  const auto first = std::partition_point(items_.begin(), items_.end(), [&](const Item& item) {
    return std::tuple(item.kind, std::string_view(item.hash)) < std::tuple(kind, std::string_view(hash));
  });
  std::vector<const Item*> found;
  for (auto item = first; item != items_.end() && item->kind == kind && item->hash == hash; ++item)
    found.push_back(&*item);
  std::reverse(found.begin(), found.end());
  return found;
}

Result<std::string> Pack::bytes(const Item& item) const {
  const Bytes bytes = CERMET_TRY(range(item.offset, item.bytes));
  return std::string(*bytes);
}

Result<EntryView> Pack::view(const Item& item, std::string_view bytes) const {
  const EntryView entry = CERMET_TRY(decodeInPlace(bytes));
  if (entry.kind != item.kind || entry.nvrtcVersion != item.nvrtcVersion || hashOf(entry.key) != item.hash)
    return error(CERMET_NOT_FOUND, "it is another than its record in the pack's index says");
  return entry;
}

Result<Entry> Pack::read(const Item& item) const {
  const Bytes bytes = CERMET_TRY(range(item.offset, item.bytes));
  return CERMET_TRY(view(item, *bytes)).copy();
}

Result<Pack::Content> Pack::content(const Item& item) const {
  const Bytes bytes = CERMET_TRY(range(item.offset, item.bytes));
  const EntryView entry = CERMET_TRY(view(item, *bytes));
  return Content{std::string(entry.key), whole_ ? partOf(whole_, entry.payload) : hold(std::string(entry.payload))};
}

Result<std::string> Pack::digest() const {
  const Bytes bytes = CERMET_TRY(range(0, size_));
  return sha256(*bytes);
}

void PackWriter::add(const Entry& entry) {
  entries_.try_emplace({entry.kind, hashOf(entry.key), entry.nvrtcVersion}, encode(entry));
}

Status PackWriter::add(std::string bytes) {
  const Entry entry = CERMET_TRY(decode(bytes));
  entries_.try_emplace({entry.kind, hashOf(entry.key), entry.nvrtcVersion}, std::move(bytes));
  return {};
}

Status PackWriter::add(const Pack& pack) {
  for (const Pack::Item& item : pack.items()) {
    CERMET_RETURN_IF_ERROR(pack.read(item).status());
    CERMET_RETURN_IF_ERROR(add(CERMET_TRY(pack.bytes(item))));
  }
  return {};
}

Result<PackWriter::Written> PackWriter::write(const std::string& path) const {
  const uint64_t begin = sizeof(Prefix) + entries_.size() * sizeof(Record) + sizeof(Checksum);
  Prefix prefix;
  std::memcpy(prefix.magic, kMagic, sizeof(kMagic));
  prefix.version = kFormatVersion;
  prefix.entries = static_cast<uint32_t>(entries_.size());
  prefix.bytes = begin;
  for (const auto& [place, bytes] : entries_)
    prefix.bytes += bytes.size();
  std::string all(reinterpret_cast<const char*>(&prefix), sizeof(prefix));
  all.reserve(prefix.bytes);
  uint64_t next = begin;
  for (const auto& [place, bytes] : entries_) {
    const auto& [kind, hash, nvrtcVersion] = place;
    Record record;
    std::memcpy(record.hash, hash.data(), sizeof(record.hash));
    record.kind = static_cast<uint32_t>(kind);
    record.nvrtcVersion = static_cast<uint32_t>(nvrtcVersion);
    record.offset = next;
    record.bytes = bytes.size();
    next += bytes.size();
    all.append(reinterpret_cast<const char*>(&record), sizeof(record));
  }
  const Checksum sum = checksum(all);
  all.append(reinterpret_cast<const char*>(&sum), sizeof(sum));
  for (const auto& [place, bytes] : entries_)
    all += bytes;
  CERMET_RETURN_IF_ERROR(publishFile(path, all));
  return Written{entries_.size(), all.size(), sha256(all)};
}

} // namespace cermet
