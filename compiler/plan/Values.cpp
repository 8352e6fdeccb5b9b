#include "compiler/plan/Values.h"
#include "ir/dialect/ElementTypes.h"
#include "ir/dialect/Ops.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "runtime/abi/Limits.h"
#include <algorithm>
#include <fmt/format.h>
#include <numeric>
#include <optional>
#include <set>

using namespace mlir;

namespace cermet {
namespace {

PlanValues::Json dimensionsOf(Type type) {
  PlanValues::Json result = PlanValues::Json::array();
  if (auto tensor = dyn_cast<RankedTensorType>(type))
    for (const ir::Dimension& dimension : ir::dimensions(tensor))
      result.push_back(dimension.isSymbol() ? PlanValues::Json(dimension.symbol.str())
                                            : PlanValues::Json(dimension.size));
  return result;
}

} // namespace

bool isDense(Value value) {
  while (Operation* op = value.getDefiningOp()) {
    if (!isa<ir::ReshapeOp>(op))
      return !isa<ir::TransposeOp, ir::SliceOp>(op);
    if (!isReshapeView(op))
      return true;
    value = op->getOperand(0);
  }
  auto type = cast<RankedTensorType>(value.getType());
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    auto function = cast<func::FuncOp>(argument.getOwner()->getParentOp());
    auto strides = function.getArgAttrOfType<DenseI64ArrayAttr>(argument.getArgNumber(), "cermet.strides");
    int64_t expected = 1;
    for (int64_t dim = type.getRank(); strides && dim-- > 0;) {
      if (type.isDynamicDim(dim) && dim != 0)
        return false;
      if (type.getShape()[dim] != 1 && strides.asArrayRef()[dim] != expected)
        return false;
      expected *= type.getShape()[dim];
    }
  }
  return true;
}

bool isReshapeView(Operation* reshape) {
  Value source = reshape->getOperand(0);
  if (isDense(source))
    return true;
  ir::Dimensions from = ir::dimensions(cast<RankedTensorType>(source.getType()));
  ir::Dimensions to = ir::dimensions(cast<RankedTensorType>(reshape->getResult(0).getType()));
  auto isOne = [](const ir::Dimension& dimension) { return dimension.isOne(); };
  llvm::erase_if(from, isOne);
  llvm::erase_if(to, isOne);
  size_t next = 0;
  for (const ir::Dimension& dimension : from) {
    if (next < to.size() && to[next] == dimension) {
      ++next;
      continue;
    }
    if (dimension.isSymbol())
      return false;
    int64_t product = 1;
    while (product < dimension.size && next < to.size() && !to[next].isSymbol())
      product *= to[next++].size;
    if (product != dimension.size)
      return false;
  }
  return next == to.size();
}

std::string PlanValues::error() const {
  if (!message.empty())
    return message;
  std::set<std::string> symbols;
  for (const Entry& entry : entries)
    if (entry.kind == Input)
      for (const Json& dimension : entry.json["dims"])
        if (dimension.is_string())
          symbols.insert(dimension.get<std::string>());
  if (symbols.size() > size_t(kMaxSymbols))
    return fmt::format("the graph's inputs have {} symbolic dimensions, a plan has at most {}", symbols.size(),
                       kMaxSymbols);
  for (const Entry& entry : entries)
    for (const Json& dimension : entry.json["dims"])
      if (dimension.is_string() && !symbols.contains(dimension.get<std::string>()))
        return fmt::format("{} has the size {}, which no argument of the graph has; a launch learns sizes from those",
                           entry.json["name"].get<std::string>(), dimension.get<std::string>());
  if (entries.size() > size_t(kMaxValues))
    return fmt::format("the graph needs {} values, a plan has at most {}", entries.size(), kMaxValues);
  return "";
}

int PlanValues::add(Kind kind, const std::string& name, Type type) {
  const std::optional<cermet_dtype> dtype = ir::elementTypeOf(type);
  if (!dtype && message.empty())
    message = fmt::format("{} has type {}; a plan's values are tensors and numbers of {}", name, ir::typeText(type),
                          elementNames(/*inKernels=*/false));
  return add(kind, name, dtype ? elementName(*dtype) : "", dimensionsOf(type));
}

int PlanValues::add(Kind kind, const std::string& name, const std::string& dtype, Json dims) {
  constexpr const char* kinds[] = {"input", "output", "buffer", "view"};
  entries.push_back({kind,
                     {{"name", name}, {"kind", kinds[kind]}, {"dtype", dtype}, {"dims", std::move(dims)}},
                     static_cast<int>(entries.size())});
  return static_cast<int>(entries.size()) - 1;
}

int PlanValues::addBuffer(Type type) {
  return add(Buffer, fmt::format("t{}", buffers++), type);
}

int PlanValues::addView(int of, Type type, Json what) {
  int index = add(View, fmt::format("view{}", views++), type);
  entries[index].json["of"] = of;
  entries[index].root = entries[of].root;
  entries[index].json.update(what);
  return index;
}

int PlanValues::addSlice(int of, Type type, ArrayRef<int64_t> starts) {
  return addView(of, type, {{"view", "slice"}, {"starts", std::vector<int64_t>(starts)}});
}

int PlanValues::addReshape(int of, Type type) {
  return addView(of, type, {{"view", "reshape"}});
}

int PlanValues::withColumn(int value) {
  auto [known, isNew] = columns.try_emplace(value, 0);
  if (isNew) {
    Json dims = entries[value].json["dims"];
    dims.push_back(1);
    known->second = add(View, fmt::format("view{}", views++), entries[value].json["dtype"], dims);
    entries[known->second].json["of"] = value;
    entries[known->second].root = entries[value].root;
    entries[known->second].json["view"] = "reshape";
  }
  return known->second;
}

int PlanValues::rootOf(int value) const {
  return entries[value].root;
}

PlanValues::Json PlanValues::take(Json& steps) {
  std::vector<int> order(entries.size()), place(entries.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int index) { return entries[index].kind; });
  Json values = Json::array();
  for (size_t i = 0; i < order.size(); ++i)
    place[order[i]] = static_cast<int>(i);
  auto renumber = [&](Json& number) { number = place[number.get<int>()]; };
  for (int index : order) {
    Json& value = values.emplace_back(std::move(entries[index].json));
    if (value.contains("of"))
      renumber(value["of"]);
  }
  for (Json& step : steps) {
    if (step["kind"] == "external") {
      for (const char* list : {"operands", "results"})
        for (Json& number : step[list])
          renumber(number);
    } else {
      const auto renumberAll = [&](Json& program) {
        for (Json& operand : program["operands"])
          if (operand.contains("value"))
            renumber(operand["value"]);
      };
      if (step.contains("programs"))
        std::ranges::for_each(step["programs"], renumberAll);
      else
        renumberAll(step);
    }
  }
  return values;
}

} // namespace cermet
