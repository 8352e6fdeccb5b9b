// The one kernel behind every `cermet_v1::launch_{n}_{m}(Tensor a0, ..., Tensor an-1, int key) -> m Tensors`, and
// behind every `launch_over_{n}_{m}`, of which the key says which results take operands' memory. Stable ABI of
// torch 2.10, so one binary serves every later torch, with and without CUDA.
#include "frontends/torch/ops/Launch.h"
#include "runtime/abi/ElementType.h"
#include "runtime/abi/Limits.h"
#include <algorithm>
#include <array>
#include <dlfcn.h>
#include <stdexcept>
#include <string>
#include <torch/csrc/stable/library.h>
#include <torch/headeronly/core/MemoryFormat.h>

namespace cermet::torch_ops {
namespace {

void check(AOTITorchError status) {
  STABLE_TORCH_ERROR_CODE_CHECK(status);
}

// By cermet_dtype.
int32_t torchDtype(int32_t dtype) {
#define CODE(code, name, graph, array, ...) aoti_torch_dtype_##array(),
  static const int32_t codes[] = {CERMET_ELEMENT_TYPES(CODE)};
#undef CODE
  return codes[dtype];
}

// What torch's eager operations say of a label and of a row of an embedding that is none.
[[noreturn]] void failIndex(const Executable& executable) {
  int64_t row = 0, number = 0, bound = 0;
  const int32_t isColumn = cermet_error_index(&row, &number, &bound);
  if (isColumn < 0)
    fail(executable, cermet_error_message());
  throw std::out_of_range(isColumn ? "Target " + std::to_string(number) + " is out of bounds."
                                   : "index out of range in self");
}

// libtorch_cuda is there only in a CUDA build of torch, and then it is loaded before any CUDA tensor exists.
void* currentStream(int32_t device) {
  using Query = AOTITorchError (*)(int32_t, void**);
  static const Query query = [] {
    void* library = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
    return library ? reinterpret_cast<Query>(dlsym(library, "aoti_torch_get_current_cuda_stream")) : nullptr;
  }();
  if (!query)
    throw std::runtime_error("cermet: this torch has no CUDA (libtorch_cuda.so is not loaded)");
  void* stream = nullptr;
  check(query(device, &stream));
  return stream;
}

std::string deviceText(int32_t device) {
  return device == cpuDevice ? "cpu" : "cuda:" + std::to_string(device);
}

Owned empty(int64_t rank, const int64_t* sizes, const int64_t* strides, int32_t dtype, int32_t device) {
  AtenTensorHandle handle = nullptr;
  bool cpu = device == cpuDevice;
  check(aoti_torch_empty_strided(rank, sizes, strides, dtype,
                                 cpu ? aoti_torch_device_type_cpu() : aoti_torch_device_type_cuda(), cpu ? 0 : device,
                                 &handle));
  return Owned(handle);
}

Owned share(const Owned& tensor) {
  AtenTensorHandle handle = nullptr;
  check(aoti_torch_new_tensor_handle(tensor.get(), &handle));
  return Owned(handle);
}

// A tensor of its own in the same memory.
Owned reinterpret(const Owned& tensor, int64_t rank, const int64_t* sizes, const int64_t* strides) {
  int64_t offset = 0;
  AtenTensorHandle handle = nullptr;
  check(aoti_torch_get_storage_offset(tensor.get(), &offset));
  check(aoti_torch__reinterpret_tensor(tensor.get(), rank, sizes, strides, offset, &handle));
  return Owned(handle);
}

// Sizes and strides stay owned by the tensor, which outlives the launch.
cermet_tensor describe(const Owned& tensor, int32_t rank, cermet_dtype dtype) {
  cermet_tensor out{};
  int64_t *sizes = nullptr, *strides = nullptr;
  check(aoti_torch_get_data_ptr(tensor.get(), &out.data));
  check(aoti_torch_get_sizes(tensor.get(), &sizes));
  check(aoti_torch_get_strides(tensor.get(), &strides));
  out.sizes = sizes;
  out.strides = strides;
  out.rank = rank;
  out.dtype = dtype;
  return out;
}

// An input as the executable takes it: type and rank as the graph says, dense in the last dimension where it must be
// (else a copy is made in place of `tensor`).
cermet_tensor takeInput(const Executable& executable, size_t index, Owned& tensor, int32_t device) {
  const Input& input = executable.inputs[index];
  if (int32_t given = deviceOf(tensor); given != device)
    fail(executable, input.name + " is on " + deviceText(given) + ", expected " + deviceText(device));
  int32_t dtype = 0;
  check(aoti_torch_get_dtype(tensor.get(), &dtype));
  if (dtype != torchDtype(input.dtype)) {
    std::string given = "torch dtype " + std::to_string(dtype);
    for (int32_t code = 0; code < kElementTypeCount; ++code)
      if (torchDtype(code) == dtype)
        given = elementName(code);
    fail(executable, input.name + " has dtype " + given + ", expected " + elementName(input.dtype));
  }
  int64_t rank = 0;
  check(aoti_torch_get_dim(tensor.get(), &rank));
  if (rank != input.rank)
    fail(executable,
         input.name + " has " + std::to_string(rank) + " dimensions, expected " + std::to_string(input.rank));
  cermet_tensor out = describe(tensor, input.rank, input.dtype);
  if (input.rank > 0 && !input.isStrided && out.strides[input.rank - 1] != 1 && out.sizes[input.rank - 1] != 1) {
    tensor = contiguous(tensor);
    out = describe(tensor, input.rank, input.dtype);
  }
  return out;
}

// An output that lies as its order says: in the memory of an input that lies so too, where one is named, else in its
// own.
Owned makeOutput(const Output& output, std::span<Owned> inputs, const cermet_tensor* tensors, int32_t device) {
  const size_t rank = output.order.size();
  std::array<int64_t, CERMET_MAX_RANK> sizes{}, strides{};
  int64_t stride = 1;
  for (size_t inner = rank; inner-- > 0;) {
    const int8_t axis = output.order[inner];
    const Size& size = output.sizes[axis];
    sizes[axis] = size.input < 0 ? size.number : tensors[size.input].sizes[size.axis];
    strides[axis] = stride;
    stride *= std::max<int64_t>(sizes[axis], 1);
  }
  if (output.place >= 0) {
    const cermet_tensor& place = tensors[output.place];
    bool fits = place.dtype == output.dtype && size_t(place.rank) == rank;
    for (size_t axis = 0; fits && axis < rank; ++axis)
      fits = place.sizes[axis] == sizes[axis] && (sizes[axis] == 1 || place.strides[axis] == strides[axis]);
    if (fits)
      return reinterpret(inputs[size_t(output.place)], int64_t(rank), sizes.data(), strides.data());
  }
  return empty(int64_t(rank), sizes.data(), strides.data(), torchDtype(output.dtype), device);
}

// Workspace, then the launch; `tensors` are inputs and outputs.
cermet_status runOnce(const Executable& executable, const cermet_tensor* tensors, int32_t device) {
  const auto inputs = int32_t(executable.inputs.size()), outputs = int32_t(executable.outputs.size());
  size_t workspaceSize = 0;
  if (executable.workspace)
    if (cermet_status status = cermet_workspace_size(executable.handle, tensors, inputs, &workspaceSize);
        status != CERMET_OK)
      return status;
  void* workspace = nullptr;
  Owned scratch; // goes back to the stream-ordered allocator, which later work of this stream may reuse
  if (workspaceSize > 0) {
    // Device blocks are aligned to 512 bytes; on the CPU torch promises 64, so there is room to move up.
    int64_t bytes = int64_t(workspaceSize) + (device == cpuDevice ? 256 : 0), one = 1;
    scratch = empty(1, &bytes, &one, aoti_torch_dtype_uint8(), device);
    check(aoti_torch_get_data_ptr(scratch.get(), &workspace));
    if (device == cpuDevice)
      workspace = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(workspace) + 255) & ~uintptr_t(255));
  }
  void* stream = device == cpuDevice ? nullptr : currentStream(device);
  return cermet_launch(executable.handle, stream, tensors, inputs + outputs, workspace, workspaceSize);
}

