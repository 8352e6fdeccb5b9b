// Graphs with a loss of a linear layer as the fake compiler has them: a plan that says what a launch takes, and under
// "linear_loss" what it is cut into. Their kernels are in fake_kernels.cpp.
#pragma once
#include "tests/unit/runtime/Plans.h"
#include <utility>

namespace cermet {

inline Json lossValue(const char* name, const char* kind, Json dims, const char* dtype = "f32") {
  return {{"name", name}, {"kind", kind}, {"dtype", dtype}, {"dims", std::move(dims)}};
}

// [a, b, 1] of what is [a, b]
inline Json lossColumn(const char* name, int of, const char* dtype = "f32") {
  Json view = lossValue(name, "view", {"a", "b", 1}, dtype);
  view["of"] = of;
  view["view"] = "reshape";
  return view;
}

inline Json lossOperand(int value, const char* kind, bool output = false, const char* dtype = "f32") {
  return {{"value", value}, {"kind", kind}, {"dtype", dtype}, {"output", output}};
}

// A kernel of entries of that name, which sums over rows where `sums`.
inline Json lossStep(const std::string& name, int columns, Json operands, bool sums = false) {
  Json step = scalePlan()["steps"][0];
  step["name"] = name;
  step["columns"] = columns;
  step["vector"] = 1;
  step["blocks_per_sm"] = sums ? 2 : 0;
  step["accumulators"] = sums ? 1 : 0;
  step["entries"] = {{"vector", name}, {"scalar", name}, {"fold", sums ? name + "_fold" : ""}};
  step["operands"] = std::move(operands);
  return step;
}

// With one step, or none.
inline Json lossGraph(const char* name, Json values, const Json& step = nullptr) {
  Json plan = scalePlan();
  plan["name"] = name;
  plan["values"] = std::move(values);
  plan["steps"] = Json::array();
  if (!step.is_null())
    plan["steps"].push_back(step);
  return plan;
}

inline Json lossPart(const Json& plan, std::vector<std::pair<const char*, int>> inputs) {
  Json part{{"text", plan.dump()}, {"inputs", Json::array()}};
  for (const auto& [from, index] : inputs)
    part["inputs"].push_back({{"from", from}, {"index", index}});
  return part;
}

// hidden[a, b, 8], weight[8, 8], bias[8] and labels[a, b] to the total of all rows; `isEach`: to a number for each row
// [a, b] and the total. With gradients of all three but where `isEach`, `inPlace` in the memory of the logits.
inline Json lossPlan(bool isEach, bool inPlace = true) {
  constexpr int kBias = 2, kLabels = 3, kLogits = 4;
  Json plan = lossGraph("loss", {lossValue("hidden", "input", {"a", "b", 8}), lossValue("weight", "input", {8, 8}),
                                 lossValue("bias", "input", {8}), lossValue("labels", "input", {"a", "b"}, "i64")});
  if (isEach)
    plan["values"].push_back(lossValue("each", "output", {"a", "b"}));
  plan["values"].push_back(lossValue("total", "output", Json::array()));

  const Json before =
      lossGraph("before",
                {lossValue("labels", "input", {"a", "b"}, "i64"), lossValue("kept", "output", {"a", "b", 1}),
                 lossColumn("labels.1", 0, "i64")},
                lossStep("kept_rows", 1, {lossOperand(2, "row", false, "i64"), lossOperand(1, "row", true)}));

  Json rows = lossGraph("rows",
                        {lossValue("logits", "input", {"rows", 8}), lossValue("bias", "input", {8}),
                         lossValue("labels", "input", {"rows", 1}, "i64"), lossValue("kept", "input", {"rows", 1}),
                         lossValue("number", "output", {"rows", 1})},
                        lossStep("loss_rows", 8,
                                 {lossOperand(0, "tile"), lossOperand(1, "column"), lossOperand(2, "row", false, "i64"),
                                  lossOperand(3, "row"), lossOperand(4, "row", true)}));
  Json differentiated = rows;
  differentiated["values"].push_back(lossValue("gradient", "output", {"rows", 8}));
  differentiated["steps"][0] = lossStep("gradient_rows", 8, rows["steps"][0]["operands"]);
  differentiated["steps"][0]["operands"].push_back(lossOperand(5, "tile", true));
  if (inPlace)
    differentiated["values"][5]["in_place"] = {0};

  Json after =
      lossGraph("after", {lossValue("number", "input", {"a", "b"}), lossValue("kept", "input", {"a", "b", 1})});
  if (isEach) {
    after["values"].push_back(lossValue("each", "output", {"a", "b"}));
    after["steps"].push_back({{"kind", "external"}, {"op", "cermet.copy"}, {"operands", {0}}, {"results", {2}}});
  }
  const int total = static_cast<int>(after["values"].size());
  after["values"].push_back(lossValue("total", "output", Json::array()));
  after["values"].push_back(lossColumn("number.1", 0));
  after["steps"].push_back(
      lossStep("total_rows", 1,
               {lossOperand(total + 1, "tile"), lossOperand(1, "tile"), lossOperand(total, "column", true)}, true));

  const Json rounded =
      lossGraph("rounded_weight", {lossValue("x", "input", {"rows", 8}), lossValue("y", "output", {"rows", 8})},
                lossStep("copy_rows", 8, {lossOperand(0, "tile"), lossOperand(1, "tile", true)}));
  const Json summed =
      lossGraph("summed", {lossValue("x", "input", {"rows", 8}), lossValue("total", "output", {8})},
                lossStep("sum_rows", 8, {lossOperand(0, "tile"), lossOperand(1, "column", true)}, true));

  const std::vector<std::pair<const char*, int>> inputs = {
      {"input", kLogits}, {"input", kBias}, {"input", kLabels}, {"before", 0}};
  Json loss{{"format", "cermet.gradient.1"}, {"hidden", 0}, {"weight", 1}, {"columns", 8}};
  loss["row_parts"] = {{"before", lossPart(before, {{"input", kLabels}})},
                       {"rows", lossPart(rows, inputs)},
                       {"after", lossPart(after, {{"rows", 0}, {"before", 0}})}};
  Json gradient = loss;
  gradient["row_parts"]["rows"] = lossPart(differentiated, inputs);
  gradient["rounded_weight"] = rounded.dump();
  gradient["summed_gradient"] = summed.dump();
  gradient["summed_bias"] = summed.dump();
  plan["linear_loss"] = {{"wanted", {2, 2, 2, 0}}, {"bias", kBias}, {"loss", loss}};
  if (!isEach)
    plan["linear_loss"]["gradient"] = gradient;
  return plan;
}

} // namespace cermet
