// Texts of graphs with as many operations as a test or a benchmark asks for: whole models, and shapes of dataflow that
// a pass of more than linear time does not survive.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace cermet::tests {

// Graphs of about `operations` operations.
struct LargeGraph {
  const char* name;
  std::string (*text)(size_t operations);
};

// Layers as a decoder's: two norms, three products, a rotation of queries and keys by shared tables, an opaque
// attention, a gated product, and the residual stream through all of them. Each has weights of its own.
std::string layersGraph(size_t operations);
// One elementwise operation behind the other.
std::string chainGraph(size_t operations);
// Softmax of softmax: a chain whose every few operations reduce a row.
std::string reductionsGraph(size_t operations);
// Elementwise operations that all read one tensor, and nothing of each other.
std::string fanGraph(size_t operations);
// A sum of all that a fan computes: every operation's value meets every other's in the end.
std::string treeGraph(size_t operations);
// Elementwise work of one tensor between products, each of which reads the residual stream.
std::string residualsGraph(size_t operations);
// Numbers of columns, each the sum of the one before it and itself: computed wherever they are needed.
std::string indicesGraph(size_t operations);
// One number a row, each the sum of the one before it and itself.
std::string rowsGraph(size_t operations);
// A transpose of a slice of a transpose, and so on.
std::string viewsGraph(size_t operations);
// A concat of that many operands, each computed.
std::string concatGraph(size_t operations);
// A sum of slices that share nothing of one tensor.
std::string slicesGraph(size_t operations);
// Concats of pieces of the value before, as rotations have them.
std::string rotationsGraph(size_t operations);

inline const std::vector<LargeGraph> kLargeGraphs = {
    {"layers", layersGraph}, {"chain", chainGraph},         {"reductions", reductionsGraph}, {"fan", fanGraph},
    {"tree", treeGraph},     {"residuals", residualsGraph}, {"indices", indicesGraph},       {"rows", rowsGraph},
    {"views", viewsGraph},   {"concat", concatGraph},       {"rotations", rotationsGraph},   {"slices", slicesGraph}};

} // namespace cermet::tests
