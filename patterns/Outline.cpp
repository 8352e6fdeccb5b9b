#include "patterns/Outline.h"
#include "ir/Ops.h"
#include "ir/Text.h"
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

std::string outline(const Region& region) {
  MLIRContext* context = region.op->getContext();
  auto unknown = UnknownLoc::get(context);
  OwningOpRef<ModuleOp> graph = ir::createGraph(*context);
  auto types = [](TypeRange from) { return llvm::map_to_vector(from, symbolic); };

  OpBuilder builder = OpBuilder::atBlockEnd(graph->getBody());
  auto function = func::FuncOp::create(
      builder, unknown, region.pattern->name,
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

std::string matchAnswer(const RaiseResult& result) {
  nlohmann::ordered_json answer = {
      {"format", "cermet.match.1"}, {"regions", nlohmann::json::array()}, {"near_misses", nlohmann::json::array()}};
  for (const Region& region : result.regions)
    answer["regions"].push_back(nlohmann::ordered_json{{"pattern", region.pattern->name.str()},
                                                       {"text", outline(region)},
                                                       {"operands", region.operands},
                                                       {"results", region.results},
                                                       {"replaced", region.replaced}});
  for (const NearMiss& miss : result.nearMisses)
    answer["near_misses"].push_back(
        nlohmann::ordered_json{{"pattern", miss.pattern}, {"at", miss.at}, {"condition", miss.condition}});
  // A name may hold any byte: MLIR's strings have escapes.
  return answer.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

} // namespace cermet
