#include "runtime/support/Sha256.h"
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/types.h>
#include <sha256.h>

namespace cermet {

std::string sha256(std::string_view bytes) {
  SHA2_CTX context;
  SHA256Init(&context);
  SHA256Update(&context, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  std::array<uint8_t, SHA256_DIGEST_LENGTH> digest{};
  SHA256Final(digest.data(), &context);
  return fmt::format("{:02x}", fmt::join(digest, ""));
}

} // namespace cermet
