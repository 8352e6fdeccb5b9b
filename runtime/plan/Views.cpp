#include "runtime/plan/Views.h"
#include "runtime/abi/ElementType.h"
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

namespace cermet {

using nlohmann::json;

namespace {

constexpr std::string_view kKinds[] = {"slice", "transpose", "reshape", "broadcast"};

// One integer from 0 to `limit` for each of `count` dimensions.
Status parseNumbers(const json& item, const char* field, const PlanValue& value, int count, int64_t limit,
                    int64_t* numbers) {
  const json& list = item.at(field);
  const auto isNumber = [&](const json& one) {
    return one.is_number_integer() && !(one.is_number_unsigned() && one.get<uint64_t>() > uint64_t(limit)) &&
           one.get<int64_t>() >= 0 && one.get<int64_t>() <= limit;
  };
  if (!list.is_array() || list.size() != size_t(count) || !std::all_of(list.begin(), list.end(), isNumber))
    return damagedPlan("view '{}' has {} {}, expected {} numbers from 0 to {}", value.name, field, list.dump(), count,
                       limit);
  for (const json& one : list)
    *numbers++ = one.get<int64_t>();
  return {};
}

Status checkRank(const PlanValue& value, const PlanValue& source) {
  if (value.rank == source.rank)
    return {};
  return damagedPlan("view '{}' has {} dimensions, '{}' has {}", value.name, value.rank, source.name, source.rank);
}

Status doesNotFit(const PlanValue& value, const PlanValue& source, std::string_view kind, int dim) {
  return damagedPlan("view '{}' is no {} of '{}': dimension {} does not fit", value.name, kind, source.name, dim);
}

Status parseSlice(const json& item, const PlanValue& value, const PlanValue& source, PlanView& view) {
  CERMET_RETURN_IF_ERROR(checkRank(value, source));
  CERMET_RETURN_IF_ERROR(parseNumbers(item, "starts", value, value.rank, kMaxDimension, view.starts.data()));
  for (int dim = 0; dim < value.rank; ++dim)
    if (!value.dims[dim].symbolic() && !source.dims[dim].symbolic() &&
        value.dims[dim].size > source.dims[dim].size - view.starts[dim])
      return doesNotFit(value, source, "slice", dim);
  return {};
}

Status parseTranspose(const json& item, const PlanValue& value, const PlanValue& source, PlanView& view) {
  CERMET_RETURN_IF_ERROR(checkRank(value, source));
  int64_t permutation[kMaxRank];
  CERMET_RETURN_IF_ERROR(
      parseNumbers(item, "permutation", value, value.rank, std::max(value.rank - 1, 0), permutation));
  unsigned seen = 0;
  for (int dim = 0; dim < value.rank; ++dim) {
    seen |= 1u << permutation[dim];
    view.permutation[dim] = static_cast<int8_t>(permutation[dim]);
    if (value.dims[dim] != source.dims[permutation[dim]])
      return doesNotFit(value, source, "transpose", dim);
  }
  if (seen != (1u << value.rank) - 1)
    return damagedPlan("view '{}': {} is no permutation", value.name, item.at("permutation").dump());
  return {};
}

// The number of elements; none where it is not known, -1 where it does not fit 63 bits.
std::optional<int64_t> elementsOf(const PlanValue& value) {
  int64_t elements = 1;
  bool overflows = false, empty = false;
  for (int dim = 0; dim < value.rank; ++dim) {
    if (value.dims[dim].symbolic())
      return std::nullopt;
    empty |= value.dims[dim].size == 0;
    overflows |= __builtin_mul_overflow(elements, value.dims[dim].size, &elements);
  }
  return empty ? 0 : overflows ? -1 : elements;
}

Status checkReshape(const PlanValue& value, const PlanValue& source) {
  const std::optional<int64_t> given = elementsOf(source), wanted = elementsOf(value);
  if ((given && *given < 0) || (wanted && *wanted < 0) || (given && wanted && *given != *wanted))
    return damagedPlan("view '{}' has not the number of elements of '{}'", value.name, source.name);
  return {};
}

Status checkBroadcast(const PlanValue& value, const PlanValue& source) {
  if (source.rank > value.rank)
    return checkRank(value, source);
  for (int dim = value.rank - source.rank; dim < value.rank; ++dim) {
    const Dimension &wide = value.dims[dim], &narrow = source.dims[dim - (value.rank - source.rank)];
    if (!wide.symbolic() && !narrow.symbolic() && narrow.size != 1 && narrow.size != wide.size)
      return doesNotFit(value, source, "broadcast", dim);
  }
  return {};
}

} // namespace

Status parseView(const json& item, const PlanValue& value, Plan& plan) {
  const int index = static_cast<int>(plan.values.size()); // values from here on are not yet known
  const json& of = item.at("of");
  if (!of.is_number_integer() || of.get<int64_t>() < 0 || of.get<int64_t>() >= index)
    return damagedPlan("view '{}' is of {}, expected the number of a value before it", value.name, of.dump());
  PlanView view;
  view.source = of.get<int>();
  const PlanValue& source = plan.values[view.source];
  if (value.dtype != source.dtype)
    return damagedPlan("view '{}' has dtype {}, '{}' has {}", value.name, elementName(value.dtype), source.name,
                       elementName(source.dtype));
  const std::string kind = item.at("view").get<std::string>();
  const auto* found = std::find(std::begin(kKinds), std::end(kKinds), kind);
  if (found == std::end(kKinds))
    return damagedPlan("view '{}' is a '{}', expected slice, transpose, reshape or broadcast", value.name, kind);
  view.kind = static_cast<ViewKind>(found - kKinds);
  // This view's own entry is not in plan.views yet, so the source is found as if there were no later value.
  const int firstView = index - static_cast<int>(plan.views.size());
  const PlanView* inner = view.source < firstView ? nullptr : &plan.views[view.source - firstView];
  view.root = inner ? inner->root : view.source;
  view.repeats = view.kind == ViewKind::Broadcast || (inner && inner->repeats);
  switch (view.kind) {
  case ViewKind::Slice:
    CERMET_RETURN_IF_ERROR(parseSlice(item, value, source, view));
    break;
  case ViewKind::Transpose:
    CERMET_RETURN_IF_ERROR(parseTranspose(item, value, source, view));
    break;
  case ViewKind::Reshape:
    CERMET_RETURN_IF_ERROR(checkReshape(value, source));
    break;
  case ViewKind::Broadcast:
    CERMET_RETURN_IF_ERROR(checkBroadcast(value, source));
    break;
  }
  plan.views.push_back(view);
  return {};
}

Status checkWritten(const Plan& plan, int value, const std::string& step) {
  const std::string& name = plan.values[value].name;
  if (plan.values[plan.root(value)].kind == ValueKind::Input)
    return plan.view(value)
               ? damagedPlan("'{}' writes '{}', a view of input '{}'", step, name, plan.values[plan.root(value)].name)
               : damagedPlan("'{}' writes input '{}'", step, name);
  if (plan.view(value) && plan.view(value)->repeats)
    return damagedPlan("'{}' writes '{}', whose elements repeat", step, name);
  return {};
}

} // namespace cermet
