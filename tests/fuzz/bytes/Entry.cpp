// Bytes of a cache entry: refused, or an entry that comes back as it went. Each input is tried as it is and with the
// checksum that it would need, so that what lies behind the checksum is reached.
#include "runtime/cache/Entry.h"
#include "runtime/cache/Payload.h"
#include "tests/fuzz/bytes/Target.h"
#include <cstring>
#include <string>

namespace {

using namespace cermet;

void tryOut(const std::string& bytes) {
  const Result<Entry> entry = decode(bytes);
  must(entry.ok() || !entry.status().message().empty(), "what is refused is refused with words");
  if (!entry.ok())
    return;
  must(nvrtcVersionIn(entryFileName(entry->key, entry->nvrtcVersion), entry->key) == entry->nvrtcVersion,
       "a file's name has the version");
  (void)title(*entry);
  (void)checkPayload(*entry);
  const Result<Entry> again = decode(encode(*entry));
  must(again.ok() && again->kind == entry->kind && again->key == entry->key && again->payload == entry->payload &&
           again->nvrtcVersion == entry->nvrtcVersion,
       "an entry comes back as it went");
}

} // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  tryOut(bytes);
  if (size < sizeof(Checksum))
    return 0;
  const Checksum sum = checksum(std::string_view(bytes).substr(0, size - sizeof(Checksum)));
  std::memcpy(bytes.data() + size - sizeof(Checksum), &sum, sizeof(sum));
  tryOut(bytes);
  return 0;
}
