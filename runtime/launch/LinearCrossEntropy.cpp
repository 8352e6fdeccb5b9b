#include "runtime/launch/LinearCrossEntropy.h"
#include "runtime/abi/ElementType.h"
#include "runtime/device/Target.h"
#include <algorithm>
#include <nlohmann/json.hpp>

namespace cermet {

using Json = nlohmann::json;

constexpr int kRowBytes = 16; // what products take at once: rows of logits are whole numbers of them

Result<std::shared_ptr<LinearCrossEntropy>> LinearCrossEntropy::prepare(const std::shared_ptr<Context>& context,
                                                                        std::string_view text, std::string_view target,
                                                                        int device, const Options& options) {
  auto made = std::make_shared<LinearCrossEntropy>();
  const std::string concrete = CERMET_TRY(context->resolveTarget(target));
  // Its values are what a launch takes; its steps would hold all logits at once.
  const auto graph = CERMET_TRY(context->compile(text, concrete));
  const std::string answer = CERMET_TRY(context->linearLoss(text, options.gradients));
  made->context_ = context;
  made->product_ = options.product;
  made->user_ = options.user;
  made->budget_ = options.budget ? options.budget : kLogitsBytes;
  if (!isHostTarget(concrete))
    made->device_ = CERMET_TRY(context->device(device));
  CERMET_RETURN_IF_ERROR(made->read(context, answer, concrete, device));
  CERMET_RETURN_IF_ERROR(made->describe(*graph, options.gradients));
  CERMET_RETURN_IF_ERROR(made->findPlaces());
  CERMET_RETURN_IF_ERROR(made->findPassed());
  const std::string& name = made->signature_.name;
  const int bytes = elementBytes(made->signature_.values[made->hidden_].dtype);
  const uint64_t row = uint64_t(made->leading_) * bytes * (made->isDifferentiated_ && !made->inPlace_ ? 2 : 1);
  if (made->budget_ < row)
    return error(CERMET_INVALID_ARGUMENT, "{}: the budget is {} bytes, expected at least {}: one row of {} logits",
                 name, made->budget_, row, made->columns_);
  if (made->device_ && !made->product_)
    return error(CERMET_UNSUPPORTED,
                 "{}: on {} Cermet has no product; set options->product to a callback that multiplies, as cuBLAS does",
                 name, concrete);
  return made;
}

// The compiler's answer (docs/plan-format.md).
Status LinearCrossEntropy::read(const std::shared_ptr<Context>& context, const std::string& answer,
                                const std::string& target, int device) {
  const Json json = Json::parse(answer, nullptr, false);
  const auto part = [&](const Json& in, const char* key, Part& made) -> Status {
    const auto found = in.find(key);
    if (found == in.end())
      return {};
    const std::string& text =
        found->is_string() ? found->get_ref<const std::string&>() : found->at("text").get_ref<const std::string&>();
    made.plan = CERMET_TRY(context->compile(text, target));
    made.run = CERMET_TRY(Executable::prepare(context, made.plan, device));
    if (found->is_object())
      for (const Json& input : found->at("inputs")) {
        const std::string& from = input.at("from").get_ref<const std::string&>();
        made.inputs.push_back({from == "input"    ? Origin::Input
                               : from == "before" ? Origin::Before
                                                  : Origin::Rows,
                               input.at("index").get<int>()});
      }
    return {};
  };
  try {
    hidden_ = json.at("hidden").get<int>();
    weight_ = json.at("weight").get<int>();
    columns_ = json.at("columns").get<int64_t>();
    const Json& rows = json.at("row_parts");
    CERMET_RETURN_IF_ERROR(part(rows, "before", before_));
    CERMET_RETURN_IF_ERROR(part(rows, "rows", rows_));
    CERMET_RETURN_IF_ERROR(part(rows, "after", after_));
    CERMET_RETURN_IF_ERROR(part(json, "rounded_weight", roundedWeight_));
    CERMET_RETURN_IF_ERROR(part(json, "summed_gradient", summedGradient_));
    return part(json, "summed_bias", summedBias_);
  } catch (const Json::exception& failure) {
    return error(CERMET_INTERNAL, "the compiler's answer about a linear_cross_entropy cannot be read: {}",
                 failure.what());
  }
}

// What a launch takes.
Status LinearCrossEntropy::describe(const Plan& graph, const std::vector<uint8_t>& gradients) {
  signature_.name = graph.name;
  signature_.target = graph.target;
  signature_.symbols = graph.symbols;
  signature_.inputs = graph.inputs;
  signature_.outputs = graph.outputs;
  signature_.values.assign(graph.values.begin(), graph.values.begin() + graph.inputs + graph.outputs);
  for (int input = 0; input < static_cast<int>(gradients.size()); ++input) {
    if (!gradients[input])
      continue;
    isDifferentiated_ = true;
    (input == hidden_   ? toHidden_
     : input == weight_ ? toWeight_
                        : toBias_) = static_cast<int>(signature_.values.size());
    PlanValue gradient = graph.values[input];
    gradient.name = fmt::format("gradient of {}", gradient.name);
    gradient.kind = ValueKind::Output;
    if (gradients[input] == 2)
      gradient.dtype = CERMET_F32;
    signature_.values.push_back(std::move(gradient));
    ++signature_.outputs;
  }
  const PlanValue& hidden = signature_.values[hidden_];
  width_ = hidden.dims[hidden.rank - 1].size;
  const int vector = kRowBytes / elementBytes(hidden.dtype);
  leading_ = (columns_ + vector - 1) / vector * vector;
  return {};
}

// Whether the gradient of logits may lie where they lie.
Status LinearCrossEntropy::findPlaces() {
  const Plan& plan = *rows_.plan;
  const int numbers = plan.outputs - (isDifferentiated_ ? 1 : 0);
  for (int output = 0; output < numbers; ++output) {
    const PlanValue& value = plan.values[plan.inputs + output];
    if (value.rank != 2 || value.dims[1].size != 1)
      return error(CERMET_UNSUPPORTED, "{}: '{}' is as wide as the logits, expected results of one number a row",
                   plan.name, value.name);
  }
  if (!isDifferentiated_)
    return {};
  const auto logits = std::find_if(rows_.inputs.begin(), rows_.inputs.end(), [&](const Origin& origin) {
    return origin.from == Origin::Input && origin.index == signature_.inputs;
  });
  const Json values = Json::parse(plan.json, nullptr, false).at("values");
  const Json places = values.at(plan.inputs + plan.outputs - 1).value("in_place", Json::array());
  inPlace_ = std::find(places.begin(), places.end(), Json(logits - rows_.inputs.begin())) != places.end();
  return {};
}

// Where a result of the graph is a number of each row as the kernel wrote it, the kernel writes it there.
Status LinearCrossEntropy::findPassed() {
  const Plan& rows = *rows_.plan;
  passed_.assign(rows.outputs, -1);
  for (Part* part : {&before_, &rows_, &after_, &roundedWeight_, &summedGradient_, &summedBias_}) {
    if (!part->run)
      continue;
    for (const PlanStep& step : part->plan->steps) {
      if (step.kind != StepKind::External)
        continue;
      const int from = step.externalOperands.size() == 1 ? step.externalOperands[0] : -1;
      const int to = step.externalResults.size() == 1 ? step.externalResults[0] : -1;
      const bool copies = step.name == "cermet.copy" || step.name == "cermet.reshape";
      if (part != &after_ || !copies || from < 0 || from >= part->plan->inputs || to < part->plan->inputs ||
          to >= part->plan->inputs + part->plan->outputs || part->inputs[from].from != Origin::Rows ||
          passed_[part->inputs[from].index] >= 0)
        return error(CERMET_UNSUPPORTED, "{}: {} is an operation that kernels do not compute here", part->plan->name,
                     step.name);
      passed_[part->inputs[from].index] = signature_.inputs + to - part->plan->inputs;
    }
    // What such a step would move lies there already.
    part->run->setExternal([](void*, const char*, const cermet_tensor*, int32_t, int32_t, void*) { return CERMET_OK; },
                           nullptr);
  }
  return {};
}

} // namespace cermet
