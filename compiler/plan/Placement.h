// What a caller may choose about the memory of a plan's outputs, told by the plan itself (docs/plan-format.md,
// "Outputs").
#pragma once
#include <nlohmann/json.hpp>

namespace cermet {

// Adds `in_place` and `together` to the outputs among a plan's values, where they have any.
void tellPlacement(nlohmann::ordered_json& values, const nlohmann::ordered_json& steps);

} // namespace cermet
