// Plans of graph texts.
#pragma once
#include "compiler/plan/Plan.h"
#include "compiler/program/Dump.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>

namespace cermet::tests {

inline nlohmann::ordered_json planOf(const std::string& text, const std::string& target = "sm_90") {
  std::string answer, error;
  EXPECT_EQ(compileGraph(text, target, Dump(), answer, error), CERMET_OK) << error << text;
  return answer.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json::parse(answer);
}

// How many a graph becomes; a step that is none is a failure.
inline int kernelsOf(const std::string& text) {
  const nlohmann::ordered_json plan = planOf(text);
  if (plan.empty())
    return -1;
  for (const auto& step : plan["steps"])
    EXPECT_EQ(step["kind"], "kernel") << step << text;
  return static_cast<int>(plan["steps"].size());
}

} // namespace cermet::tests
