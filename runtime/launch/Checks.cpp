// What a launch refuses, and how it says so. The checks are a few comparisons per tensor; only the messages cost.
#include "runtime/launch/Checks.h"
#include "runtime/abi/ElementType.h"
#include "runtime/launch/Frame.h"

namespace cermet {

static thread_local HostFault lastFaultOfThread;

const HostFault& Executable::lastFault() {
  return lastFaultOfThread;
}

void Executable::countFaultFrom(int64_t rows) {
  lastFaultOfThread.row += lastFaultOfThread.row < 0 ? 0 : rows;
}

std::string placeOf(const Plan& plan, int value) {
  const char* kinds[] = {"input", "output", "buffer", "view"};
  const PlanValue& described = plan.values[value];
  return fmt::format("{}: {} '{}' ({} {})", plan.name, kinds[static_cast<int>(described.kind)], described.name,
                     value < plan.inputs + plan.outputs ? "tensor" : "value", value);
}

std::string Executable::place(int value) const {
  return placeOf(*plan_, value);
}

static Status describeSize(const Plan& plan, int value, int dim, int64_t given, const int64_t* symbols) {
  if (given < 0)
    return error(CERMET_INVALID_ARGUMENT, "{} has size {} in dimension {}, expected 0 or more", placeOf(plan, value),
                 given, dim);
  const Dimension& expected = plan.values[value].dims[dim];
  if (!expected.symbolic())
    return error(CERMET_INVALID_ARGUMENT, "{} has size {} in dimension {}, expected {}", placeOf(plan, value), given,
                 dim, expected.size);
  std::string origin;
  for (int input = plan.inputs; input-- > 0;)
    for (const Dimension& candidate : plan.values[input].dims)
      if (candidate == expected)
        origin = plan.values[input].name;
  return error(CERMET_INVALID_ARGUMENT, "{} has size {} in dimension {}, expected {} ({} of '{}')",
               placeOf(plan, value), given, dim, symbols[expected.symbol], plan.symbols[expected.symbol], origin);
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

Status checkShape(const Plan& plan, int value, const cermet_tensor& tensor, int64_t* symbols) {
  const PlanValue& expected = plan.values[value];
  if (tensor.dtype != expected.dtype) [[unlikely]]
    return error(CERMET_INVALID_ARGUMENT, "{} has dtype {}, expected {}", placeOf(plan, value),
                 elementName(tensor.dtype), elementName(expected.dtype));
  if (tensor.rank != expected.rank) [[unlikely]]
    return error(CERMET_INVALID_ARGUMENT, "{} has {} dimensions, expected {}", placeOf(plan, value), tensor.rank,
                 expected.rank);
  if (tensor.rank > 0 && (!tensor.sizes || !tensor.strides)) [[unlikely]]
    return error(CERMET_INVALID_ARGUMENT, "{} has no {}, expected an array of {}", placeOf(plan, value),
                 tensor.sizes ? "strides" : "sizes", tensor.rank);
  for (int dim = 0; dim < expected.rank; ++dim) {
    const Dimension& dimension = expected.dims[dim];
    const int64_t given = tensor.sizes[dim];
    if (dimension.symbolic() && symbols[dimension.symbol] < 0)
      symbols[dimension.symbol] = given;
    if (given < 0 || given != sizeOf(dimension, symbols)) [[unlikely]]
      return describeSize(plan, value, dim, given, symbols);
  }
  return {};
}

Status Executable::checkTensor(int value, const cermet_tensor& tensor, Frame& frame) const {
  CERMET_RETURN_IF_ERROR(checkShape(*plan_, value, tensor, frame.symbols));
  frame.views[value] = {static_cast<char*>(tensor.data), tensor.sizes, tensor.strides};
  return {};
}

Status Executable::bindInputs(const cermet_tensor* tensors, Frame& frame) const {
  std::fill_n(frame.symbols, plan_->symbols.size(), int64_t(-1));
  for (int input = 0; input < plan_->inputs; ++input)
    CERMET_RETURN_IF_ERROR(checkTensor(input, tensors[input], frame));
  return {};
}

Status checkMemory(const Plan& plan, int value, const cermet_tensor& tensor, bool unitStride) {
  const int last = tensor.rank - 1;
  bool empty = false, repeats = false;
  for (int dim = 0; dim <= last; ++dim) {
    empty |= tensor.sizes[dim] == 0;
    repeats |= tensor.sizes[dim] > 1 && tensor.strides[dim] == 0;
  }
  if (empty)
    return {};
  const int bytes = elementBytes(plan.values[value].dtype);
  if (!tensor.data) [[unlikely]]
    return error(CERMET_INVALID_ARGUMENT, "{} has a null pointer, expected memory of its elements",
                 placeOf(plan, value));
  if (reinterpret_cast<uintptr_t>(tensor.data) & uintptr_t(bytes - 1)) [[unlikely]]
    return error(CERMET_INVALID_ARGUMENT, "{} is at {}, which is not aligned to its elements of {} bytes",
                 placeOf(plan, value), fmt::ptr(tensor.data), bytes);
  if (unitStride && last >= 0 && tensor.strides[last] != 1) [[unlikely]]
    return error(CERMET_INVALID_ARGUMENT, "{} has stride {} in its last dimension, expected 1; copy it to a dense one",
                 placeOf(plan, value), tensor.strides[last]);
  if (repeats && value >= plan.inputs) [[unlikely]]
    return error(CERMET_INVALID_ARGUMENT,
                 "{} has stride 0 in a dimension larger than 1; an output needs its own memory", placeOf(plan, value));
  return {};
}

Status Executable::checkData(const cermet_tensor* tensors) const {
  for (int value = 0; value < plan_->inputs + plan_->outputs; ++value)
    CERMET_RETURN_IF_ERROR(checkMemory(*plan_, value, tensors[value], uses_[value].unitStride));
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

Status checkWorkspace(const std::string& name, const void* workspace, size_t given, size_t needed, const char* asked) {
  if (given < needed)
    return error(CERMET_INVALID_ARGUMENT, "{}: the workspace has {} bytes, expected {}; ask {}", name, given, needed,
                 asked);
  if (needed > 0 && !workspace)
    return error(CERMET_INVALID_ARGUMENT, "{}: the workspace is null, expected {} bytes", name, needed);
  if (needed > 0 && reinterpret_cast<uintptr_t>(workspace) % kWorkspaceAlignment)
    return error(CERMET_INVALID_ARGUMENT, "{}: the workspace is at {}, expected an address aligned to {} bytes", name,
                 fmt::ptr(workspace), kWorkspaceAlignment);
  return {};
}

} // namespace cermet
