// What bench/op_call.py compares an op of Cermet's with: the same work without torch's dispatcher and without Python. An
// output is allocated by torch's allocator and one RMSNorm launched into it, as often as a graph has ops; the outputs
// are released together at the end, as a graph's are. Called through ctypes in a process that has torch.
#include "frontends/c/cermet.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <fmt/format.h>
#include <string>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <vector>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

constexpr const char* kGraph = R"(module attributes {{cermet.version = 1 : i64}} {{
  func.func @rms_norm(%x: tensor<?x{0}xbf16, #cermet.symbols<["r0"]>>, %weight: tensor<{0}xbf16>)
      -> tensor<?x{0}xbf16, #cermet.symbols<["r0"]>> {{
    %y = cermet.rms_norm %x, %weight {{eps = 1.0e-6 : f64, round_before_weight}}
        : tensor<?x{0}xbf16, #cermet.symbols<["r0"]>>, tensor<{0}xbf16> to tensor<?x{0}xbf16, #cermet.symbols<["r0"]>>
    return %y : tensor<?x{0}xbf16, #cermet.symbols<["r0"]>>
  }}
}}
)";

thread_local std::string message;

bool failed(cermet_status status) {
  if (status != CERMET_OK)
    message = cermet_error_message();
  return status != CERMET_OK;
}

bool failed(AOTITorchError status) {
  if (status != AOTI_TORCH_SUCCESS)
    message = "torch cannot allocate the output";
  return status != AOTI_TORCH_SUCCESS;
}

} // namespace

EXPORTED const char* op_plain_error() {
  return message.c_str();
}

// The executable of a norm over `columns`, for the life of the process, or null. A device below 0 is the CPU.
EXPORTED cermet_executable* op_plain_prepare(int64_t columns, int32_t device) {
  cermet_context* context = nullptr;
  cermet_plan* plan = nullptr;
  cermet_executable* executable = nullptr;
  const std::string text = fmt::format(kGraph, columns);
  if (failed(cermet_context_create(nullptr, &context)) ||
      failed(cermet_compile(context, text.data(), text.size(), "auto", &plan)) ||
      failed(cermet_prepare(context, plan, device < 0 ? 0 : device, &executable)))
    return nullptr;
  return executable;
}

// Nanoseconds that the host needs for `times` of it on bfloat16 rows, or -1.
EXPORTED double op_plain_run(cermet_executable* executable, void* stream, int32_t device, void* input, void* weight,
                             int64_t rows, int64_t columns, int32_t times) {
  std::vector<AtenTensorHandle> outputs(size_t(times), nullptr);
  const std::array<int64_t, 2> sizes{rows, columns}, strides{columns, 1};
  const int32_t type = device < 0 ? aoti_torch_device_type_cpu() : aoti_torch_device_type_cuda();
  const int32_t index = device < 0 ? 0 : device;
  bool wrong = false;
  const auto start = std::chrono::steady_clock::now();
  for (AtenTensorHandle& output : outputs) {
    std::array<cermet_tensor, 3> tensors = {{{input, sizes.data(), strides.data(), 2, CERMET_BF16},
                                             {weight, &sizes[1], &strides[1], 1, CERMET_BF16},
                                             {nullptr, sizes.data(), strides.data(), 2, CERMET_BF16}}};
    wrong = wrong ||
            failed(aoti_torch_empty_strided(2, sizes.data(), strides.data(), aoti_torch_dtype_bfloat16(), type,
                                            index, &output)) ||
            failed(aoti_torch_get_data_ptr(output, &tensors[2].data)) ||
            failed(cermet_launch(executable, stream, tensors.data(), int32_t(tensors.size()), nullptr, 0));
  }
  for (AtenTensorHandle output : outputs)
    if (output)
      aoti_torch_delete_tensor_object(output);
  const auto stop = std::chrono::steady_clock::now();
  return wrong ? -1 : std::chrono::duration<double, std::nano>(stop - start).count();
}
