// What a launcher does with a host kernel: builds the image, loads it, and calls it on arrays with strides.
#pragma once
#include "compiler/HostTarget.h"
#include "runtime/RowArguments.h"
#include "tests/unit/host/RowEvaluator.h"
#include <array>
#include <memory>
#include <random>

namespace cermet::test {

// An operand's memory: `values` in float64 are what the bytes hold. Gaps between rows hold 0xAB bytes.
class Array {
public:
  // `shift`: elements before the base, to leave it aligned to its element only.
  Array(DType dtype, int64_t elements, int64_t shift = 0);
  double get(int64_t index) const;
  void set(int64_t index, double value); // rounded
  void repeat(int64_t period);           // the first `period` elements over and over
  char* base() { return bytes.data() + shift * byteSize(dtype); }
  int64_t size() const { return elements; }
  DType type() const { return dtype; }
  bool operator==(const Array& other) const { return bytes == other.bytes; }

private:
  DType dtype;
  int64_t elements, shift;
  std::vector<char> bytes;
};

// A program's operands over an iteration space, inputs random.
struct Arguments {
  // `strides` by operand, in elements for each extent; empty: dense for tile and row operands.
  Arguments(const RowProgram& program, std::vector<int64_t> extents, std::mt19937& random,
            std::vector<std::vector<int64_t>> strides = {});

  int64_t rows() const;
  int64_t offset(size_t operand, int64_t row) const;

  const RowProgram& program;
  std::vector<int64_t> extents;
  std::vector<std::vector<int64_t>> strides;
  std::vector<Array> arrays;
};

class HostKernel {
public:
  explicit HostKernel(const RowProgram& program, const std::string& target = newestTarget());
  ~HostKernel();

  // All rows, cut into `parts` ranges with a partial row each; then the fold, if there is one.
  void run(Arguments& arguments, int parts = 1) const;

  const std::string& image() const { return bytes; }
  static std::string newestTarget();         // of this machine
  static std::vector<std::string> targets(); // that this machine can run

private:
  using Main = void (*)(const RowArguments*, int64_t, int64_t, int64_t);
  using Fold = void (*)(const RowArguments*);

  std::string bytes;
  int file = -1;
  void* library = nullptr;
  Main main = nullptr;
  Fold fold = nullptr;
};

// Runs kernel and oracle on the same inputs and expects every output within one unit in the last place of its type (two
// for 16-bit types) plus `noise` of the output's largest value; of 16-bit outputs, all but one in 200 equal.
void expectEqualsOracle(const HostKernel& kernel, Arguments& arguments, int parts = 1, double noise = 2e-6);

std::mt19937 freshRandom(); // seeded by --gtest_random_seed or the system; the seed is in the test's trace

} // namespace cermet::test
