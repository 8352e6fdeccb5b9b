// Whole plans on the machine: every kernel of an sm_* plan, launched as the runtime launches it, over the values and
// views of the plan.
#pragma once
#include "compiler/program/KernelSpec.h"
#include "runtime/plan/Plan.h"
#include "tests/simt/Library.h"
#include <memory>
#include <vector>

namespace cermet::simt {

struct PlanOptions {
  uint64_t seed = 1;        // of the threads' order
  bool scalar = false;      // single elements even where vectors are possible
  bool forceVector = false; // vectors even where they are misaligned
  int64_t blocks = 2;       // of a persistent kernel
  int64_t extraRows = 0;    // how much larger the outermost extent is in the arguments than in memory
};

// The kernels of a plan, compiled as one library. `alter` may change a kernel's text.
class PlanKernels {
public:
  using Alter = std::string (*)(std::string text);
  explicit PlanKernels(const Plan& plan, Alter alter = nullptr);

  // By step.
  const KernelSpec& spec(size_t step) const { return specs[step]; }
  const Library& library() const { return *compiled; }
  // The library's name of a step's entry.
  static std::string symbol(size_t step, const std::string& entry);

private:
  std::vector<KernelSpec> specs;
  std::unique_ptr<Library> compiled;
};

// What `run` answers where a view of rows that lie apart cannot be.
extern const char* const kNeedsDense;

// Runs every step over `tensors`, the plan's inputs and outputs. "" or what went wrong.
std::string run(const Plan& plan, const PlanKernels& kernels, const std::vector<cermet_tensor>& tensors,
                const PlanOptions& options);

} // namespace cermet::simt
