#include "Weights.h"
#include "Kernel.h"
#include <set>

namespace {

using Named = std::map<std::string, std::vector<int64_t>>;

Named namedWeights(const Sizes& sizes) {
  const Config& config = sizes.config;
  const int64_t width = config.heads * config.headSize, keyWidth = config.keyHeads * config.headSize;
  Named result{{"model.embed_tokens.weight", {config.vocabulary, config.hidden}},
               {"model.norm.weight", {config.hidden}}};
  if (!config.tied)
    result["lm_head.weight"] = {config.vocabulary, config.hidden};
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    result[prefix + "input_layernorm.weight"] = {config.hidden};
    result[prefix + "self_attn.q_proj.weight"] = {width, config.hidden};
    result[prefix + "self_attn.k_proj.weight"] = {keyWidth, config.hidden};
    result[prefix + "self_attn.v_proj.weight"] = {keyWidth, config.hidden};
    result[prefix + "self_attn.o_proj.weight"] = {config.hidden, width};
    if (sizes.normed)
      result[prefix + "self_attn.q_norm.weight"] = result[prefix + "self_attn.k_norm.weight"] = {config.headSize};
    result[prefix + "post_attention_layernorm.weight"] = {config.hidden};
    result[prefix + "mlp.gate_proj.weight"] =
        result[prefix + "mlp.up_proj.weight"] = {config.intermediate, config.hidden};
    result[prefix + "mlp.down_proj.weight"] = {config.hidden, config.intermediate};
  }
  return result;
}

std::string describe(const std::vector<int64_t>& sizes) {
  std::string result;
  for (int64_t size : sizes)
    result += (result.empty() ? "" : " x ") + std::to_string(size);
  return result;
}

} // namespace

std::vector<std::string> otherTypes(const Checkpoint& checkpoint, const std::string& dtype) {
  std::set<std::string> result;
  for (const std::string& name : checkpoint.names())
    result.insert(elementType(checkpoint.weight(name).dtype).name);
  result.erase(dtype);
  return {result.begin(), result.end()};
}

Weights::Weights(Device& device, const cermet::Context& context, const Checkpoint& checkpoint, const Sizes& sizes) {
  const ElementType& type = elementType(sizes.dtype);
  std::map<cermet_dtype, Kernel> conversions;
  for (const std::string& from : otherTypes(checkpoint, sizes.dtype))
    conversions[elementType(from).dtype] = Kernel(device, context, convertGraph(from, sizes.dtype));
  const Named named = namedWeights(sizes);
  for (const std::string& name : checkpoint.names())
    if (!named.count(name) && !(sizes.config.tied && name == "lm_head.weight"))
      throw std::runtime_error("the checkpoint has " + name + ", which this program would leave out");
  for (const auto& [name, shape] : named) {
    const Weight& stored = checkpoint.weight(name);
    if (stored.sizes != shape)
      throw std::runtime_error(name + " has " + describe(stored.sizes) + " elements, expected " + describe(shape));
    void* data = const_cast<std::byte*>(stored.data); // nothing writes there: the mapping is read-only
    if (!device.readsHostMemory() || reinterpret_cast<uintptr_t>(data) % elementType(stored.dtype).bytes != 0) {
      data = kept_.emplace_back(device, stored.bytes).at(0);
      device.copyIn(data, stored.data, stored.bytes);
    }
    if (stored.dtype != type.dtype) {
      const auto elements = static_cast<int64_t>(stored.bytes) / elementType(stored.dtype).bytes;
      Memory converted(device, static_cast<size_t>(elements * type.bytes));
      conversions.at(stored.dtype)({{data, stored.dtype, {elements}}, {converted.at(0), type.dtype, {elements}}});
      device.wait();
      if (!device.readsHostMemory())
        kept_.pop_back();
      data = kept_.emplace_back(std::move(converted)).at(0);
    }
    weights_[name] = data;
  }
}
