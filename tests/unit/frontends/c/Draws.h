// Draws: what a caller of the C interface in any order with any arguments draws from numbers, and what must be true of
// each call's end.
#pragma once
#include "frontends/c/cermet.h"
#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <utility>
#include <vector>

namespace cermet {

class Draws {
public:
  // Numbers of at least so many bits, from wherever they come.
  using Numbers = std::function<uint64_t(int bits)>;
  explicit Draws(Numbers numbers) : numbers_(std::move(numbers)) {}

  uint64_t number(int bits) { return numbers_(bits); }
  int below(int bound) { return static_cast<int>(numbers_(8) % static_cast<unsigned>(bound)); }
  bool rarely() { return below(8) == 0; }
  // Not more than there is, or a lie that is seen.
  size_t someSize(size_t whole) {
    const size_t size = rarely() ? numbers_(64) >> below(64) : whole;
    return size > whole && size <= 4096 ? whole : size;
  }
  // An empty one where there is none.
  template <typename Each> Each any(const std::vector<Each>& all) {
    return all.empty() || below(16) == 0 ? Each{} : all[numbers_(8) % all.size()];
  }

  // What an output holds before a call, and must hold after one that failed.
  template <typename Pointer> static Pointer untouched() { return reinterpret_cast<Pointer>(uintptr_t(0x5a5a)); }

  bool ended(cermet_status status, const char* what) { return ended(status, what, 0, 0); }
  // `output` is what it is after the call.
  template <typename Output> bool ended(cermet_status status, const char* what, const Output& output, Output before) {
    EXPECT_STRNE(cermet_status_name(status), "unknown status") << what;
    EXPECT_NE(status, CERMET_INTERNAL) << what << ": " << cermet_error_message();
    if (status == CERMET_OK)
      return ++succeeded;
    EXPECT_STRNE(cermet_error_message(), "") << what;
    EXPECT_EQ(output, before) << what << ": " << cermet_error_message();
    ++failed;
    return false;
  }
  int succeeded = 0, failed = 0;

private:
  Numbers numbers_;
};

// What was made behind what was lent.
template <typename Each> std::vector<Each> made(const std::vector<Each>& all, const std::vector<Each>& lent) {
  return {all.begin() + static_cast<std::ptrdiff_t>(lent.size()), all.end()};
}

} // namespace cermet
