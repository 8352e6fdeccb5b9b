// Random graphs of small operations over one iteration space: elementwise work, broadcasts, casts, sums along rows and
// over rows, in every order that a row program can hold.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace cermet::tests {

struct RandomGraph {
  std::string text;
  std::vector<std::vector<int64_t>> inputs; // concrete sizes, by argument
};

RandomGraph randomGraph(uint64_t seed);

} // namespace cermet::tests
