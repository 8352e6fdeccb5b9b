// The views of a plan: what parsePlan() accepts of them.
#pragma once
#include "runtime/plan/Plan.h"
#include <nlohmann/json_fwd.hpp>

namespace cermet {

template <typename... Arguments> Status damagedPlan(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  return error(CERMET_INTERNAL, "damaged plan: {}", fmt::format(format, std::forward<Arguments>(arguments)...));
}

// Appends to plan.views what `value`, the next of the plan's values, is a view of. Dimensions that are symbols are
// compared by a launch.
Status parseView(const nlohmann::json& item, const PlanValue& value, Plan& plan);

// A step writes no input, and nothing through a view that repeats elements.
Status checkWritten(const Plan& plan, int value, const std::string& step);

} // namespace cermet
