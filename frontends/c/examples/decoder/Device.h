// Where tensors lie and products run: this machine's memory and a BLAS, or a GPU's memory and cuBLAS. Everything else
// that a decoder computes is Cermet's, and the same for both.
#pragma once
#include <cermet.hpp>

// Of each of `batch`, row-major: c[rows, columns] = scale * a[rows, depth] times b[columns, depth] transposed, as a
// linear layer has its weight, or times b[depth, columns] where `transposed` is false. Sums are f32.
struct Matrix {
  const void* data;
  int64_t step;       // elements from one row to the next
  int64_t stride = 0; // elements from one of the batch to the next; 0: all have the same
};
struct Product {
  int64_t rows, columns, depth;
  Matrix a, b, c;
  cermet_dtype dtype, result; // of a and b, of c
  bool transposed = true;
  int64_t batch = 1;
  float scale = 1;
};

// One thread at a time. Failures are exceptions. Work is in the order of its calls, on `stream` where there is one.
class Device {
public:
  virtual ~Device() = default;
  // `auto` is the GPU where there is one, else the host.
  static std::unique_ptr<Device> open(const std::string& target);

  virtual std::string target() const = 0; // for Cermet
  virtual void* stream() const = 0;
  virtual bool readsHostMemory() const = 0;
  virtual void* allocate(size_t bytes) = 0; // aligned to 256 bytes
  virtual void release(void* memory) noexcept = 0;
  virtual void copyIn(void* to, const void* from, size_t bytes) = 0;
  virtual void copyOut(void* to, const void* from, size_t bytes) = 0; // waits for what was queued before
  virtual void wait() = 0;                                            // for everything that was queued
  virtual void multiply(const Product& product) = 0;
};

std::unique_ptr<Device> openCuda(const std::string& target); // null where there is no driver or no device
std::unique_ptr<Device> openHost(const std::string& target);

// Memory of a device's, which outlives it.
class Memory {
public:
  Memory() = default;
  Memory(Device& device, size_t bytes) : memory_(device.allocate(bytes), Release{&device}), bytes_(bytes) {}
  size_t bytes() const { return bytes_; }
  void* data() const { return memory_.get(); }
  void* at(int64_t byte) const { return static_cast<char*>(memory_.get()) + byte; }

private:
  struct Release {
    Device* device;
    void operator()(void* memory) const noexcept { device->release(memory); }
  };
  std::unique_ptr<void, Release> memory_{nullptr, Release{nullptr}};
  size_t bytes_ = 0;
};
