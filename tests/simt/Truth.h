// Plans of the compiler on the machine, and what is right: the float64 interpreter. Layouts, tensors of exactly their
// extent, and the graphs that several tests ask for.
#pragma once
#include "tests/simt/Plans.h"
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <random>
#include <string>
#include <vector>

namespace cermet::simt {

using Symbols = std::map<std::string, int64_t>;

// The compiler's answers for sm_90; they throw what it says.
Plan planOf(const std::string& text);
nlohmann::json gradient(const std::string& text, const std::vector<uint8_t>& wanted);

// How tensors lie in memory, in elements.
struct Layout {
  int64_t pad = 0; // rows are as many vectors apart beyond their width at every level, so that no two extents collapse
  int64_t shift = 0; // of every base, off its allocation
  int64_t step = 1;  // from one column of a strided input to the next
  bool isSwapped = false; // of four dimensions the two in the middle lie in the other order
  bool isTurned = false;  // of a strided input the last two
};

// A tensor in memory of exactly its extent, so that AddressSanitizer sees the byte after it; every byte is poison at
// first (NaN in every float type).
struct Tensor {
  cermet_dtype dtype;
  std::vector<int64_t> shape, strides;
  std::unique_ptr<char[]> memory;
  char* base = nullptr;
  int64_t elements = 1;

  Tensor(const Plan& plan, const PlanValue& value, const Symbols& symbols, const Layout& layout);
  char* at(int64_t index) const;
  void randomise(std::mt19937_64& random, bool positive);
  std::vector<double> values() const;
};

struct Outcome {
  std::vector<Tensor> tensors; // inputs, then outputs
  std::string machineError;
};

// Over random inputs.
Outcome runPlan(const Plan& plan, const PlanKernels& kernels, const Symbols& symbols, const PlanOptions& options,
                const Layout& layout);

// A graph in float64 over the inputs of a run, with the casts of the traced program or without.
std::vector<std::vector<double>> interpret(const std::string& text, const Outcome& run, bool honourCasts);

// Relative, of all elements together.
double distance(const std::vector<double>& a, const std::vector<double>& b);

// The plan may stray from float64 by no more than the traced program itself does, plus f32's own noise, or, where large
// terms cancel, plus what noise of the inputs makes of the results; integers and conditions not at all.
void expectRight(const std::string& text, const Plan& plan, const Outcome& run, const std::string& what);

// That a graph's plan is right with vectors and with single elements, over dense rows and rows that lie apart.
void check(const std::string& text, const Symbols& symbols, int64_t step = 1, bool isSwapped = false);
// The same of all of these.
void check(const std::string& text, const std::vector<Symbols>& all, const std::vector<Layout>& layouts);

// Graphs over tiles of r0 x r1 x columns.
struct TileCase {
  int64_t columns;
  std::string dtype;
  int64_t r0, r1;
};
std::string graphOf(const std::string& signature, const std::string& body); // of a function f
std::string tile(int64_t columns, const std::string& dtype);
std::string rmsNorm(int64_t columns, const std::string& dtype, bool residual);
std::string glu(int64_t columns, const std::string& dtype);

} // namespace cermet::simt
