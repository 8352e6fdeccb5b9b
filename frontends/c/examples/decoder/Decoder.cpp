#include "Decoder.h"
#include <algorithm>
#include <cmath>

Decoder::Decoder(Device& device, const cermet::Context& context, const Checkpoint& checkpoint, const Sizes& sizes)
    : device_(device), sizes_(sizes), type_(elementType(sizes.dtype)), weights_(device, context, checkpoint, sizes),
      most_(std::min<int64_t>(128, sizes.keys)), embed_(device, context, embedGraph(sizes)),
      rotate_(device, context, rotateGraph(sizes)), attend_(device, context, attendGraph(sizes)),
      addNorm_(device, context, addNormGraph(sizes)), gate_(device, context, gateGraph(sizes)),
      choose_(device, context, chooseGraph(sizes)) {
  const Config& config = sizes_.config;
  const int64_t width = config.heads * config.headSize, keyWidth = config.keyHeads * config.headSize;
  for (int64_t index = 0; index < config.layers; ++index) {
    const std::string prefix = "model.layers." + std::to_string(index) + ".", attention = prefix + "self_attn.";
    const std::string next = "model.layers." + std::to_string(index + 1) + ".input_layernorm.weight";
    layers_.push_back(
        {weights_.at(attention + "q_proj.weight"), weights_.at(attention + "k_proj.weight"),
         weights_.at(attention + "v_proj.weight"), sizes_.normed ? weights_.at(attention + "q_norm.weight") : nullptr,
         sizes_.normed ? weights_.at(attention + "k_norm.weight") : nullptr, weights_.at(attention + "o_proj.weight"),
         weights_.at(prefix + "mlp.gate_proj.weight"), weights_.at(prefix + "mlp.up_proj.weight"),
         weights_.at(prefix + "mlp.down_proj.weight"), weights_.at(prefix + "post_attention_layernorm.weight"),
         weights_.at(index + 1 < config.layers ? next : "model.norm.weight"), room(sizes_.keys * keyWidth),
         room(sizes_.keys * keyWidth)});
  }
  ids_ = Memory(device_, static_cast<size_t>(most_) * sizeof(int64_t));
  positions_ = Memory(device_, static_cast<size_t>(most_) * sizeof(int64_t));
  for (Memory* each : {&normed_, &hidden_, &sum_, &projected_})
    *each = room(most_ * config.hidden);
  for (Memory* each : {&queries_, &turned_, &heads_})
    *each = room(most_ * width);
  for (Memory* each : {&gated_, &up_, &inner_})
    *each = room(most_ * config.intermediate);
  keys_ = room(most_ * keyWidth);
  scores_ = Memory(device_, static_cast<size_t>(config.heads * most_ * sizes_.keys) * sizeof(float));
  shares_ = room(config.heads * most_ * sizes_.keys);
  logits_ = room(config.vocabulary);
  temperature_ = Memory(device_, sizeof(float));
  seed_ = Memory(device_, sizeof(int64_t));
  id_ = Memory(device_, sizeof(int64_t));
  probability_ = Memory(device_, sizeof(float));
  makeAngles();
}

// Cosine and sine of each position's angles, [keys, size], the same for both halves, in f32 as models have them.
void Decoder::makeAngles() {
  const int64_t half = sizes_.config.headSize / 2, count = sizes_.keys * 2 * half;
  std::vector<float> table(static_cast<size_t>(count));
  for (auto [memory, function] : {std::pair<Memory*, double (*)(double)>{&cos_, std::cos}, {&sin_, std::sin}}) {
    for (int64_t at = 0; at < count; ++at) {
      const float angle = static_cast<float>(at / (2 * half)) * sizes_.config.frequency[static_cast<size_t>(at % half)];
      table[static_cast<size_t>(at)] = static_cast<float>(function(angle));
    }
    *memory = Memory(device_, table.size() * sizeof(float));
    device_.copyIn(memory->at(0), table.data(), memory->bytes());
  }
}

Decoder::Token Decoder::next(const std::vector<int64_t>& ids, float temperature, int64_t seed) {
  const Config& config = sizes_.config;
  if (ids.empty() || position_ + static_cast<int64_t>(ids.size()) > sizes_.keys)
    throw std::runtime_error(std::to_string(ids.size()) + " tokens behind " + std::to_string(position_) +
                             ": expected at least one, and no more than " + std::to_string(sizes_.keys) +
                             " in all; --length makes room for more");
  for (int64_t id : ids)
    if (id < 0 || id >= config.vocabulary)
      throw std::runtime_error("token " + std::to_string(id) + " is none of the " + std::to_string(config.vocabulary));
  int64_t last = 0; // the row of the last token
  for (size_t done = 0; done < ids.size(); done += static_cast<size_t>(last) + 1) {
    const int64_t tokens = std::min<int64_t>(most_, static_cast<int64_t>(ids.size() - done));
    forward(ids.data() + done, tokens);
    last = tokens - 1;
  }
  const void* row = normed_.at(last * config.hidden * type_.bytes);
  device_.multiply({1,
                    config.vocabulary,
                    config.hidden,
                    {row, config.hidden},
                    {weights_.at(config.tied ? "model.embed_tokens.weight" : "lm_head.weight"), config.hidden},
                    {logits_.at(0), config.vocabulary},
                    type_.dtype,
                    type_.dtype});
  const int64_t drawn = seed + position_;
  device_.copyIn(temperature_.at(0), &temperature, sizeof(temperature));
  device_.copyIn(seed_.at(0), &drawn, sizeof(drawn));
  choose_({rows(logits_.at(0), 1, config.vocabulary),
           {temperature_.at(0), CERMET_F32, {}},
           {seed_.at(0), CERMET_I64, {}},
           {id_.at(0), CERMET_I64, {1, 1}},
           {probability_.at(0), CERMET_F32, {1, 1}}});
  Token token{};
  device_.copyOut(&token.id, id_.at(0), sizeof(token.id));
  device_.copyOut(&token.probability, probability_.at(0), sizeof(token.probability));
  return token;
}

