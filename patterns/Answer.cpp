#include "patterns/Answer.h"
#include "ir/dialect/Ops.h"
#include "ir/text/Text.h"
#include "patterns/matching/Names.h"
#include "patterns/fusions/Rope.h"
#include <nlohmann/json.hpp>

using namespace mlir;

namespace cermet {

// [rows..., columns] with its rows made symbols; a weight [columns] stays as it is. Tiles of one region agree in their
// rows, so a row dimension is named by its place.
static Type symbolic(Type type) {
  auto dimensions = ir::dimensions(cast<RankedTensorType>(type));
  for (size_t i = 0; i + 1 < dimensions.size(); ++i)
    dimensions[i] = {ShapedType::kDynamic, StringAttr::get(type.getContext(), "r" + llvm::Twine(i))};
  return ir::tensorType(dimensions, cast<RankedTensorType>(type).getElementType());
}

std::string textOf(const NamedRegion& region) {
  MLIRContext* context = region.op->getContext();
  auto unknown = UnknownLoc::get(context);
  OwningOpRef<ModuleOp> graph = ir::createGraph(*context);
  auto types = [](TypeRange from) { return llvm::map_to_vector(from, symbolic); };

  OpBuilder builder = OpBuilder::atBlockEnd(graph->getBody());
  auto function = func::FuncOp::create(
      builder, unknown, region.pattern,
      builder.getFunctionType(types(region.op->getOperandTypes()), types(region.op->getResultTypes())));
  Block* body = builder.createBlock(&function.getBody());
  for (auto [role, type] : llvm::zip_equal(region.roles, function.getArgumentTypes()))
    body->addArgument(type, NameLoc::get(builder.getStringAttr(role)));
  Operation* op = builder.clone(*region.op);
  op->setOperands(body->getArguments());
  for (auto [result, type] : llvm::zip_equal(op->getResults(), function.getResultTypes()))
    result.setType(type);
  func::ReturnOp::create(builder, unknown, op->getResults());
  return ir::printGraph(*graph, /*withLocations=*/false);
}

namespace {

using Json = nlohmann::ordered_json;

// What a report calls a norm: by what it is for.
std::string patternOf(const NamedRegion& region, const std::vector<Selection>& selections) {
  const bool isHead = isa<ir::RmsNormOp>(region.op) && isQueryOrKey(region.op->getResult(0), selections);
  return isHead ? "qk_norm" : region.pattern.str();
}

Json selectionAnswer(const Selection& selection, const RaiseResult& raised) {
  std::vector<std::string> replaced, operands, results;
  auto add = [&](const std::string& name) {
    if (!llvm::is_contained(replaced, name))
      replaced.push_back(name);
  };
  for (Operation* op : selection.ops) {
    for (const NamedRegion& region : raised.regions)
      if (region.op == op)
        llvm::for_each(region.replaced, add);
    if (hasName(op))
      add(nameOf(op));
  }
  for (Value operand : selection.operands)
    operands.push_back(nameOf(operand));
  for (Value result : selection.results)
    results.push_back(nameOf(result));
  Json counts = Json::object();
  for (const auto& [name, count] : selection.counts)
    if (count > 0)
      counts[name] = count;
  return Json{{"pattern", selection.pattern}, {"text", textOf(selection)}, {"operands", operands},
              {"results", results},           {"replaced", replaced},      {"counts", counts}};
}

} // namespace

std::string matchAnswer(const RaiseResult& raised, const std::vector<Selection>& selections) {
  std::vector<std::pair<Operation*, Json>> regions; // by where they end
  for (const Selection& selection : selections)
    regions.emplace_back(selection.results.back().getDefiningOp(), selectionAnswer(selection, raised));
  for (const NamedRegion& region : raised.regions) {
    if (llvm::any_of(selections, [&](const Selection& selection) { return selection.ops.contains(region.op); }))
      continue;
    const std::string pattern = patternOf(region, selections);
    regions.emplace_back(region.op, Json{{"pattern", pattern},
                                         {"text", textOf(region)},
                                         {"operands", region.operands},
                                         {"results", region.results},
                                         {"replaced", region.replaced},
                                         {"counts", {{pattern, 1}}}});
  }
  std::stable_sort(regions.begin(), regions.end(),
                   [](const auto& a, const auto& b) { return a.first->isBeforeInBlock(b.first); });
  Json answer = {{"format", "cermet.match.1"}, {"regions", Json::array()}, {"near_misses", Json::array()}};
  for (auto& [end, region] : regions)
    answer["regions"].push_back(std::move(region));
  for (const NearMiss& miss : raised.nearMisses)
    answer["near_misses"].push_back(Json{{"pattern", miss.pattern}, {"at", miss.at}, {"condition", miss.condition}});
  // A name may hold any byte: MLIR's strings have escapes.
  return answer.dump(-1, ' ', false, Json::error_handler_t::replace);
}

} // namespace cermet
