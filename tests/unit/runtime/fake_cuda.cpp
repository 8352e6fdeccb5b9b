#include "tests/unit/runtime/fake_cuda.h"
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>

namespace {

FakeCudaState state;
std::mutex mutex; // guards what is written down
thread_local void* currentContext = nullptr;
thread_local int captureMode = 0;
constexpr int kInvalidValue = 1, kInvalidHandle = 400, kImplicit = 906;

struct Function {
  std::string name;
  void* context = nullptr; // of which it is; null of a kernel, which is of every context
};
// As long as the process, as handles of a loaded library are.
Function* newFunction(std::string name, void* context) {
  static std::vector<std::unique_ptr<Function>> functions;
  const std::lock_guard lock(mutex);
  functions.push_back(std::make_unique<Function>(Function{std::move(name), context}));
  return functions.back().get();
}

void* contextOf(int device) {
  return reinterpret_cast<void*>(uintptr_t(0x1000 + device));
}

} // namespace

extern "C" {

FakeCudaState* fakeCudaState() {
  return &state;
}

int cuInit(unsigned) {
  return state.initResult;
}
int cuDriverGetVersion(int* version) {
  return *version = state.version, 0;
}
int cuGetErrorName(int result, const char** name) {
  return *name = result == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_FAKE", 0;
}
int cuGetErrorString(int, const char** text) {
  return *text = "as the test wanted", 0;
}
int cuDeviceGetCount(int* count) {
  return *count = state.devices, 0;
}
int cuDeviceGet(int* device, int ordinal) {
  return *device = ordinal, 0;
}
int cuDeviceGetName(char* name, int size, int) {
  return std::strncpy(name, "Fake GPU", size), 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == 16 ? state.multiprocessors : attribute == 75 ? state.major : attribute == 76 ? state.minor : -1;
  return *value < 0 ? kInvalidValue : 0;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  const std::lock_guard lock(mutex);
  ++state.retained;
  return *context = contextOf(device), 0;
}
int cuDevicePrimaryCtxRelease_v2(int) {
  return --state.retained, 0;
}
int cuCtxGetCurrent(void** context) {
  return *context = currentContext, 0;
}
int cuCtxSetCurrent(void* context) {
  const std::lock_guard lock(mutex);
  ++state.contextSets;
  return currentContext = context, 0;
}
int cuStreamGetCtx(void*, void** context) {
  return *context = contextOf(state.streamDevice), 0;
}
int cuCtxGetDevice(int* device) {
  return *device = static_cast<int>(reinterpret_cast<uintptr_t>(currentContext) - 0x1000), 0;
}
int cuModuleLoadData(void** module, const void*) {
  return *module = nullptr, kInvalidValue;
}
int cuModuleGetFunction(void**, void*, const char*) {
  return kInvalidValue;
}
int cuModuleUnload(void*) {
  return 0;
}

int cuStreamIsCapturing(void*, int* status) {
  return *status = 0, state.capturing ? kImplicit : 0;
}
int cuThreadExchangeStreamCaptureMode(int* mode) {
  return std::swap(*mode, captureMode), 0;
}

int cuLibraryLoadData(void** library, const void* image, int*, void**, unsigned, int*, void**, unsigned) {
  if (state.loadResult)
    return state.loadResult;
  if (!currentContext || captureMode != 2)
    return kInvalidValue;
  const std::lock_guard lock(mutex);
  ++state.loads;
  *library = new std::string(static_cast<const char*>(image)); // the fake compiler's images are text
  return 0;
}
int cuLibraryUnload(void* library) {
  ++state.unloads;
  return delete static_cast<std::string*>(library), 0;
}
int cuLibraryGetKernel(void** kernel, void* library, const char* name) {
  // An image that says "without NAME" has no such kernel.
  if (static_cast<std::string*>(library)->find(std::string("without ") + name) != std::string::npos)
    return 500;
  return *kernel = newFunction(name, nullptr), 0;
}
int cuKernelGetFunction(void** function, void* kernel) {
  return *function = newFunction(static_cast<Function*>(kernel)->name, currentContext), 0;
}
int cuFuncLoad(void*) {
  const std::lock_guard lock(mutex);
  return ++state.functionLoads, 0;
}
int cuFuncSetAttribute(void*, int attribute, int value) {
  if (attribute != 8)
    return kInvalidValue;
  const std::lock_guard lock(mutex);
  return state.largestDynamicShared = value, 0;
}
int cuFuncGetAttribute(int* value, int, void*) {
  return *value = 0, 0;
}

int cuLaunchKernel(void* function, unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX, unsigned blockY,
                   unsigned blockZ, unsigned shared, void* stream, void** parameters, void**) {
  if (!state.record)
    return ++state.launchCount, state.launchResult;
  if (static_cast<Function*>(function)->context != currentContext)
    return kInvalidHandle;
  const std::lock_guard lock(mutex);
  ++state.launchCount;
  if (state.launchResult)
    return state.launchResult;
  FakeLaunch launch{static_cast<Function*>(function)->name,
                    {gridX, gridY, gridZ},
                    {blockX, blockY, blockZ},
                    shared,
                    stream,
                    currentContext,
                    {},
                    {}};
  std::memcpy(static_cast<void*>(&launch.arguments), parameters[0], sizeof(launch.arguments));
  std::memcpy(launch.bytes, parameters[0], sizeof(launch.bytes));
  state.launches.push_back(std::move(launch));
  return 0;
}
int cuMemsetD8Async(unsigned long long address, unsigned char, size_t bytes, void* stream) {
  return state.memsets.push_back({address, bytes, stream}), 0;
}
int cuPointerGetAttribute(void* value, int attribute, unsigned long long address) {
  if (address < state.deviceBegin || address >= state.deviceEnd)
    return kInvalidValue;
  *static_cast<int*>(value) = attribute == 2 ? 2 : attribute == 9 ? state.pointerDevice : 0;
  return 0;
}

int cuMemAlloc_v2(unsigned long long* address, size_t bytes) {
  return *address = reinterpret_cast<uintptr_t>(std::aligned_alloc(256, (bytes + 255) / 256 * 256)), 0;
}
int cuMemFree_v2(unsigned long long address) {
  return std::free(reinterpret_cast<void*>(uintptr_t(address))), 0;
}
int cuMemcpyHtoD_v2(unsigned long long to, const void* from, size_t bytes) {
  return std::memcpy(reinterpret_cast<void*>(uintptr_t(to)), from, bytes), 0;
}
int cuMemcpyDtoH_v2(void* to, unsigned long long from, size_t bytes) {
  return std::memcpy(to, reinterpret_cast<void*>(uintptr_t(from)), bytes), 0;
}
int cuCtxSynchronize() {
  return 0;
}
int cuEventCreate(void** event, unsigned) {
  return *event = nullptr, 0;
}
int cuEventRecord(void*, void*) {
  return 0;
}
int cuEventElapsedTime(float* milliseconds, void*, void*) {
  return *milliseconds = 1, 0;
}
int cuEventDestroy_v2(void*) {
  return 0;
}
}
