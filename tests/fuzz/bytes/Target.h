// What libFuzzer (or Mutations.cpp, where there is none) calls with bytes that may be anything. A program has one.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fmt/format.h>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace cermet {

// Ends the process, as a sanitizer's finding does.
inline void must(bool holds, std::string_view what) {
  if (holds)
    return;
  fmt::print(stderr, "not so: {}\n", what);
  std::abort();
}

} // namespace cermet
