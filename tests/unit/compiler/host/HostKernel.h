// What a launcher does with a host kernel: builds the image, loads it, and calls it on arrays with strides.
#pragma once
#include "compiler/host/HostTarget.h"
#include "runtime/abi/RowArguments.h"
#include "tests/unit/compiler/host/Arguments.h"
#include <memory>
#include <random>

namespace cermet::test {

class HostKernel {
public:
  explicit HostKernel(const RowProgram& program, const std::string& target = newestTarget())
      : HostKernel(std::vector{program}, target) {}
  explicit HostKernel(const std::vector<RowProgram>& programs, const std::string& target = newestTarget());
  ~HostKernel();

  // All rows, cut into `parts` ranges with a partial row each; then the fold, if there is one.
  // Answers the fault of the lowest row that has one.
  HostFault run(Arguments& arguments, int parts = 1) const;
  // The same of several programs, whose rows are numbered through; none sums over rows.
  void runBeside(const std::vector<Arguments*>& arguments, int parts = 1) const;

  const std::string& image() const { return bytes; }
  static std::string newestTarget();         // of this machine
  static std::vector<std::string> targets(); // that this machine can run

private:
  using Main = void (*)(const RowArguments*, int64_t, int64_t, int64_t, HostFault*);
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

// The same of a program whose operations are all exact: every output is equal.
void expectExact(const HostKernel& kernel, Arguments& arguments, int parts = 1);

std::mt19937 freshRandom(); // seeded by --gtest_random_seed or the system; the seed is in the test's trace

} // namespace cermet::test