// Copies of the inputs that are not dense, but for one that is written; whether there were any.
bool makeDense(const Executable& executable, std::span<Owned> inputs, cermet_tensor* tensors, int written = -1) {
  bool changed = false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (int(i) == written || isContiguous(inputs[i]))
      continue;
    inputs[i] = contiguous(inputs[i]);
    tensors[i] = describe(inputs[i], executable.inputs[i].rank, executable.inputs[i].dtype);
    changed = true;
  }
  return changed;
}

void launch(StableIValue* stack, uint64_t inputCount, uint64_t outputCount) {
  const size_t count = size_t(inputCount) - 1;
  std::array<Owned, kMaxRegionInputs> inputs;
  std::array<Owned, kMaxRegionOutputs> outputs;
  for (size_t i = 0; i < count; ++i)
    inputs[i] = Owned(stack[i]);
  const auto key = torch::stable::detail::to<int64_t>(stack[count]);
  const int32_t device = deviceOf(inputs[0]);
  const Executable& executable = executableOf(key, device, count, outputCount);
  run(executable, device, {inputs.data(), count}, {outputs.data(), outputCount});
  for (size_t i = 0; i < outputCount; ++i)
    stack[i] = outputs[i].take();
}

void implement(torch::stable::detail::StableLibrary& library) {
  for (int n = 1; n <= kMaxRegionInputs; ++n)
    for (int m = 1; m <= kMaxRegionOutputs; ++m)
      for (const char* name : {"launch_", "launch_over_"})
        library.impl((name + std::to_string(n) + "_" + std::to_string(m)).c_str(), launch);
}

} // namespace

