#include "Config.h"
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace {

using Json = nlohmann::json;

Json readJson(const std::string& path) {
  std::ifstream file(path);
  if (!file)
    throw std::runtime_error(path + " cannot be read");
  return Json::parse(file);
}

void expect(bool holds, const Json& config, const char* field, const char* expected) {
  if (!holds)
    throw std::runtime_error(std::string("config.json: ") + field + " is " +
                             (config.contains(field) ? config[field].dump() : "missing") + ", expected " + expected);
}

// Rotary embedding's frequencies in f32, as models were trained with: the plain ones, or scaled so that long waves,
// which a longer context than the trained one would turn too far, become longer, and short ones stay.
std::vector<float> frequencies(const Json& config, int64_t headSize) {
  const Json rope = config.contains("rope_parameters")                                      ? config["rope_parameters"]
                    : config.contains("rope_scaling") && config["rope_scaling"].is_object() ? config["rope_scaling"]
                                                                                            : Json::object();
  const double theta = rope.value("rope_theta", config.value("rope_theta", 10000.0));
  const std::string kind = rope.value("rope_type", "default");
  std::vector<float> result;
  for (int64_t pair = 0; pair < headSize / 2; ++pair)
    result.push_back(1 /
                     static_cast<float>(std::pow(theta, static_cast<float>(2 * pair) / static_cast<float>(headSize))));
  if (kind == "default")
    return result;
  if (kind != "llama3" && kind != "linear")
    throw std::runtime_error("config.json: rope_type is '" + kind + "', expected default, linear or llama3");
  const float factor = rope.at("factor");
  if (kind == "linear") {
    for (float& frequency : result)
      frequency /= factor;
    return result;
  }
  const float low = rope.at("low_freq_factor"), high = rope.at("high_freq_factor"),
              trained = rope.at("original_max_position_embeddings");
  for (float& frequency : result) {
    const float wave = 2 * static_cast<float>(M_PI) / frequency;
    const float smooth = (trained / wave - low) / (high - low);
    if (wave > trained / low)
      frequency /= factor;
    else if (wave >= trained / high)
      frequency = (1 - smooth) * frequency / factor + smooth * frequency;
  }
  return result;
}

std::set<int64_t> tokensOf(const Json& value) {
  if (value.is_array())
    return value.get<std::set<int64_t>>();
  return value.is_number_integer() ? std::set<int64_t>{value.get<int64_t>()} : std::set<int64_t>{};
}

} // namespace

Config Config::read(const std::string& directory) {
  const Json config = readJson(directory + "/config.json");
  const std::string model = config.value("model_type", "");
  expect(model == "llama" || model == "qwen3", config, "model_type", "llama or qwen3, which this program computes");
  expect(config.value("hidden_act", "") == "silu", config, "hidden_act", "silu");
  expect(!config.value("use_sliding_window", false), config, "use_sliding_window", "false");
  Config result;
  result.hidden = config.at("hidden_size");
  result.layers = config.at("num_hidden_layers");
  result.heads = config.at("num_attention_heads");
  result.keyHeads = config.value("num_key_value_heads", result.heads);
  const bool hasHeadSize = config.contains("head_dim") && config["head_dim"].is_number();
  result.headSize = hasHeadSize ? config["head_dim"].get<int64_t>() : result.hidden / result.heads;
  result.intermediate = config.at("intermediate_size");
  result.vocabulary = config.at("vocab_size");
  result.positions = config.at("max_position_embeddings");
  expect(result.heads % result.keyHeads == 0, config, "num_key_value_heads", "a divisor of num_attention_heads");
  expect(result.headSize % 2 == 0, config, "head_dim", "an even number");
  result.eps = config.at("rms_norm_eps");
  result.tied = config.value("tie_word_embeddings", false);
  const std::string dtype = config.value("dtype", config.value("torch_dtype", "float32"));
  result.dtype = dtype == "bfloat16" ? "bf16" : dtype == "float16" ? "f16" : "f32";
  result.frequency = frequencies(config, result.headSize);
  const std::string generation = directory + "/generation_config.json";
  const Json chosen = std::ifstream(generation) ? readJson(generation) : Json::object();
  result.ends =
      tokensOf(chosen.contains("eos_token_id") ? chosen["eos_token_id"] : config.value("eos_token_id", Json()));
  return result;
}
