// `cermet_v1::linear_launch_{n}_{m}(Tensor hidden, Tensor weight, Tensor a0, ..., Tensor an-1, int key, int position)
// -> m Tensors`: logits = hidden @ weight^T, then one launch of `key` with the logits as its input `position`. Nobody
// else ever sees the logits, so the last result, their gradient, takes their memory (the caller has made sure that the
// kernel that writes it reads each element first: frontends/torch/cermet/loss/derivation.py, in_place). Where the
// weight has more rows than the logits have columns, the gradient's rows lie that much further apart, and between them
// stays what the product gave.
// `cermet_v1::logits_launch_{n}_{m}(Tensor(a!) logits, Tensor a0, ..., Tensor an-1, int key, int position)`: the same
// launch of logits that the caller has made and gives up.
#include "frontends/torch/ops/Launch.h"
#include "runtime/abi/Limits.h"
#include <algorithm>
#include <array>
#include <optional>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

namespace cermet::torch_ops {
namespace {

Owned linear(Owned hidden, Owned weight) {
  std::array<StableIValue, 3> stack = {hidden.take(), weight.take(),
                                       torch::stable::detail::from(std::optional<torch::stable::Tensor>())};
  STABLE_TORCH_ERROR_CODE_CHECK(torch_call_dispatcher("aten::linear", "", stack.data(), TORCH_ABI_VERSION));
  return Owned(stack[0]);
}

// The first `columns` of each row, where there are more, in the same memory.
Owned narrow(Owned logits, int64_t columns) {
  int64_t rank = 0, offset = 0, *sizes = nullptr, *strides = nullptr;
  AtenTensorHandle handle = nullptr;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dim(logits.get(), &rank));
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_sizes(logits.get(), &sizes));
  if (rank > CERMET_MAX_RANK || sizes[rank - 1] <= columns)
    return logits;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_strides(logits.get(), &strides));
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_storage_offset(logits.get(), &offset));
  std::array<int64_t, CERMET_MAX_RANK> own;
  std::copy_n(sizes, rank, own.begin());
  own[size_t(rank) - 1] = columns;
  STABLE_TORCH_ERROR_CODE_CHECK(
      aoti_torch__reinterpret_tensor(logits.get(), rank, own.data(), strides, offset, &handle));
  return Owned(handle);
}

// Runs what was published for `key` with `tensors`: the logits, which give up their memory, then the other inputs. Puts
// its results on the stack.
void launchOver(std::span<Owned> tensors, int64_t key, int64_t position, StableIValue* stack, uint64_t outputCount) {
  std::array<Owned, kMaxRegionOutputs> outputs;
  const int32_t device = deviceOf(tensors[0]);
  const Executable& executable = executableOf(key, device, tensors.size(), outputCount);
  if (position < 0 || position >= int64_t(tensors.size()))
    fail(executable, "the logits are input " + std::to_string(position) + " of " + std::to_string(tensors.size()));
  Owned logits = std::move(tensors[0]);
  if (!isContiguous(logits))
    logits = contiguous(logits);
  logits = narrow(std::move(logits), executable.outputs.back().sizes.back().number);
  // The inputs before the logits move up by one.
  std::move(tensors.begin() + 1, tensors.begin() + 1 + position, tensors.begin());
  tensors[size_t(position)] = std::move(logits);
  run(executable, device, tensors, {outputs.data(), outputCount}, int(position));
  for (size_t i = 0; i < outputCount; ++i)
    stack[i] = outputs[i].take();
}

template <bool kMakesLogits> void launchLogits(StableIValue* stack, uint64_t inputCount, uint64_t outputCount) {
  using torch::stable::detail::to;
  const size_t given = size_t(inputCount) - 2; // tensors
  std::array<Owned, kMaxLossInputs + 2> tensors;
  for (size_t i = 0; i < given; ++i)
    tensors[i] = Owned(stack[i]);
  std::span<Owned> inputs = std::span(tensors).first(given);
  if constexpr (kMakesLogits) { // of the first two, in the place of the second
    tensors[1] = linear(std::move(tensors[0]), std::move(tensors[1]));
    inputs = inputs.subspan(1);
  }
  launchOver(inputs, to<int64_t>(stack[given]), to<int64_t>(stack[given + 1]), stack, outputCount);
}

void implement(torch::stable::detail::StableLibrary& library) {
  for (int inputs = 0; inputs <= kMaxLossInputs; ++inputs)
    for (int outputs = 2; outputs <= kMaxLossOutputs; ++outputs) {
      const std::string arity = std::to_string(inputs) + "_" + std::to_string(outputs);
      library.impl(("linear_launch_" + arity).c_str(), launchLogits<true>);
      library.impl(("logits_launch_" + arity).c_str(), launchLogits<false>);
    }
}

} // namespace
} // namespace cermet::torch_ops

STABLE_TORCH_LIBRARY_IMPL(cermet_v1, CPU, library) {
  cermet::torch_ops::implement(library);
}
STABLE_TORCH_LIBRARY_IMPL(cermet_v1, CUDA, library) {
  cermet::torch_ops::implement(library);
}
