#include "runtime/device/CudaImage.h"
#include "runtime/device/Elf.h"

namespace cermet {

constexpr int kAttributeRegisters = 4;
constexpr int kAttributeMaxDynamicSharedBytes = 8;
constexpr int kCaptureModeRelaxed = 2;
constexpr CUresult kCaptureImplicit = 906;

namespace {

// In this mode a call that a capture forbids fails by itself and leaves the capture valid.
class RelaxedCapture {
public:
  explicit RelaxedCapture(const DriverTable& driver) : driver_(driver) {
    driver_.cuThreadExchangeStreamCaptureMode(&mode_);
  }
  ~RelaxedCapture() { driver_.cuThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

private:
  const DriverTable& driver_;
  int mode_ = kCaptureModeRelaxed;
};

} // namespace

Result<std::shared_ptr<const CudaDevice>> CudaDevice::open(std::shared_ptr<const Driver> driver, int ordinal) {
  const int count = static_cast<int>(driver->devices().size());
  if (ordinal < 0 || ordinal >= count)
    return error(CERMET_INVALID_ARGUMENT, "device {} does not exist, expected 0 to {}", ordinal, count - 1);
  std::shared_ptr<CudaDevice> device(new CudaDevice(std::move(driver), ordinal));
  CERMET_RETURN_IF_ERROR(
      device->driver().check(device->table().cuDevicePrimaryCtxRetain(&device->context_, device->properties().handle),
                             "cuDevicePrimaryCtxRetain"));
  return std::shared_ptr<const CudaDevice>(std::move(device));
}

CudaDevice::~CudaDevice() {
  if (context_ && driver_->isOfThisProcess())
    table().cuDevicePrimaryCtxRelease_v2(properties().handle);
}

Result<std::shared_ptr<const CudaImage>> CudaImage::load(std::shared_ptr<const CudaDevice> device,
                                                         std::string_view bytes) {
  // The driver is given no size; what is no ELF image at all it refuses itself. A part of a pack is not aligned, and
  // something lies behind it.
  const std::string image(bytes);
  if (image.starts_with("\x7f"
                        "ELF"))
    if (const Status broken = checkElf(image, kCudaMachine); !broken.ok())
      return error(CERMET_DRIVER_ERROR, "a cubin cannot be loaded: {}", broken.message());
  std::shared_ptr<CudaImage> loaded(new CudaImage(std::move(device)));
  const CudaDevice& on = *loaded->device_;
  const DriverTable& driver = on.table();
  const ContextBinding binding(driver, on.context());
  CERMET_RETURN_IF_ERROR(on.driver().check(binding.result(), "cuCtxSetCurrent"));
  const RelaxedCapture relaxed(driver);
  // The legacy stream cannot be used while a blocking stream is captured; asking says so and harms nothing.
  int capturing = 0;
  if (driver.cuStreamIsCapturing(nullptr, &capturing) == kCaptureImplicit)
    return error(CERMET_CAPTURING,
                 "a kernel must be loaded but a stream of device {} is being captured; prepare before the capture",
                 on.ordinal());
  if (driver.cuLibraryLoadData && driver.cuLibraryGetKernel && driver.cuKernelGetFunction && driver.cuLibraryUnload)
    CERMET_RETURN_IF_ERROR(on.driver().check(
        driver.cuLibraryLoadData(&loaded->library_, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
        "cuLibraryLoadData"));
  else
    CERMET_RETURN_IF_ERROR(
        on.driver().check(driver.cuModuleLoadData(&loaded->module_, image.data()), "cuModuleLoadData"));
  return std::shared_ptr<const CudaImage>(std::move(loaded));
}

CudaImage::~CudaImage() {
  const DriverTable& driver = device_->table();
  if (!device_->driver().isOfThisProcess())
    return;
  if (library_)
    driver.cuLibraryUnload(library_);
  if (module_) {
    const ContextBinding binding(driver, device_->context());
    driver.cuModuleUnload(module_);
  }
}

// With the device's context current.
Result<CUfunction> CudaImage::find(const std::string& name) const {
  const Driver& checked = device_->driver();
  const DriverTable& driver = checked.table();
  CUfunction function = nullptr;
  const std::string call = fmt::format("finding kernel '{}'", name);
  if (library_) {
    CUkernel kernel = nullptr;
    CERMET_RETURN_IF_ERROR(checked.check(driver.cuLibraryGetKernel(&kernel, library_, name.c_str()), call.c_str()));
    CERMET_RETURN_IF_ERROR(checked.check(driver.cuKernelGetFunction(&function, kernel), call.c_str()));
  } else {
    CERMET_RETURN_IF_ERROR(checked.check(driver.cuModuleGetFunction(&function, module_, name.c_str()), call.c_str()));
  }
  return function;
}

Status CudaImage::has(const std::string& name) const {
  const ContextBinding binding(device_->table(), device_->context());
  CERMET_RETURN_IF_ERROR(device_->driver().check(binding.result(), "cuCtxSetCurrent"));
  const RelaxedCapture relaxed(device_->table());
  return find(name).status();
}

Result<CUfunction> CudaImage::entry(const std::string& name, int sharedBytes) const {
  const Driver& checked = device_->driver();
  const DriverTable& driver = checked.table();
  const ContextBinding binding(driver, device_->context());
  CERMET_RETURN_IF_ERROR(checked.check(binding.result(), "cuCtxSetCurrent"));
  const RelaxedCapture relaxed(driver);
  const Result<CUfunction> found = find(name);
  if (!found.ok())
    return found;
  CUfunction function = *found;
  // Loading is lazy by default; the first launch must not do it. Older drivers load to answer an attribute.
  int registers = 0;
  const CUresult loaded = driver.cuFuncLoad ? driver.cuFuncLoad(function)
                                            : driver.cuFuncGetAttribute(&registers, kAttributeRegisters, function);
  CERMET_RETURN_IF_ERROR(checked.check(loaded, fmt::format("loading kernel '{}'", name).c_str()));
  if (sharedBytes > 0)
    CERMET_RETURN_IF_ERROR(
        checked.check(driver.cuFuncSetAttribute(function, kAttributeMaxDynamicSharedBytes, sharedBytes),
                      fmt::format("giving kernel '{}' {} bytes of shared memory", name, sharedBytes).c_str()));
  return function;
}

} // namespace cermet
