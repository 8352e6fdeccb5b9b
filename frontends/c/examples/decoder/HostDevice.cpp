// This machine: memory as it is, products by a BLAS.
#include "Device.h"
#include <cblas.h>
#include <cstdlib>
#include <cstring>

namespace {

class HostDevice : public Device {
public:
  explicit HostDevice(std::string target) : target_(std::move(target)) {}
  std::string target() const override { return target_; }
  void* stream() const override { return nullptr; }
  bool readsHostMemory() const override { return true; }
  void* allocate(size_t bytes) override {
    void* memory = std::aligned_alloc(256, (bytes + 256) / 256 * 256);
    if (!memory)
      throw std::bad_alloc();
    return memory;
  }
  void release(void* memory) noexcept override { std::free(memory); }
  void copyIn(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void copyOut(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void wait() override {}

  // A row-major matrix is a column-major one transposed, so the operands change places.
  void multiply(const Product& p) override {
    if (p.dtype != CERMET_F32 || p.result != CERMET_F32)
      throw std::runtime_error("products on the host are f32: a BLAS has no other type; use --dtype f32");
    for (int64_t each = 0; each < p.batch; ++each)
      cblas_sgemm(CblasColMajor, p.transposed ? CblasTrans : CblasNoTrans, CblasNoTrans, static_cast<int>(p.columns),
                  static_cast<int>(p.rows), static_cast<int>(p.depth), p.scale, of(p.b, each),
                  static_cast<int>(p.b.step), of(p.a, each), static_cast<int>(p.a.step), 0, of(p.c, each),
                  static_cast<int>(p.c.step));
  }

private:
  static float* of(const Matrix& matrix, int64_t each) {
    return static_cast<float*>(const_cast<void*>(matrix.data)) + each * matrix.stride;
  }
  std::string target_;
};

} // namespace

std::unique_ptr<Device> openHost(const std::string& target) {
  return std::make_unique<HostDevice>(target);
}
