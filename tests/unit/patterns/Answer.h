// What matching answers for a text.
#pragma once
#include "ir/dialect/Ops.h"
#include "ir/text/Text.h"
#include "patterns/Match.h"
#include "patterns/Registry.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>

namespace cermet {

inline nlohmann::json answer(const std::string& text) {
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  ir::registerDialects(context);
  std::string error;
  auto module = ir::parseGraph(text, context, error);
  EXPECT_TRUE(module) << error << "\n" << text;
  return module ? nlohmann::json::parse(match(ir::graphFunction(*module), fusions())) : nlohmann::json();
}

} // namespace cermet
