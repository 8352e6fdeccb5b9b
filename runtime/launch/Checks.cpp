// What a launch refuses, and how it says so. The checks are a few comparisons per tensor; only the messages cost.
#include "runtime/abi/ElementType.h"
#include "runtime/launch/Frame.h"

namespace cermet {

static thread_local HostFault lastFaultOfThread;

const HostFault& Executable::lastFault() {
  return lastFaultOfThread;
}

std::string Executable::place(int value) const {
  const char* kinds[] = {"input", "output", "buffer", "view"};
  const PlanValue& described = plan_->values[value];
  return fmt::format("{}: {} '{}' ({} {})", plan_->name, kinds[static_cast<int>(described.kind)], described.name,
                     value < plan_->inputs + plan_->outputs ? "tensor" : "value", value);
}

Status Executable::describeSize(int value, int dim, int64_t given, const Frame& frame) const {
  if (given < 0)
    return error(CERMET_INVALID_ARGUMENT, "{} has size {} in dimension {}, expected 0 or more", place(value), given,
                 dim);
  const Dimension& expected = plan_->values[value].dims[dim];
  if (!expected.symbolic())
    return error(CERMET_INVALID_ARGUMENT, "{} has size {} in dimension {}, expected {}", place(value), given, dim,
                 expected.size);
  std::string origin;
  for (int input = plan_->inputs; input-- > 0;)
    for (const Dimension& candidate : plan_->values[input].dims)
      if (candidate == expected)
        origin = plan_->values[input].name;
  return error(CERMET_INVALID_ARGUMENT, "{} has size {} in dimension {}, expected {} ({} of '{}')", place(value), given,
               dim, frame.symbols[expected.symbol], plan_->symbols[expected.symbol], origin);
}

Status Executable::describeFault(const PlanStep& step, const HostFault& fault) const {
  lastFaultOfThread = fault;
  return error(CERMET_OUT_OF_RANGE, "{}: row {} of kernel '{}' reads {} {}, expected 0 to {}", plan_->name, fault.row,
               step.name, fault.isColumn ? "column" : "row", fault.number, fault.bound - 1);
}

Status Executable::describeCallback(const PlanStep& step, cermet_status status) const {
  lastFaultOfThread = {}; // no kernel's
  return error(status, "{}: the callback of the external step {} failed", plan_->name, step.name);
}

// Type and shape; binds the symbols that inputs bring.
Status Executable::checkTensor(int value, const cermet_tensor& tensor, Frame& frame) const {
  const PlanValue& expected = plan_->values[value];
  if (tensor.dtype != expected.dtype) [[unlikely]]
    return error(CERMET_INVALID_ARGUMENT, "{} has dtype {}, expected {}", place(value), elementName(tensor.dtype),
                 elementName(expected.dtype));
  if (tensor.rank != expected.rank) [[unlikely]]
    return error(CERMET_INVALID_ARGUMENT, "{} has {} dimensions, expected {}", place(value), tensor.rank,
                 expected.rank);
  if (tensor.rank > 0 && (!tensor.sizes || !tensor.strides)) [[unlikely]]
    return error(CERMET_INVALID_ARGUMENT, "{} has no {}, expected an array of {}", place(value),
                 tensor.sizes ? "strides" : "sizes", tensor.rank);
  for (int dim = 0; dim < expected.rank; ++dim) {
    const Dimension& dimension = expected.dims[dim];
    const int64_t given = tensor.sizes[dim];
    if (dimension.symbolic() && frame.symbols[dimension.symbol] < 0)
      frame.symbols[dimension.symbol] = given;
    if (given < 0 || given != sizeOf(dimension, frame.symbols)) [[unlikely]]
      return describeSize(value, dim, given, frame);
  }
  frame.views[value] = {static_cast<char*>(tensor.data), tensor.sizes, tensor.strides};
  return {};
}

Status Executable::bindInputs(const cermet_tensor* tensors, Frame& frame) const {
  std::fill_n(frame.symbols, plan_->symbols.size(), int64_t(-1));
  for (int input = 0; input < plan_->inputs; ++input)
    CERMET_RETURN_IF_ERROR(checkTensor(input, tensors[input], frame));
  return {};
}

// Pointers and strides of inputs and outputs, whose shapes are right.
Status Executable::checkData(const cermet_tensor* tensors) const {
  for (int value = 0; value < plan_->inputs + plan_->outputs; ++value) {
    const cermet_tensor& tensor = tensors[value];
    const int last = tensor.rank - 1;
    bool empty = false, repeats = false;
    for (int dim = 0; dim <= last; ++dim) {
      empty |= tensor.sizes[dim] == 0;
      repeats |= tensor.sizes[dim] > 1 && tensor.strides[dim] == 0;
    }
    if (empty)
      continue;
    if (!tensor.data) [[unlikely]]
      return error(CERMET_INVALID_ARGUMENT, "{} has a null pointer, expected memory of its elements", place(value));
    if (reinterpret_cast<uintptr_t>(tensor.data) & uintptr_t(uses_[value].denseBytes - 1)) [[unlikely]]
      return error(CERMET_INVALID_ARGUMENT, "{} is at {}, which is not aligned to its elements of {} bytes",
                   place(value), fmt::ptr(tensor.data), uses_[value].denseBytes);
    if (uses_[value].unitStride && last >= 0 && tensor.strides[last] != 1) [[unlikely]]
      return error(CERMET_INVALID_ARGUMENT,
                   "{} has stride {} in its last dimension, expected 1; copy it to a dense one", place(value),
                   tensor.strides[last]);
    if (repeats && value >= plan_->inputs) [[unlikely]]
      return error(CERMET_INVALID_ARGUMENT,
                   "{} has stride 0 in a dimension larger than 1; an output needs its own memory", place(value));
  }
  return {};
}

// What costs a query of the driver for each pointer. The device's context is current.
Status Executable::checkOnDevice(void* stream, const cermet_tensor* tensors, const void* workspace) const {
  CERMET_RETURN_IF_ERROR(checkStream(stream));
  for (int value = 0; value < plan_->inputs + plan_->outputs; ++value)
    if (tensors[value].data)
      CERMET_RETURN_IF_ERROR(checkPointer(tensors[value].data, place(value)));
  return workspace ? checkPointer(workspace, fmt::format("{}: the workspace", plan_->name)) : Status();
}

Status Executable::checkPointer(const void* pointer, const std::string& what) const {
  constexpr int kMemoryType = 2, kDeviceOrdinal = 9, kIsManaged = 8;
  constexpr int kMemoryTypeDevice = 2;
  const DriverTable& driver = device_->table();
  const auto address = static_cast<CUdeviceptr>(reinterpret_cast<uintptr_t>(pointer));
  int type = 0, ordinal = -1, managed = 0;
  if (driver.cuPointerGetAttribute(&managed, kIsManaged, address) == kCudaSuccess && managed)
    return {}; // every device may use it
  if (driver.cuPointerGetAttribute(&type, kMemoryType, address) != kCudaSuccess || type != kMemoryTypeDevice)
    return error(CERMET_INVALID_ARGUMENT, "{} is at {}, which is not memory of a CUDA device", what, fmt::ptr(pointer));
  if (driver.cuPointerGetAttribute(&ordinal, kDeviceOrdinal, address) == kCudaSuccess && ordinal != device_->ordinal())
    return error(CERMET_INVALID_ARGUMENT, "{} is on device {}, expected device {}", what, ordinal, device_->ordinal());
  return {};
}

// A stream may be of any context of the device.
Status Executable::checkStream(void* stream) const {
  const DriverTable& driver = device_->table();
  if (!driver.cuStreamGetCtx || !driver.cuCtxGetDevice)
    return {};
  CUcontext context = nullptr;
  CERMET_RETURN_IF_ERROR(
      device_->driver().check(driver.cuStreamGetCtx(static_cast<CUstream>(stream), &context), "cuStreamGetCtx"));
  const ContextBinding binding(driver, context);
  CUdevice device = -1;
  CERMET_RETURN_IF_ERROR(device_->driver().check(binding.result(), "cuCtxSetCurrent"));
  CERMET_RETURN_IF_ERROR(device_->driver().check(driver.cuCtxGetDevice(&device), "cuCtxGetDevice"));
  if (device == device_->properties().handle)
    return {};
  return error(CERMET_INVALID_ARGUMENT, "{}: the stream is of CUDA device {}, the plan was prepared for device {}",
               plan_->name, device, device_->ordinal());
}

Status Executable::externalMissing() const {
  std::string names;
  for (int value : firstExternal_->externalOperands)
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ", plan_->values[value].name);
  return error(CERMET_UNSUPPORTED,
               "{}: the plan has the external step {}({}), which Cermet does not run; set a callback with "
               "cermet_executable_set_external",
               plan_->name, firstExternal_->name, names);
}

Status Executable::checkWorkspace(const void* workspace, size_t given, size_t needed) const {
  if (given < needed)
    return error(CERMET_INVALID_ARGUMENT, "{}: the workspace has {} bytes, expected {}; ask cermet_workspace_size",
                 plan_->name, given, needed);
  if (needed > 0 && !workspace)
    return error(CERMET_INVALID_ARGUMENT, "{}: the workspace is null, expected {} bytes", plan_->name, needed);
  if (needed > 0 && reinterpret_cast<uintptr_t>(workspace) % kWorkspaceAlignment)
    return error(CERMET_INVALID_ARGUMENT, "{}: the workspace is at {}, expected an address aligned to {} bytes",
                 plan_->name, fmt::ptr(workspace), kWorkspaceAlignment);
  return {};
}

} // namespace cermet
