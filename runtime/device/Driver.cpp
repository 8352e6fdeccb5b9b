#include "runtime/device/Driver.h"
#include <dlfcn.h>

namespace cermet {

constexpr int kAttributeMultiprocessorCount = 16;
constexpr int kAttributeComputeCapabilityMajor = 75;
constexpr int kAttributeComputeCapabilityMinor = 76;

Result<std::shared_ptr<const Driver>> Driver::open(const std::string& path) {
  // Never closed: the driver's own threads and exit handlers run from it.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return error(CERMET_NOT_FOUND, "no CUDA driver: {}", dlerror());
  auto driver = std::make_shared<Driver>();
  CERMET_RETURN_IF_ERROR(driver->resolve(library, path));
  const CUresult initialised = driver->table_.cuInit(0);
  if (initialised == kCudaNoDevice)
    return error(CERMET_NOT_FOUND, "the CUDA driver '{}' sees no device", path);
  if (initialised == kCudaNotInitialised)
    return describeForked();
  CERMET_RETURN_IF_ERROR(driver->check(initialised, "cuInit"));
  CERMET_RETURN_IF_ERROR(driver->check(driver->table_.cuDriverGetVersion(&driver->version_), "cuDriverGetVersion"));
  CERMET_RETURN_IF_ERROR(driver->readDevices());
  return std::shared_ptr<const Driver>(std::move(driver));
}

Status Driver::resolve(void* library, const std::string& path) {
#define CERMET_RESOLVE(name, parameters) table_.name = reinterpret_cast<CUresult(*) parameters>(dlsym(library, #name));
#define CERMET_RESOLVE_REQUIRED(name, parameters)                                                                      \
  CERMET_RESOLVE(name, parameters)                                                                                     \
  if (!table_.name)                                                                                                    \
    return error(CERMET_DRIVER_ERROR, "the CUDA driver '{}' has no {}; install a driver for CUDA 12 or later", path,   \
                 #name);
  CERMET_DRIVER_FUNCTIONS(CERMET_RESOLVE_REQUIRED, CERMET_RESOLVE)
#undef CERMET_RESOLVE_REQUIRED
#undef CERMET_RESOLVE
  return {};
}

Status Driver::readDevices() {
  int count = 0;
  CERMET_RETURN_IF_ERROR(check(table_.cuDeviceGetCount(&count), "cuDeviceGetCount"));
  if (count == 0)
    return error(CERMET_NOT_FOUND, "the CUDA driver sees no device");
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    Device device;
    char name[256] = "";
    CERMET_RETURN_IF_ERROR(check(table_.cuDeviceGet(&device.handle, ordinal), "cuDeviceGet"));
    CERMET_RETURN_IF_ERROR(check(table_.cuDeviceGetName(name, sizeof(name), device.handle), "cuDeviceGetName"));
    const std::pair<int, int*> attributes[] = {{kAttributeMultiprocessorCount, &device.multiprocessors},
                                               {kAttributeComputeCapabilityMajor, &device.major},
                                               {kAttributeComputeCapabilityMinor, &device.minor}};
    for (auto [attribute, value] : attributes)
      CERMET_RETURN_IF_ERROR(
          check(table_.cuDeviceGetAttribute(value, attribute, device.handle), "cuDeviceGetAttribute"));
    device.name = name;
    devices_.push_back(std::move(device));
  }
  return {};
}

Status Driver::describeForked() {
  return error(CERMET_DRIVER_ERROR, "CUDA cannot be used in this process: it was forked from one in which it was in "
                                    "use; start such processes anew (in Python with the start method 'spawn')");
}

Status Driver::describe(CUresult result, const char* call) const {
  if (result >= kCudaFirstCaptureError && result <= kCudaLastCaptureError)
    return error(CERMET_CAPTURING,
                 "{} is not possible while a stream is being captured (CUDA error {}); prepare before the capture",
                 call, result);
  const char* name = nullptr;
  const char* text = nullptr;
  table_.cuGetErrorName(result, &name);
  table_.cuGetErrorString(result, &text);
  return error(CERMET_DRIVER_ERROR, "{} failed with {} ({}): {}", call, name ? name : "an unknown error", result,
               text ? text : "no description");
}

} // namespace cermet
