// A GPU: memory and a stream by the driver, products by cuBLAS. Both are opened by name, so this program builds and
// starts where neither is; one that always has them would link them and include their headers.
#include "Device.h"
#include <cstdlib>
#include <dlfcn.h>

namespace {

using DevicePointer = unsigned long long;
constexpr int kPlain = 0, kTransposed = 1;              // cublasOperation_t
constexpr int kComputeF32 = 68, kDefaultAlgorithm = -1; // cublasComputeType_t, cublasGemmAlgo_t

int cudaType(cermet_dtype dtype) { // cudaDataType
  switch (dtype) {
  case CERMET_F32:
    return 0;
  case CERMET_F16:
    return 2;
  case CERMET_BF16:
    return 14;
  default:
    throw std::runtime_error("products are of f32, f16 and bf16");
  }
}

void* openFirst(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (void* library = name ? dlopen(name, RTLD_NOW | RTLD_GLOBAL) : nullptr)
      return library;
  return nullptr;
}

// A function of a library's; calling it throws unless it returns 0.
template <typename... Arguments> class Function {
public:
  Function(void* library, const char* name)
      : name_(name), function_(reinterpret_cast<int (*)(Arguments...)>(dlsym(library, name))) {
    if (!function_)
      throw std::runtime_error(std::string(name) + " is not in the library that was opened for it");
  }
  void operator()(Arguments... arguments) const {
    if (const int status = function_(arguments...))
      throw std::runtime_error(std::string(name_) + " failed with " + std::to_string(status));
  }
  int status(Arguments... arguments) const noexcept { return function_(arguments...); }

private:
  const char* name_;
  int (*function_)(Arguments...);
};

class CudaDevice : public Device {
public:
  CudaDevice(std::string target, void* driver, void* blas)
      : target_(std::move(target)), retainContext_(driver, "cuDevicePrimaryCtxRetain"),
        releaseContext_(driver, "cuDevicePrimaryCtxRelease_v2"), setContext_(driver, "cuCtxSetCurrent"),
        createStream_(driver, "cuStreamCreate"), destroyStream_(driver, "cuStreamDestroy_v2"),
        waitForStream_(driver, "cuStreamSynchronize"), allocate_(driver, "cuMemAlloc_v2"),
        free_(driver, "cuMemFree_v2"), copyIn_(driver, "cuMemcpyHtoDAsync_v2"),
        copyOut_(driver, "cuMemcpyDtoHAsync_v2"), createBlas_(blas, "cublasCreate_v2"),
        destroyBlas_(blas, "cublasDestroy_v2"), setStream_(blas, "cublasSetStream_v2"),
        multiply_(blas, "cublasGemmStridedBatchedEx") {
    void* context = nullptr;
    retainContext_(&context, 0);
    setContext_(context);
    createStream_(&stream_, 1 /* does not wait for the legacy stream */);
    createBlas_(&blas_);
    setStream_(blas_, stream_);
  }
  ~CudaDevice() override {
    destroyBlas_.status(blas_);
    destroyStream_.status(stream_);
    releaseContext_.status(0);
  }
  std::string target() const override { return target_; }
  void* stream() const override { return stream_; }
  bool readsHostMemory() const override { return false; }
  void* allocate(size_t bytes) override {
    DevicePointer memory = 0;
    allocate_(&memory, bytes + 256);
    return reinterpret_cast<void*>(memory);
  }
  void release(void* memory) noexcept override { free_.status(reinterpret_cast<DevicePointer>(memory)); }
  void copyIn(void* to, const void* from, size_t bytes) override {
    copyIn_(reinterpret_cast<DevicePointer>(to), from, bytes, stream_);
    waitForStream_(stream_); // `from` may go
  }
  void copyOut(void* to, const void* from, size_t bytes) override {
    copyOut_(to, reinterpret_cast<DevicePointer>(from), bytes, stream_);
    waitForStream_(stream_);
  }
  void wait() override { waitForStream_(stream_); }

  // A row-major matrix is a column-major one transposed, so the operands change places.
  void multiply(const Product& p) override {
    const float zero = 0;
    multiply_(blas_, p.transposed ? kTransposed : kPlain, kPlain, static_cast<int>(p.columns), static_cast<int>(p.rows),
              static_cast<int>(p.depth), &p.scale, p.b.data, cudaType(p.dtype), static_cast<int>(p.b.step), p.b.stride,
              p.a.data, cudaType(p.dtype), static_cast<int>(p.a.step), p.a.stride, &zero, const_cast<void*>(p.c.data),
              cudaType(p.result), static_cast<int>(p.c.step), p.c.stride, static_cast<int>(p.batch), kComputeF32,
              kDefaultAlgorithm);
  }

private:
  std::string target_;
  Function<void**, int> retainContext_;
  Function<int> releaseContext_;
  Function<void*> setContext_;
  Function<void**, unsigned> createStream_;
  Function<void*> destroyStream_;
  Function<void*> waitForStream_;
  Function<DevicePointer*, size_t> allocate_;
  Function<DevicePointer> free_;
  Function<DevicePointer, const void*, size_t, void*> copyIn_;
  Function<void*, DevicePointer, size_t, void*> copyOut_;
  Function<void**> createBlas_;
  Function<void*> destroyBlas_;
  Function<void*, void*> setStream_;
  Function<void*, int, int, int, int, int, const void*, const void*, int, int, long long, const void*, int, int,
           long long, const void*, void*, int, int, long long, int, int, int>
      multiply_;
  void *stream_ = nullptr, *blas_ = nullptr;
};

} // namespace

std::unique_ptr<Device> openCuda(const std::string& target) {
  const char* named = std::getenv("CERMET_CUDA_LIBRARY"); // the driver that Cermet opens
  void* driver = openFirst({named ? named : "libcuda.so.1"});
  int devices = 0;
  if (!driver || Function<unsigned>(driver, "cuInit").status(0) != 0 ||
      Function<int*>(driver, "cuDeviceGetCount").status(&devices) != 0 || devices == 0)
    return nullptr;
  void* blas = openFirst({std::getenv("DECODER_CUBLAS"), "libcublas.so.13", "libcublas.so.12"});
  if (!blas)
    throw std::runtime_error("there is a GPU, but no libcublas.so.13 or .12; set DECODER_CUBLAS to its path");
  return std::make_unique<CudaDevice>(target, driver, blas);
}
