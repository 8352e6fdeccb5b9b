// The graph texts (docs/ir.md) of all that a decoder computes beside its products. How many tokens there are is a
// symbol of each, so each is compiled once; what a kernel is specialised to are the sizes of the model.
#pragma once
#include "Config.h"
#include "ElementType.h"

struct Graph {
  std::string name, text;
};

// `dtype` is that of weights and activations; `keys` how many positions the cache holds; `normed`: queries and keys
// have norms of their heads before they turn.
struct Sizes {
  Config config;
  std::string dtype;
  int64_t keys;
  bool normed;
};

Graph embedGraph(const Sizes& sizes);   // ids, table, weight -> normed, hidden
Graph rotateGraph(const Sizes& sizes);  // queries, keys, cos, sin [, weights of norms] -> turned queries and keys
Graph attendGraph(const Sizes& sizes);  // scores, positions -> weights: causal softmax
Graph addNormGraph(const Sizes& sizes); // x, residual, weight -> normed, sum
Graph gateGraph(const Sizes& sizes);    // gate, up -> silu(gate) * up
Graph chooseGraph(const Sizes& sizes);  // logits, temperature, seed -> token, its probability
Graph convertGraph(const std::string& from, const std::string& to); // of a weight
