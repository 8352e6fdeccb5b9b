// CudaImage: a cubin loaded on one device. Loading happens here and only here: nothing is left for a launch to load.
// Loaded until it is destroyed.
#pragma once
#include "runtime/device/Driver.h"
#include "runtime/support/Status.h"
#include <memory>
#include <string>
#include <string_view>

namespace cermet {

// A device whose primary context this process holds.
class CudaDevice {
public:
  static Result<std::shared_ptr<const CudaDevice>> open(std::shared_ptr<const Driver> driver, int ordinal);
  ~CudaDevice();
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  const Driver& driver() const { return *driver_; }
  const DriverTable& table() const { return driver_->table(); }
  const Device& properties() const { return driver_->devices()[ordinal_]; }
  int ordinal() const { return ordinal_; }
  CUcontext context() const { return context_; }

private:
  CudaDevice(std::shared_ptr<const Driver> driver, int ordinal) : driver_(std::move(driver)), ordinal_(ordinal) {}

  std::shared_ptr<const Driver> driver_;
  int ordinal_;
  CUcontext context_ = nullptr;
};

class CudaImage {
public:
  // CAPTURING where the driver can tell that a stream of the device is being captured; a capture is never invalidated.
  static Result<std::shared_ptr<const CudaImage>> load(std::shared_ptr<const CudaDevice> device,
                                                       std::string_view image);
  ~CudaImage();
  CudaImage(const CudaImage&) = delete;
  CudaImage& operator=(const CudaImage&) = delete;

  // The entry, loaded, and able to use `sharedBytes` of dynamic shared memory.
  Result<CUfunction> entry(const std::string& name, int sharedBytes) const;
  Status has(const std::string& name) const;

private:
  explicit CudaImage(std::shared_ptr<const CudaDevice> device) : device_(std::move(device)) {}
  Result<CUfunction> find(const std::string& name) const;

  std::shared_ptr<const CudaDevice> device_;
  CUlibrary library_ = nullptr; // from CUDA 12 on
  CUmodule module_ = nullptr;   // else
};

} // namespace cermet