void fail(const Executable& executable, const std::string& message) {
  throw std::runtime_error("cermet_v1::launch " + executable.name + ": " + message);
}

int32_t deviceOf(const Owned& tensor) {
  int32_t type = 0, index = 0;
  check(aoti_torch_get_device_type(tensor.get(), &type));
  if (type == aoti_torch_device_type_cpu())
    return cpuDevice;
  check(aoti_torch_get_device_index(tensor.get(), &index));
  return index;
}

bool isContiguous(const Owned& tensor) {
  bool contiguous = false;
  check(aoti_torch_is_contiguous(tensor.get(), &contiguous));
  return contiguous;
}

Owned contiguous(const Owned& tensor) {
  std::array<StableIValue, 2> stack = {share(tensor).take(),
                                       torch::stable::detail::from(torch::headeronly::MemoryFormat::Contiguous)};
  check(torch_call_dispatcher("aten::contiguous", "", stack.data(), TORCH_ABI_VERSION));
  return Owned(stack[0]);
}

const Executable& executableOf(int64_t key, int32_t device, size_t inputs, size_t outputs) {
  const Executable* found = find(key, device);
  const Executable& executable = found ? *found : prepare(key, device);
  if (inputs != executable.inputs.size() || outputs != executable.outputs.size())
    fail(executable, "called with " + std::to_string(inputs) + " inputs for " + std::to_string(outputs) +
                         " outputs, expected " + std::to_string(executable.inputs.size()) + " for " +
                         std::to_string(executable.outputs.size()));
  return executable;
}

void run(const Executable& executable, int32_t device, std::span<Owned> inputs, std::span<Owned> outputs, int reused) {
  std::array<cermet_tensor, kMaxRegionInputs + kMaxRegionOutputs> tensors;
  for (size_t i = 0; i < inputs.size(); ++i)
    tensors[i] = takeInput(executable, i, inputs[i], device);
  // One that is written cannot be read a second time: there what no view fits must not be found out by trying.
  if (reused >= 0)
    makeDense(executable, inputs, tensors.data(), reused);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Output& output = executable.outputs[i];
    const bool last = i + 1 == outputs.size();
    outputs[i] =
        last && reused >= 0 ? share(inputs[size_t(reused)]) : makeOutput(output, inputs, tensors.data(), device);
    tensors[inputs.size() + i] = describe(outputs[i], int32_t(output.sizes.size()), output.dtype);
  }
  cermet_status status = runOnce(executable, tensors.data(), device);
  // A reshape in the graph has no strides for every layout of its input. An input that is written cannot be read again.
  if (status == CERMET_UNSUPPORTED && reused < 0 && makeDense(executable, inputs, tensors.data()))
    status = runOnce(executable, tensors.data(), device);
  if (status == CERMET_OUT_OF_RANGE)
    failIndex(executable);
  if (status != CERMET_OK)
    fail(executable, cermet_error_message());
}

} // namespace cermet::torch_ops

STABLE_TORCH_LIBRARY_IMPL(cermet_v1, CPU, library) {
  cermet::torch_ops::implement(library);
}
STABLE_TORCH_LIBRARY_IMPL(cermet_v1, CUDA, library) {
  cermet::torch_ops::implement(library);
}
