// Bytes of a pack: refused, or every entry of it is read or refused, and what is read is found by its key. Each input
// is tried as it is and with the checksums that it would need, of its index and of each entry that its index names.
#include "runtime/cache/Pack.h"
#include "runtime/cache/Entry.h"
#include "tests/fuzz/bytes/Target.h"
#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

namespace {

using namespace cermet;

constexpr size_t kPrefix = 24, kRecord = 40, kOffset = 24; // docs/cache-format.md

void mend(std::string& bytes, size_t from, size_t size) {
  if (size <= sizeof(Checksum) || from > bytes.size() || size > bytes.size() - from)
    return;
  const Checksum sum = checksum(std::string_view(bytes).substr(from, size - sizeof(Checksum)));
  std::memcpy(bytes.data() + from + size - sizeof(Checksum), &sum, sizeof(sum));
}

void mendAll(std::string& bytes) {
  if (bytes.size() < kPrefix)
    return;
  uint32_t entries = 0;
  std::memcpy(&entries, bytes.data() + 12, sizeof(entries));
  const uint64_t size = bytes.size(), index = kPrefix + entries * uint64_t(kRecord);
  std::memcpy(bytes.data() + 16, &size, sizeof(size));
  for (uint64_t record = kPrefix; record < std::min<uint64_t>(index, size / kRecord * kRecord); record += kRecord) {
    uint64_t place[2] = {};
    if (record + kRecord <= size)
      std::memcpy(place, bytes.data() + record + kOffset, sizeof(place));
    mend(bytes, place[0], place[1]);
  }
  mend(bytes, 0, index + sizeof(Checksum));
}

// As a file that may change, which is read, or as one that may not, which is mapped.
void tryOut(const std::string& bytes, bool mapped) {
  const Descriptor file(memfd_create("pack", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  must(write(file.number(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()) &&
           (!mapped || fcntl(file.number(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_WRITE) == 0),
       "a file in memory can be written");
  const auto pack = Pack::open(fmt::format("/proc/self/fd/{}", file.number()));
  if (!pack.ok())
    return;
  PackWriter writer;
  for (const Pack::Item& item : (*pack)->items()) {
    const Result<Entry> entry = (*pack)->read(item);
    const auto content = (*pack)->content(item);
    must(entry.ok() == content.ok() &&
             (!entry.ok() || (content->key == entry->key && *content->payload == entry->payload)),
         "both ways to read an entry agree");
    if (!entry.ok())
      continue;
    const auto found = (*pack)->find(entry->kind, entry->key);
    must(std::find(found.begin(), found.end(), &item) != found.end(), "what is read is found by its key");
    writer.add(*entry);
  }
}

} // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  tryOut(bytes, size % 2 == 0);
  mendAll(bytes);
  for (const bool mapped : {false, true})
    tryOut(bytes, mapped);
  return 0;
}
