// How fast kernels are made and run, printed; the bounds only catch what is badly broken (a scalar loop, a slow pass).
#include "tests/unit/compiler/host/HostKernel.h"
#include "tests/unit/compiler/host/Programs.h"
#include <algorithm>
#include <cstring>
#include <ctime>
#include <gtest/gtest.h>

namespace cermet::test {
namespace {

// This thread's time on a processor, which others on the machine cannot stretch much.
double threadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec + 1e-9 * now.tv_nsec;
}

template <typename Work> double bestSeconds(int repeats, Work work) {
  double best = 1e30;
  for (int i = 0; i < repeats; ++i) {
    double start = threadSeconds();
    work();
    best = std::min(best, threadSeconds() - start);
  }
  return best;
}

TEST(Speed, AgainstMemcpy) {
  constexpr int64_t columns = 4096, rows = 4096;
  struct Case {
    RowProgram program;
    int64_t bytes; // of tiles, a row
  };
  const Case cases[] = {
      {rmsNorm(columns, DType::BF16), 4 * columns},         {rmsNorm(columns, DType::F32), 8 * columns},
      {rmsNormBackward(columns, DType::BF16), 6 * columns}, {addRmsNorm(columns, DType::BF16), 8 * columns},
      {siluGlu(columns, DType::BF16), 6 * columns},         {siluGluBackward(columns, DType::BF16), 10 * columns},
      {geluGlu(columns, DType::BF16), 6 * columns}};
  std::vector<char> from(rows * columns * 2, 1), to(rows * columns * 2);
  double copy = 2.0 * from.size() / bestSeconds(7, [&] { std::memcpy(to.data(), from.data(), from.size()); });
  std::printf("memcpy %.1f GB/s\n", copy / 1e9);
  for (const Case& one : cases) {
    HostKernel kernel(one.program);
    std::mt19937 random;
    Arguments arguments(one.program, {rows}, random);
    kernel.run(arguments);
    double rate = one.bytes * rows / bestSeconds(5, [&] { kernel.run(arguments); });
    std::printf("%-18s %s %.1f GB/s, %.0f %% of memcpy\n", one.program.name.c_str(),
                name(one.program.operands[0].dtype), rate / 1e9, 100 * rate / copy);
    EXPECT_GT(rate, copy / 20) << one.program.name;
  }
}

TEST(Speed, Building) {
  for (auto* make : {rmsNorm, rmsNormBackward, siluGluBackward, geluGlu, causalLogSoftmax, everyFunction})
    for (const std::string& target : HostKernel::targets()) {
      KernelSpec spec{.target = target, .numerics = "traced", .programs = {{make(4095, DType::BF16), {}}}};
      std::string image, error;
      double seconds = bestSeconds(5, [&] { EXPECT_TRUE(buildHostKernel(spec, {}, image, error)) << error; });
      std::printf("%-18s %s %.1f ms, %zu bytes\n", spec.name().c_str(), target.c_str(), seconds * 1e3, image.size());
      EXPECT_LT(seconds, 1.0);
    }
}

} // namespace
} // namespace cermet::test
