// Driver: the CUDA driver API as one table of functions, found in a library that is opened when the first CUDA device
// is asked for. Nothing here needs CUDA's headers or links against libcuda: the few types and numbers below are its
// stable ABI. A symbol that older drivers lack is null in the table; all others are there once open() succeeded. A
// driver is immutable after open() and may be used from any thread.
#pragma once
#include "runtime/support/Fork.h"
#include "runtime/support/Status.h"
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace cermet {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CudaContext*;
using CUmodule = struct CudaModule*;
using CUfunction = struct CudaFunction*;
using CUstream = struct CudaStream*;
using CUlibrary = struct CudaLibrary*;
using CUkernel = struct CudaKernel*;
using CUevent = struct CudaEvent*;

constexpr CUresult kCudaSuccess = 0;
constexpr CUresult kCudaNotInitialised = 3; // by cuInit: in a process that was forked from one that had called it
constexpr CUresult kCudaNoDevice = 100;
// Calls that a capture in progress forbids fail with 900 (unsupported) to 908.
constexpr CUresult kCudaFirstCaptureError = 900, kCudaLastCaptureError = 908;

// REQUIRED(name, parameters) and OPTIONAL(name, parameters) for every function that is used.
#define CERMET_DRIVER_FUNCTIONS(REQUIRED, OPTIONAL)                                                                    \
  REQUIRED(cuInit, (unsigned flags))                                                                                   \
  REQUIRED(cuDriverGetVersion, (int* version))                                                                         \
  REQUIRED(cuGetErrorName, (CUresult result, const char** name))                                                       \
  REQUIRED(cuGetErrorString, (CUresult result, const char** text))                                                     \
  REQUIRED(cuDeviceGetCount, (int* count))                                                                             \
  REQUIRED(cuDeviceGet, (CUdevice * device, int ordinal))                                                              \
  REQUIRED(cuDeviceGetName, (char* name, int size, CUdevice device))                                                   \
  REQUIRED(cuDeviceGetAttribute, (int* value, int attribute, CUdevice device))                                         \
  REQUIRED(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))                                           \
  REQUIRED(cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                                            \
  REQUIRED(cuCtxGetCurrent, (CUcontext * context))                                                                     \
  REQUIRED(cuCtxSetCurrent, (CUcontext context))                                                                       \
  REQUIRED(cuModuleLoadData, (CUmodule * module, const void* image))                                                   \
  REQUIRED(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char* name))                            \
  REQUIRED(cuModuleUnload, (CUmodule module))                                                                          \
  REQUIRED(cuFuncSetAttribute, (CUfunction function, int attribute, int value))                                        \
  REQUIRED(cuFuncGetAttribute, (int* value, int attribute, CUfunction function))                                       \
  REQUIRED(cuLaunchKernel,                                                                                             \
           (CUfunction function, unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX, unsigned blockY,     \
            unsigned blockZ, unsigned sharedBytes, CUstream stream, void** parameters, void** extra))                  \
  REQUIRED(cuMemsetD8Async, (CUdeviceptr address, unsigned char value, size_t bytes, CUstream stream))                 \
  REQUIRED(cuPointerGetAttribute, (void* value, int attribute, CUdeviceptr address))                                   \
  REQUIRED(cuStreamIsCapturing, (CUstream stream, int* status))                                                        \
  REQUIRED(cuThreadExchangeStreamCaptureMode, (int* mode))                                                             \
  REQUIRED(cuMemAlloc_v2, (CUdeviceptr * address, size_t bytes))                                                       \
  REQUIRED(cuMemFree_v2, (CUdeviceptr address))                                                                        \
  REQUIRED(cuMemcpyHtoD_v2, (CUdeviceptr destination, const void* source, size_t bytes))                               \
  REQUIRED(cuMemcpyDtoH_v2, (void* destination, CUdeviceptr source, size_t bytes))                                     \
  REQUIRED(cuCtxSynchronize, ())                                                                                       \
  REQUIRED(cuEventCreate, (CUevent * event, unsigned flags))                                                           \
  REQUIRED(cuEventRecord, (CUevent event, CUstream stream))                                                            \
  REQUIRED(cuEventElapsedTime, (float* milliseconds, CUevent start, CUevent end))                                      \
  REQUIRED(cuEventDestroy_v2, (CUevent event))                                                                         \
  OPTIONAL(cuLibraryLoadData, (CUlibrary * library, const void* image, int* jitOptions, void** jitValues,              \
                               unsigned jitCount, int* libraryOptions, void** libraryValues, unsigned libraryCount))   \
  OPTIONAL(cuLibraryUnload, (CUlibrary library))                                                                       \
  OPTIONAL(cuLibraryGetKernel, (CUkernel * kernel, CUlibrary library, const char* name))                               \
  OPTIONAL(cuKernelGetFunction, (CUfunction * function, CUkernel kernel))                                              \
  OPTIONAL(cuFuncLoad, (CUfunction function))                                                                          \
  OPTIONAL(cuStreamGetCtx, (CUstream stream, CUcontext * context))                                                     \
  OPTIONAL(cuCtxGetDevice, (CUdevice * device))

struct DriverTable {
#define CERMET_DECLARE(name, parameters) CUresult(*name) parameters = nullptr;
  CERMET_DRIVER_FUNCTIONS(CERMET_DECLARE, CERMET_DECLARE)
#undef CERMET_DECLARE
};

struct Device {
  CUdevice handle = 0;
  std::string name;
  int major = 0, minor = 0; // compute capability
  int multiprocessors = 0;
};

class Driver {
public:
  // Opens the library, resolves the table, initialises the driver and reads every device's properties. NOT_FOUND where
  // there is no such library or no device; DRIVER_ERROR where there is one that does not work.
  static Result<std::shared_ptr<const Driver>> open(const std::string& library);

  const DriverTable& table() const { return table_; }
  const std::vector<Device>& devices() const { return devices_; }
  int version() const { return version_; } // 1000 * major + 10 * minor

  // A driver and all that came from it stay with the process that opened it.
  bool isOfThisProcess() const { return generation_ == forkGeneration.load(std::memory_order_relaxed); }
  Status checkOfThisProcess() const { return isOfThisProcess() ? Status() : describeForked(); }

  // DRIVER_ERROR with the driver's name for `result`, or CAPTURING where a capture forbade the call.
  Status check(CUresult result, const char* call) const {
    return result == kCudaSuccess ? Status() : describe(result, call);
  }

private:
  Status resolve(void* library, const std::string& path);
  Status readDevices();
  [[gnu::cold]] Status describe(CUresult result, const char* call) const;
  [[gnu::cold]] static Status describeForked();

  DriverTable table_;
  std::vector<Device> devices_;
  int version_ = 0;
  uint64_t generation_ = forkGeneration.load();
};

// While it lives, the calling thread's current context is the given one. A thread that had another gets it back; one
// that had none keeps this one, so that its next launch finds it.
class ContextBinding {
public:
  ContextBinding(const DriverTable& driver, CUcontext context) : driver_(driver) {
    result_ = driver.cuCtxGetCurrent(&previous_);
    if (result_ != kCudaSuccess || previous_ == context)
      previous_ = nullptr;
    else
      result_ = driver.cuCtxSetCurrent(context);
  }
  ~ContextBinding() {
    if (previous_)
      driver_.cuCtxSetCurrent(previous_);
  }
  ContextBinding(const ContextBinding&) = delete;
  ContextBinding& operator=(const ContextBinding&) = delete;

  CUresult result() const { return result_; }

private:
  const DriverTable& driver_;
  CUcontext previous_ = nullptr;
  CUresult result_;
};

} // namespace cermet
