// One launch of what was published for a key: outputs and workspace from torch's allocator, work on the current stream.
#pragma once
#include "frontends/torch/ops/Executables.h"
#include <string>
#include <torch/csrc/stable/tensor.h>
#include <vector>

namespace cermet::torch_ops {

// Arities that ops exist for; as in frontends/torch/cermet/regions.py and head.py.
constexpr int maxInputs = 16;
constexpr int maxOutputs = 8;
constexpr int maxHeadInputs = 8;

// cpuDevice, or the CUDA ordinal.
int32_t deviceOf(const torch::stable::Tensor& tensor);

// What `key` runs on a device; prepared now where it was not. Throws where that fails, or where it does not take
// `inputs` and return `outputs`.
const Executable& executableOf(int64_t key, int32_t device, size_t inputs, size_t outputs);

// Runs `executable` and returns its outputs. An input that kernels cannot read as it lies is replaced by a copy. With
// `reused` >= 0 the last output takes the memory of that input, which must be contiguous and of its shape and type.
// Throws with the executable's and the tensor's name on a wrong device, type or shape.
std::vector<torch::stable::Tensor> run(const Executable& executable, std::vector<torch::stable::Tensor>& inputs,
                                       int reused = -1);

[[noreturn]] void fail(const Executable& executable, const std::string& message);

} // namespace cermet::torch_ops
