#include "Device.h"

std::unique_ptr<Device> Device::open(const std::string& target) {
  const bool onHost = target.rfind("host", 0) == 0;
  if (!onHost)
    if (std::unique_ptr<Device> device = openCuda(target))
      return device;
  if (!onHost && target != "auto")
    throw std::runtime_error("--target " + target + ": this machine has no CUDA driver or no device; expected host");
#ifdef DECODER_BLAS
  return openHost(onHost ? target : "host");
#else
  throw std::runtime_error("this program was built without a BLAS, and there is no CUDA device");
#endif
}
