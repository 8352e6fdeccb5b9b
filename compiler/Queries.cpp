#include "compiler/Queries.h"
#include "compiler/program/Dump.h"
#include "compiler/plan/Clusters.h"
#include "compiler/plan/Plan.h"
#include "ir/gradient/Gradient.h"
#include "ir/gradient/LinearLoss.h"
#include "ir/gradient/RowParts.h"
#include "ir/meaning/Interpreter.h"
#include "ir/dialect/ElementTypes.h"
#include "ir/dialect/Shape.h"
#include "ir/text/Text.h"
#include "patterns/Match.h"
#include "patterns/Registry.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

using namespace mlir;

namespace cermet {
namespace {

using Json = nlohmann::ordered_json;

// A parsed graph with the context that it lives in.
struct ParsedGraph {
  MLIRContext context{MLIRContext::Threading::DISABLED};
  OwningOpRef<ModuleOp> module;
  cermet_status status;
  std::string stem;

  ParsedGraph(llvm::StringRef text, const Dump& dump, std::string& error)
      : status(readGraph(text, context, module, error)) {
    if (status != CERMET_OK || !dump.enabled())
      return;
    stem = dumpStem(ir::graphFunction(*module).getName().str(), text);
    dump.write(stem, "graph.mlir", text);
  }
};

std::string sizesText(llvm::ArrayRef<int64_t> sizes) {
  std::string result = "[";
  for (int64_t size : sizes)
    result += (result.size() > 1 ? ", " : "") + std::to_string(size);
  return result + "]";
}

// What is wrong with a caller's tensor for a value of the graph, or "".
std::string checkTensor(const cermet_tensor& tensor, Type type, const std::string& name) {
  auto expected = llvm::dyn_cast<RankedTensorType>(type);
  if (!expected)
    return fmt::format("{} is no tensor; the interpreter runs graphs over tensors", name);
  if (const auto dtype = ir::elementTypeOf(expected); !dtype || tensor.dtype != *dtype)
    return fmt::format("{}: dtype is {}, expected {} (the graph's, as cermet_dtype)", name, tensor.dtype,
                       dtype ? static_cast<int>(*dtype) : -1);
  if (tensor.rank != expected.getRank())
    return fmt::format("{}: rank is {}, expected {}", name, tensor.rank, expected.getRank());
  if (tensor.rank > 0 && !tensor.sizes)
    return fmt::format("{}: sizes is NULL, expected {} numbers", name, tensor.rank);
  int64_t count = 1;
  for (int32_t i = 0; i < tensor.rank; ++i) {
    int64_t size = tensor.sizes[i];
    if (size < 0 || (!expected.isDynamicDim(i) && size != expected.getDimSize(i)))
      return fmt::format("{}: sizes are {}, expected {}", name, sizesText({tensor.sizes, size_t(tensor.rank)}),
                         ir::shapeText(ir::dimensions(expected)));
    if (__builtin_mul_overflow(count, size, &count) || count > (int64_t(1) << 40))
      return fmt::format("{}: sizes are {}, more than 2^40 elements", name,
                         sizesText({tensor.sizes, size_t(tensor.rank)}));
  }
  if (!tensor.data && count != 0)
    return fmt::format("{}: data is NULL, expected {} float64 numbers", name, count);
  return "";
}

int64_t elementsOf(const cermet_tensor& tensor) {
  int64_t count = 1;
  for (int32_t i = 0; i < tensor.rank; ++i)
    count *= tensor.sizes[i];
  return count;
}

// A function of which `keep` results are left, cut by the rows of an input; null where it cannot be.
Json rowParts(ModuleOp graph, unsigned walked, unsigned keep) {
  constexpr const char* origins[] = {"input", "before", "rows"};
  OwningOpRef<ModuleOp> own = graph.clone();
  Operation* terminator = ir::graphFunction(*own).getBody().front().getTerminator();
  terminator->setOperands(llvm::SmallVector<Value>(terminator->getOperands().take_front(keep)));
  std::optional<ir::RowParts> parts = ir::splitRows(ir::graphFunction(*own), walked);
  if (!parts)
    return nullptr;
  Json answer;
  for (auto [name, part] : {std::pair("before", &parts->before),
                            {"rows", &parts->rows},
                            {"kept", &parts->kept},
                            {"after", &parts->after}}) {
    if (!part->graph)
      continue;
    Json inputs = Json::array();
    for (const ir::RowPart::Origin& origin : part->inputs)
      inputs.push_back({{"from", origins[origin.from]}, {"index", origin.index}});
    answer[name] = {{"text", ir::printGraph(*part->graph, false)},
                    {"inputs", inputs},
                    {"outputs", ir::graphFunction(*part->graph).getNumResults()}};
  }
  return answer;
}

} // namespace

cermet_status matchGraph(llvm::StringRef text, const Dump& dump, std::string& json, std::string& error) {
  static const auto finders = [] {
    std::vector<Finder> all(fusions());
    all.push_back(clusters());
    return all;
  }();
  ParsedGraph graph(text, Dump(), error);
  if (graph.status != CERMET_OK)
    return graph.status;
  json = match(ir::graphFunction(*graph.module), finders);
  std::string stem = dumpStem("match", text);
  dump.write(stem, "graph.mlir", text);
  dump.write(stem, "match.json", json);
  return CERMET_OK;
}

cermet_status differentiateGraph(llvm::StringRef text, const uint8_t* wanted, int32_t count, const Dump& dump,
                                 std::string& json, std::string& error) {
  ParsedGraph graph(text, dump, error);
  if (graph.status != CERMET_OK)
    return graph.status;
  int32_t inputs = static_cast<int32_t>(ir::graphFunction(*graph.module).getNumArguments());
  if (count != inputs || (count > 0 && !wanted)) {
    error = fmt::format("differentiate: `wanted` has {} entries, expected {} (one for each input)", count, inputs);
    return CERMET_INVALID_ARGUMENT;
  }
  llvm::SmallVector<bool> flags(wanted, wanted + count);
  if (!llvm::is_contained(flags, true)) {
    error = "differentiate: no input is wanted; set the entry of at least one in `wanted`";
    return CERMET_INVALID_ARGUMENT;
  }
  ir::Gradient gradient;
  if (!ir::differentiate(*graph.module, flags, gradient, error))
    return CERMET_UNSUPPORTED;
  constexpr const char* origins[] = {"input", "output", "saved", "cotangent"};
  Json sources = Json::array();
  for (const ir::Gradient::Origin& origin : gradient.backwardInputs)
    sources.push_back({{"from", origins[origin.from]}, {"index", origin.index}});
  Json answer{{"format", "cermet.gradient.1"}};
  answer["forward"] = ir::printGraph(*gradient.forward, false);
  answer["backward"] = ir::printGraph(*gradient.backward, false);
  answer["outputs"] = gradient.outputs;
  answer["saved"] = gradient.saved;
  if (gradient.isUnit) {
    answer["unit"] = true;
    const unsigned walked = llvm::find(flags, true) - flags.begin(), results = 1 + gradient.saved;
    if (gradient.saved == 1)
      answer["row_parts"] = {{"gradient", rowParts(*gradient.forward, walked, results)},
                             {"loss", rowParts(*gradient.forward, walked, 1)}};
  }
  answer["backward_inputs"] = sources;
  answer["backward_outputs"] = gradient.backwardOutputs;
  dump.write(graph.stem, "forward.mlir", answer["forward"].get_ref<const std::string&>());
  dump.write(graph.stem, "backward.mlir", answer["backward"].get_ref<const std::string&>());
  json = answer.dump(1);
  return CERMET_OK;
}

// The loss of given logits in parts of rows; with their gradient behind it where that is wanted.
static Json lossParts(ir::LinearLoss& cut, bool isDifferentiated, std::string& error) {
  func::FuncOp loss = ir::graphFunction(*cut.loss);
  const unsigned logits = loss.getNumArguments() - 1;
  Json parts;
  if (!isDifferentiated) {
    parts = rowParts(*cut.loss, logits, loss.getNumResults());
  } else {
    auto result = loss.getNumResults() == 1 ? dyn_cast<RankedTensorType>(loss.getResultTypes()[0]) : nullptr;
    if (!result || result.getRank() != 0 || !isa<FloatType>(result.getElementType())) {
      error =
          fmt::format("@{} returns {}, expected one number where a gradient is wanted: a float of rank 0, as "
                      "\"mean\" and \"sum\" give",
                      loss.getName().str(),
                      result ? ir::shapeText(ir::dimensions(result)) : fmt::format("{} results", loss.getNumResults()));
      return nullptr;
    }
    loss->setAttr(ir::kGradientInForward, UnitAttr::get(loss.getContext()));
    llvm::SmallVector<bool> wanted(logits + 1, false);
    wanted.back() = true;
    ir::Gradient gradient;
    if (!ir::differentiate(*cut.loss, wanted, gradient, error))
      return nullptr;
    parts = rowParts(*gradient.forward, logits, 2);
  }
  if (parts.is_null())
    error =
        fmt::format("@{}: its rows cannot come in pieces, expected a symbol among the dimensions of hidden's rows and "
                    "a row that needs of the others what no logits decide",
                    loss.getName().str());
  return parts;
}

cermet_status linearLossOf(llvm::StringRef text, const uint8_t* wanted, int32_t count, const Dump& dump,
                           std::string& json, std::string& error) {
  ParsedGraph graph(text, dump, error);
  if (graph.status != CERMET_OK)
    return graph.status;
  ir::LinearLoss cut;
  if (!ir::cutLinearLoss(*graph.module, cut, error))
    return CERMET_UNSUPPORTED;
  func::FuncOp function = ir::graphFunction(*graph.module);
  const auto inputs = static_cast<int32_t>(function.getNumArguments());
  if (count != 0 && (count != inputs || !wanted)) {
    error = fmt::format("linear_cross_entropy: `gradients` has {} entries, expected {} (one for each input) or none",
                        count, inputs);
    return CERMET_INVALID_ARGUMENT;
  }
  const llvm::ArrayRef<uint8_t> asked(wanted, count);
  auto kindOf = [&](int input) { return input < 0 || asked.empty() ? 0 : int(asked[input]); };
  for (int32_t input = 0; input < count; ++input) {
    const bool has = llvm::is_contained({int(cut.hidden), int(cut.weight), cut.bias}, input);
    if (kindOf(input) <= (has ? 2 : 0))
      continue;
    error = fmt::format("linear_cross_entropy: `gradients` has {} for input {} ({}), expected {}", kindOf(input), input,
                        ir::argumentName(function, input),
                        has ? "0, 1 (in its type) or 2 (in f32)" : "0: it is neither hidden nor weight nor bias");
    return CERMET_INVALID_ARGUMENT;
  }
  const bool isDifferentiated = llvm::any_of(asked, [](uint8_t kind) { return kind != 0; });
  Json parts = lossParts(cut, isDifferentiated, error);
  if (parts.is_null())
    return CERMET_UNSUPPORTED;
  Json answer{{"format", "cermet.gradient.1"},
              {"hidden", cut.hidden},
              {"weight", cut.weight},
              {"columns", cut.columns},
              {"row_parts", parts}};
  Type f32 = Float32Type::get(&graph.context);
  auto elementOf = [&](int input) {
    return cast<RankedTensorType>(function.getArgument(input).getType()).getElementType();
  };
  const std::string name = function.getName().str();
  auto add = [&](const char* key, OwningOpRef<ModuleOp> part) { answer[key] = ir::printGraph(*part, false); };
  if (Type type = elementOf(cut.weight); kindOf(cut.weight) == 1 && type != f32) {
    const int64_t width = cast<RankedTensorType>(function.getArgument(cut.weight).getType()).getDimSize(1);
    add("rounded_weight", ir::roundedRows(graph.context, name + "_rounded_weight", width, f32, type));
  }
  if (const int kind = kindOf(cut.bias)) {
    add("summed_gradient",
        ir::summedRows(graph.context, name + "_summed_gradient", cut.columns, elementOf(cut.hidden), f32));
    add("summed_bias",
        ir::summedRows(graph.context, name + "_summed_bias", cut.columns, f32, kind == 1 ? elementOf(cut.bias) : f32));
  }
  json = answer.dump(1);
  return CERMET_OK;
}

cermet_status interpretGraph(llvm::StringRef text, bool honourCasts, const cermet_tensor* tensors, int32_t count,
                             std::string& error) {
  ParsedGraph graph(text, Dump(), error);
  if (graph.status != CERMET_OK)
    return graph.status;
  func::FuncOp function = ir::graphFunction(*graph.module);
  int32_t inputs = static_cast<int32_t>(function.getNumArguments());
  int32_t outputs = static_cast<int32_t>(function.getNumResults());
  error = "";
  if (count != inputs + outputs || (count > 0 && !tensors))
    error = fmt::format("interpret: {} tensors given, expected {} ({} inputs, then {} outputs)", count,
                        inputs + outputs, inputs, outputs);
  for (int32_t i = 0; i < inputs && error.empty(); ++i)
    error = checkTensor(tensors[i], function.getArgumentTypes()[i], ir::argumentName(function, i));
  for (int32_t i = 0; i < outputs && error.empty(); ++i)
    error = checkTensor(tensors[inputs + i], function.getResultTypes()[i], fmt::format("output {}", i));
  if (!error.empty())
    return CERMET_INVALID_ARGUMENT;

  std::vector<ir::Array> arguments, results;
  for (int32_t i = 0; i < inputs; ++i) {
    const auto* data = static_cast<const double*>(tensors[i].data);
    ir::Array& argument = arguments.emplace_back();
    argument.shape.assign(tensors[i].sizes, tensors[i].sizes + tensors[i].rank);
    argument.data.assign(data, data + elementsOf(tensors[i]));
  }
  if (!ir::interpret(*graph.module, arguments, honourCasts, results, error))
    return CERMET_INVALID_ARGUMENT;
  for (int32_t i = 0; i < outputs; ++i) {
    const cermet_tensor& tensor = tensors[inputs + i];
    if (results[i].shape != llvm::ArrayRef<int64_t>(tensor.sizes, tensor.rank)) {
      error = fmt::format("output {}: sizes are {}, expected {}", i, sizesText({tensor.sizes, size_t(tensor.rank)}),
                          sizesText(results[i].shape));
      return CERMET_INVALID_ARGUMENT;
    }
  }
  for (int32_t i = 0; i < outputs; ++i)
    std::copy(results[i].data.begin(), results[i].data.end(), static_cast<double*>(tensors[inputs + i].data));
  return CERMET_OK;
}

} // namespace cermet
