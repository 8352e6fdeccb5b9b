// A decoder with its weights and its cache on a device: tokens in, the next token out. Products are the device's, and
// everything else is one launch of a kernel of Cermet's.
#pragma once
#include "Kernel.h"
#include "Weights.h"

class Decoder {
public:
  struct Token {
    int64_t id;
    float probability;
  };
  Decoder(Device& device, const cermet::Context& context, const Checkpoint& checkpoint, const Sizes& sizes);

  // Takes tokens behind those that it has, and gives the one that follows: the likeliest, or at a temperature one that
  // the seed and the position draw. More than `sizes.keys` tokens in all are an error.
  Token next(const std::vector<int64_t>& ids, float temperature, int64_t seed);

private:
  struct Layer {
    void *queries, *keys, *values, *queryNorm, *keyNorm, *output, *gate, *up, *down, *afterAttention, *nextNorm;
    Memory keyCache, valueCache; // [keys, key heads, size]
  };
  Memory room(int64_t elements) const { return {device_, static_cast<size_t>(elements * type_.bytes)}; }
  cermet::Tensor rows(void* data, int64_t tokens, int64_t columns) const {
    return {data, type_.dtype, {tokens, columns}};
  }
  void makeAngles();
  void forward(const int64_t* ids, int64_t tokens);
  void attend(const Layer& layer, int64_t tokens);
  void linear(const Memory& x, const void* weight, void* y, int64_t tokens, int64_t inputs, int64_t outputs);

  Device& device_;
  const Sizes sizes_;
  const ElementType& type_;
  const Weights weights_;
  const int64_t most_;   // tokens of one forward
  int64_t position_ = 0; // tokens in the cache
  Kernel embed_, rotate_, attend_, addNorm_, gate_, choose_;
  std::vector<Layer> layers_;
  Memory ids_, positions_, cos_, sin_;
  Memory normed_, hidden_, sum_, queries_, turned_, keys_, scores_, shares_, heads_, projected_, gated_, up_, inner_;
  Memory logits_, temperature_, seed_, id_, probability_;
};
