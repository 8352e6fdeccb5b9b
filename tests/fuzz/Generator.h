// Random graphs: every operation of the dialect that a kernel computes, over tiles of up to four row dimensions, rows,
// columns, single numbers and what broadcasts between them; views, reductions and their way back, integers and
// conditions. A graph is valid and its numbers are tame by construction: operands of functions with poles are guarded,
// and comparisons and conversions to integers see exact numbers only, so that no rounding decides them.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace cermet::fuzz {

using Sizes = std::map<std::string, int64_t>; // of a graph's symbols

struct RandomGraph {
  std::string text;
  std::vector<Sizes> sizes; // to run it with
};

struct GeneratorOptions {
  int mostOperations = 25;
  bool differentiable = false; // float inputs have gradients that no rounding decides
};

RandomGraph randomGraph(uint64_t seed, const GeneratorOptions& options);

// What an input may hold, by its argument's name: "whole..." whole numbers from -8 to 8, anything else normal numbers
// cut off at -kLargestInput and kLargestInput. Integers are from -20 to 20, or 0 to 40 where they have no sign; of
// "label..." 0 to 20, numbers of columns.
constexpr double kLargestInput = 3, kLargestWhole = 8, kLargestInteger = 20;
bool isWholeInput(const std::string& argument);
bool isLabelInput(const std::string& argument);

} // namespace cermet::fuzz
