// Sha256: FIPS 180-4's hash, for what somebody demands by name and must not be able to be anything else. Tools that
// print it (sha256sum) agree.
#pragma once
#include <string>
#include <string_view>

namespace cermet {

// As 64 hexadecimal digits.
std::string sha256(std::string_view bytes);

} // namespace cermet
