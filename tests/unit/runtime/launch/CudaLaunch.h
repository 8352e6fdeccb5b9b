// A context whose driver is a double that writes down every launch.
#pragma once
#include "tests/unit/runtime/Plans.h"
#include "tests/unit/runtime/fake_cuda.h"
#include <dlfcn.h>
#include <gtest/gtest.h>

namespace cermet {

inline constexpr const char* kCubin = "a cubin, as far as anyone here knows";

struct CudaLaunch : testing::Test {
  FakeCudaState& cuda = state();
  Config config = testConfig();
  std::shared_ptr<Context> context;
  alignas(256) static inline char memory[1 << 16];

  static FakeCudaState& state() {
    void* library = dlopen(FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
    const auto find = reinterpret_cast<FakeCudaState* (*)()>(dlsym(library, "fakeCudaState"));
    return *find();
  }
  void SetUp() override {
    cuda = FakeCudaState();
    config.cudaLibrary = FAKE_CUDA;
    context = std::make_shared<Context>(config);
  }
  // x and y of `rows` rows; x may begin some bytes later or have another row stride.
  Status launchScale(const Executable& executable, int64_t rows, int offset = 0, int64_t rowStride = 8,
                     void* stream = nullptr) {
    const TestTensor x(memory + offset, {rows, 1, 8}, {rowStride, rowStride, 1}), weight(memory + 4096, {8}),
        y(memory + 8192, {rows, 1, 8});
    const cermet_tensor tensors[] = {x, weight, y};
    return executable.launch(stream, tensors, 3, nullptr, 0);
  }
};

} // namespace cermet
