#include "runtime/context/Facts.h"
#include "runtime/abi/ElementType.h"
#include "runtime/abi/Limits.h"
#include "runtime/abi/OperandKind.h"
#include "runtime/abi/RowArguments.h"
#include "runtime/abi/Targets.h"
#include <nlohmann/json.hpp>

namespace cermet {

using Json = nlohmann::ordered_json;

const std::string& factsJson() {
  static const std::string text = [] {
    constexpr const char* classes[] = {"real", "integer", "bool"};
    Json types = Json::array(), targets = Json::array();
    for (const ElementType& type : kElementTypes) {
      const NumberFormat& format = type.format;
      types.push_back({{"code", static_cast<int>(type.code)},
                       {"name", type.name},
                       {"graph_name", type.graphName},
                       {"array_name", type.arrayName},
                       {"bytes", type.bytes},
                       {"class", classes[static_cast<int>(format.valueClass)]},
                       {"signed", format.isSigned}});
      if (format.valueClass == ValueClass::Real)
        types.back().update(
            {{"digits", format.digits}, {"lowest_exponent", format.lowest}, {"highest_exponent", format.highest}});
    }
    for (const CudaTarget& target : kCudaTargets)
      targets.push_back({{"name", target.name}, {"capability", target.capability}});
    return Json{{"element_types", types},
                {"cuda_targets", targets},
                {"host_targets", kHostTargets},
                {"operand_kinds", kOperandKinds},
                {"limits",
                 {{"rank", CERMET_MAX_RANK},
                  {"text", CERMET_MAX_TEXT},
                  {"symbols", kMaxSymbols},
                  {"values", kMaxValues},
                  {"dimension", kMaxDimension},
                  {"graph_operations", kMaxGraphOperations},
                  {"operands", kMaxOperands},
                  {"programs", kMaxPrograms},
                  {"head_columns", kMaxHeadColumns},
                  {"region_inputs", kMaxRegionInputs},
                  {"region_outputs", kMaxRegionOutputs},
                  {"loss_inputs", kMaxLossInputs},
                  {"loss_outputs", kMaxLossOutputs},
                  {"bag_part", kBagPart},
                  {"cumsum_columns", kMaxCumsumColumns},
                  {"logits_bytes", kLogitsBytes}}}}
        .dump();
  }();
  return text;
}

} // namespace cermet
