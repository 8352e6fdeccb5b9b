// A plan's steps while it is being made, and which of its kernels share a launch: programs that cannot be one row
// program but read the same memory (the rotations of queries and keys read one cosine and sine) run side by side, which
// saves a launch and the last wave of the first.
#pragma once
#include "compiler/program/KernelSpec.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <list>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace cermet {

class PlanSteps {
public:
  using Json = nlohmann::ordered_json;

  void addExternal(Json step);
  // `operands` as docs/plan-format.md has them; `operations`: how many small ones the kernel computes.
  void addKernel(ScheduledProgram program, size_t operations, Json operands);

  // Puts neighbours side by side that neither read each other's results nor need what lies between them. `rootOf` gives
  // the input, output or buffer that a value is memory of.
  void joinKernels(llvm::function_ref<int(int)> rootOf);

  std::string programs() const; // of all kernels, for the dump
  Json take(const std::string& target);

private:
  struct Program {
    ScheduledProgram scheduled;
    Json operands;
  };
  struct Step {
    Json external;                 // null: a kernel
    std::vector<Program> programs; // of a kernel
    size_t operations = 0;
    std::vector<int> reads, writes, rows; // roots; of both, those with a number for each row
  };

  static bool mayJoin(const Step& first, const Step& second);
  static void join(Step& into, Step& from);
  bool joinNext(std::list<Step>::iterator first);
  static Json kernelJson(const Step& step, const std::string& target);

  std::list<Step> steps;
};

} // namespace cermet
