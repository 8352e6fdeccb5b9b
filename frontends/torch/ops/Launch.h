// One launch of what was published for a key: outputs and workspace from torch's allocator, work on the current stream.
#pragma once
#include "frontends/torch/ops/Executables.h"
#include <span>
#include <string>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/stableivalue_conversions.h>
#include <utility>

namespace cermet::torch_ops {

// The one owner of a tensor's handle, or null. torch::stable::Tensor would count its owners in a block of its own and
// give the dispatcher another handle: two allocations a tensor and call.
class Owned {
public:
  Owned() = default;
  explicit Owned(AtenTensorHandle handle) : handle_(handle) {}
  explicit Owned(StableIValue value) : Owned(torch::stable::detail::to<AtenTensorHandle>(value)) {}
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owned() {
    if (handle_)
      aoti_torch_delete_tensor_object(handle_);
  }

  AtenTensorHandle get() const { return handle_; }
  // For a stack of the dispatcher, which owns the handle then.
  StableIValue take() { return torch::stable::detail::from(std::exchange(handle_, nullptr)); }

private:
  AtenTensorHandle handle_ = nullptr;
};

// cpuDevice, or the CUDA ordinal.
int32_t deviceOf(const Owned& tensor);

bool isContiguous(const Owned& tensor);

// A dense copy where it is none.
Owned contiguous(const Owned& tensor);

// What `key` runs on a device; prepared now where it was not. Throws where that fails, or where it does not take
// `inputs` and return `outputs`.
const Executable& executableOf(int64_t key, int32_t device, size_t inputs, size_t outputs);

// Runs `executable` on `device` and puts its outputs into `outputs`. An input that kernels cannot read as it lies is
// replaced by a copy. With `reused` >= 0 the last output takes the memory of that input, which is of its shape and type
// and no copy of what was given: it must lie as kernels can read it. Throws with the executable's and the tensor's name
// on a wrong device, type or shape, and what is an IndexError in Python, with eager's words, where a label or the
// number of a row is none (on the CPU).
void run(const Executable& executable, int32_t device, std::span<Owned> inputs, std::span<Owned> outputs,
         int reused = -1);

[[noreturn]] void fail(const Executable& executable, const std::string& message);

} // namespace cermet::torch_ops
