// `cermet_v1::linear_launch_{n}(Tensor hidden, Tensor weight, Tensor a0, ..., Tensor an-1, int key, int position)
// -> (Tensor, Tensor)`: logits = hidden @ weight^T, then one launch of `key` with the logits as its input `position`.
// Nobody else ever sees the logits, so the second result, their gradient, takes their memory (the caller has made sure
// that the kernel that writes it reads each element first: frontends/torch/cermet/head.py, in_place).
#include "frontends/torch/ops/Launch.h"
#include <array>
#include <optional>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

using torch::stable::Tensor;

namespace cermet::torch_ops {
namespace {

Tensor linear(const Tensor& hidden, const Tensor& weight) {
  using torch::stable::detail::from;
  std::array<StableIValue, 3> stack = {from(hidden), from(weight), from(std::optional<Tensor>())};
  STABLE_TORCH_ERROR_CODE_CHECK(torch_call_dispatcher("aten::linear", "", stack.data(), TORCH_ABI_VERSION));
  return torch::stable::detail::to<Tensor>(stack[0]);
}

void linearLaunch(StableIValue* stack, uint64_t inputCount, uint64_t outputCount) {
  using torch::stable::detail::from;
  using torch::stable::detail::to;
  const size_t given = size_t(inputCount) - 2; // tensors
  std::vector<Tensor> tensors;
  tensors.reserve(given);
  for (size_t i = 0; i < given; ++i)
    tensors.push_back(to<Tensor>(stack[i]));
  const auto key = to<int64_t>(stack[given]), position = to<int64_t>(stack[given + 1]);
  const Executable& executable = executableOf(key, deviceOf(tensors[0]), given - 1, outputCount);
  if (position < 0 || position >= int64_t(given) - 1)
    fail(executable, "the logits are input " + std::to_string(position) + " of " + std::to_string(given - 1));
  Tensor logits = linear(tensors[0], tensors[1]);
  if (!logits.is_contiguous())
    logits = torch::stable::contiguous(logits);
  tensors.erase(tensors.begin(), tensors.begin() + 2);
  tensors.insert(tensors.begin() + position, std::move(logits));
  std::vector<Tensor> outputs = run(executable, tensors, int(position));
  for (size_t i = 0; i < outputCount; ++i)
    stack[i] = from(outputs[i]);
}

void implement(torch::stable::detail::StableLibrary& library) {
  for (int inputs = 1; inputs <= maxHeadInputs; ++inputs)
    library.impl(("linear_launch_" + std::to_string(inputs)).c_str(), linearLaunch);
}

} // namespace
} // namespace cermet::torch_ops

STABLE_TORCH_LIBRARY_IMPL(cermet_v1, CPU, library) {
  cermet::torch_ops::implement(library);
}
STABLE_TORCH_LIBRARY_IMPL(cermet_v1, CUDA, library) {
  cermet::torch_ops::implement(library);
}
