// Trial: of what only large numbers show, each run of the tests does a little and tests/trial.sh as much as it asks for
// in the environment. What a test saw goes into its XML, where the trial reads it.
#pragma once
#include <cstdlib>
#include <gtest/gtest.h>
#include <string>

namespace cermet {

inline long wanted(const char* variable, long otherwise) {
  const char* value = std::getenv(variable);
  return value ? std::atol(value) : otherwise;
}

template <typename Figure> void saw(const char* what, Figure figure) {
  testing::Test::RecordProperty(what, std::to_string(figure));
}

} // namespace cermet