// y = x weight^T, as checkpoints have linear layers.
void Decoder::linear(const Memory& x, const void* weight, void* y, int64_t tokens, int64_t inputs, int64_t outputs) {
  device_.multiply(
      {tokens, outputs, inputs, {x.at(0), inputs}, {weight, inputs}, {y, outputs}, type_.dtype, type_.dtype});
}

// Leaves the last norm of each of the tokens in normed_, and their keys and values in the caches.
void Decoder::forward(const int64_t* ids, int64_t tokens) {
  const Config& config = sizes_.config;
  const int64_t hidden = config.hidden, inner = config.intermediate;
  std::vector<int64_t> positions;
  for (int64_t token = 0; token < tokens; ++token)
    positions.push_back(position_ + token);
  device_.copyIn(ids_.at(0), ids, positions.size() * sizeof(int64_t));
  device_.copyIn(positions_.at(0), positions.data(), positions.size() * sizeof(int64_t));
  embed_({{ids_.at(0), CERMET_I64, {tokens}},
          rows(weights_.at("model.embed_tokens.weight"), config.vocabulary, hidden),
          {weights_.at("model.layers.0.input_layernorm.weight"), type_.dtype, {hidden}},
          rows(normed_.at(0), tokens, hidden),
          rows(hidden_.at(0), tokens, hidden)});
  const auto addNorm = [&](const Memory& residual, const void* weight, const Memory& sum) {
    addNorm_({rows(projected_.at(0), tokens, hidden),
              rows(residual.at(0), tokens, hidden),
              {const_cast<void*>(weight), type_.dtype, {hidden}},
              rows(normed_.at(0), tokens, hidden),
              rows(sum.at(0), tokens, hidden)});
  };
  for (const Layer& layer : layers_) {
    attend(layer, tokens);
    linear(heads_, layer.output, projected_.at(0), tokens, config.heads * config.headSize, hidden);
    addNorm(hidden_, layer.afterAttention, sum_);
    linear(normed_, layer.gate, gated_.at(0), tokens, hidden, inner);
    linear(normed_, layer.up, up_.at(0), tokens, hidden, inner);
    gate_({rows(gated_.at(0), tokens, inner), rows(up_.at(0), tokens, inner), rows(inner_.at(0), tokens, inner)});
    linear(inner_, layer.down, projected_.at(0), tokens, inner, hidden);
    addNorm(sum_, layer.nextNorm, hidden_);
  }
  position_ += tokens;
}

// From normed_ to heads_. A value's product and a key's rotation write where the caches have room for them; turned
// queries lie by head, so that all queries that share a key's head are rows of one matrix.
void Decoder::attend(const Layer& layer, int64_t tokens) {
  const Config& config = sizes_.config;
  const int64_t size = config.headSize, width = config.heads * size, keyWidth = config.keyHeads * size;
  const int64_t group = config.heads / config.keyHeads, keys = position_ + tokens;
  void* newKeys = layer.keyCache.at(position_ * keyWidth * type_.bytes);
  linear(normed_, layer.queries, queries_.at(0), tokens, config.hidden, width);
  linear(normed_, layer.keys, keys_.at(0), tokens, config.hidden, keyWidth);
  linear(normed_, layer.values, layer.valueCache.at(position_ * keyWidth * type_.bytes), tokens, config.hidden,
         keyWidth);

  const int64_t angles = position_ * size * static_cast<int64_t>(sizeof(float));
  std::vector<cermet::Tensor> turn{{queries_.at(0), type_.dtype, {tokens, config.heads, size}},
                                   {keys_.at(0), type_.dtype, {tokens, config.keyHeads, size}},
                                   {cos_.at(angles), CERMET_F32, {tokens, size}},
                                   {sin_.at(angles), CERMET_F32, {tokens, size}}};
  if (sizes_.normed) {
    turn.push_back({layer.queryNorm, type_.dtype, {size}});
    turn.push_back({layer.keyNorm, type_.dtype, {size}});
  }
  turn.push_back({turned_.at(0), type_.dtype, {tokens, config.heads, size}, {size, tokens * size, 1}});
  turn.push_back({newKeys, type_.dtype, {tokens, config.keyHeads, size}});
  rotate_(turn);

  const int64_t row = sizes_.keys; // the columns behind `keys` are hidden, whatever they hold
  device_.multiply({group * tokens,
                    keys,
                    size,
                    {turned_.at(0), size, group * tokens * size},
                    {layer.keyCache.at(0), keyWidth, size},
                    {scores_.at(0), row, group * tokens * row},
                    type_.dtype,
                    CERMET_F32,
                    true,
                    config.keyHeads,
                    1 / std::sqrt(static_cast<float>(size))});
  attend_({{scores_.at(0), CERMET_F32, {config.heads, tokens, row}},
           {positions_.at(0), CERMET_I64, {tokens}},
           {shares_.at(0), type_.dtype, {config.heads, tokens, row}}});
  for (int64_t head = 0; head < config.keyHeads; ++head)
    device_.multiply({tokens,
                      size,
                      keys,
                      {shares_.at(head * group * tokens * row * type_.bytes), row, tokens * row},
                      {layer.valueCache.at(head * size * type_.bytes), keyWidth},
                      {heads_.at(head * group * size * type_.bytes), width, size},
                      type_.dtype,
                      type_.dtype,
                      false,
                      group});
}
