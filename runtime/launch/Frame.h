// What one launch knows: the sizes behind the symbols and where every value is. Its arrays are as large as the plan:
// they lie on the caller's stack where they are small, else in a block of the executable's, so a launch needs no more
// stack for a large plan.
#pragma once
#include "runtime/launch/Executable.h"

namespace cermet {

struct Executable::Frame {
  int64_t symbols[kMaxSymbols];
  View* views;                      // one per value
  int64_t (*ownDims)[2 * kMaxRank]; // sizes, then strides, of each buffer and view
  cermet_tensor* tensors;           // of one external step
  uintptr_t workspace = 0;          // a number: places are computed before there is memory
  float* partials = nullptr;

  explicit Frame(const Executable& executable) : blocks_(executable.frames_) {
    char* memory = blocks_.bytes() > sizeof(small_) ? block_ = blocks_.take() : small_;
    const Plan& plan = *executable.plan_;
    views = reinterpret_cast<View*>(memory);
    ownDims = reinterpret_cast<int64_t(*)[2 * kMaxRank]>(views + plan.values.size());
    tensors = reinterpret_cast<cermet_tensor*>(ownDims + (plan.values.size() - plan.inputs - plan.outputs));
  }
  ~Frame() {
    if (block_)
      blocks_.giveBack(block_);
  }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  static size_t bytesFor(const Plan& plan) {
    size_t most = 0; // operands and results of an external step
    for (const PlanStep& step : plan.steps)
      most = std::max(most, step.externalOperands.size() + step.externalResults.size());
    return plan.values.size() * sizeof(View) +
           (plan.values.size() - plan.inputs - plan.outputs) * sizeof(*Frame::ownDims) + most * sizeof(cermet_tensor);
  }

private:
  FrameBlocks& blocks_;
  char* block_ = nullptr;
  alignas(16) char small_[4096];
};

} // namespace cermet
