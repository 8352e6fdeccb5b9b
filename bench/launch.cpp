// Host cost of cermet_launch beside a bare cuLaunchKernel, in the same loop, on a real GPU. Both launch one kernel with
// the same parameter bytes and the same grid; the bare one does nothing. Batches are short enough that the stream's
// queue never fills, and only the launching is timed. The driver is opened here by name, as libcermet does, so that
// this builds without a CUDA toolkit.
//
//     launch [--rows 8] [--out FILE] [--target auto]      writes one JSON object; host targets have no bare launch
#include "bench/Calls.h"
#include "runtime/abi/RowArguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <fmt/format.h>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

using namespace cermet::bench;

namespace {

constexpr int kBatch = 256; // launches between two synchronisations
constexpr int kBatches = 300;
constexpr int kOperands = 3;

// The few driver functions this needs; see cuda.h for their meaning.
struct Driver {
  using Handle = void*;
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  int (*init)(unsigned) = nullptr;
  int (*retain)(Handle*, int) = nullptr;
  int (*setCurrent)(Handle) = nullptr;
  int (*allocate)(unsigned long long*, size_t) = nullptr;
  int (*fill)(unsigned long long, unsigned char, size_t) = nullptr;
  int (*createStream)(Handle*, unsigned) = nullptr;
  int (*synchronize)(Handle) = nullptr;
  int (*loadModule)(Handle*, const void*) = nullptr;
  int (*function)(Handle*, Handle, const char*) = nullptr;
  int (*launch)(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void**,
                void**) = nullptr;

  void open() {
    if (!library)
      die("there is no CUDA driver here (libcuda.so.1); --target host measures the host target");
    const auto get = [&](auto& pointer, const char* name) {
      pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(dlsym(library, name));
      if (!pointer)
        die(fmt::format("libcuda.so.1 has no {}", name));
    };
    get(init, "cuInit");
    get(retain, "cuDevicePrimaryCtxRetain");
    get(setCurrent, "cuCtxSetCurrent");
    get(allocate, "cuMemAlloc_v2");
    get(fill, "cuMemsetD8_v2");
    get(createStream, "cuStreamCreate");
    get(synchronize, "cuStreamSynchronize");
    get(loadModule, "cuModuleLoadData");
    get(function, "cuModuleGetFunction");
    get(launch, "cuLaunchKernel");
  }
};

void ok(int result, const char* call) {
  if (result != 0)
    die(fmt::format("{} returned CUDA error {}", call, result));
}

struct Spread {
  double median, low, high; // nanoseconds a launch; low and high are the 10th and 90th hundredth
};

Spread spread(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto at = [&](double part) { return values[size_t(part * double(values.size() - 1))]; };
  return {at(0.5), at(0.1), at(0.9)};
}

template <class Launch> double nanosecondsEach(const Launch& launch) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kBatch; ++i)
    launch();
  const auto stop = std::chrono::steady_clock::now();
  return std::chrono::duration<double, std::nano>(stop - start).count() / kBatch;
}

std::string json(const Spread& s) {
  return fmt::format(R"({{"median_ns": {:.1f}, "p10_ns": {:.1f}, "p90_ns": {:.1f}}})", s.median, s.low, s.high);
}

} // namespace

int main(int argc, char** argv) {
  CLI::App app{"Host cost of cermet_launch beside a bare cuLaunchKernel"};
  std::string target = "auto", out;
  int64_t rows = 8;
  app.add_option("--target", target, "auto, sm_XY or host");
  app.add_option("--rows", rows, "rows of the RMSNorm that is launched (0 on host: nothing but the call)");
  app.add_option("--out", out, "write the JSON here too");
  CLI11_PARSE(app, argc, argv);
  const bool host = target == "host";

  cermet_context* context = nullptr;
  cermet_plan* plan = nullptr;
  cermet_executable* executable = nullptr;
  check(cermet_context_create(nullptr, &context), "cermet_context_create");
  check(cermet_compile(context, kGraph, std::char_traits<char>::length(kGraph), target.c_str(), &plan),
        "cermet_compile");

  Driver driver;
  Driver::Handle primary = nullptr, stream = nullptr, module = nullptr, bare = nullptr;
  const size_t tile = size_t(std::max<int64_t>(rows, 1)) * kColumns * 2;
  std::vector<char> memory;
  char* base = nullptr;
  const std::string ptx = fmt::format(".version 7.0\n.target sm_80\n.address_size 64\n"
                                      ".visible .entry bare(.param .align 8 .b8 arguments[{}]) {{ ret; }}\n",
                                      offsetof(cermet::RowArguments, operand) + kOperands * sizeof(cermet::RowOperand));
  if (host) {
    memory.resize(3 * tile + 256);
    base = memory.data() + (256 - reinterpret_cast<uintptr_t>(memory.data()) % 256);
  } else {
    driver.open();
    ok(driver.init(0), "cuInit");
    ok(driver.retain(&primary, 0), "cuDevicePrimaryCtxRetain");
    ok(driver.setCurrent(primary), "cuCtxSetCurrent");
    unsigned long long address = 0;
    ok(driver.allocate(&address, 3 * tile), "cuMemAlloc");
    ok(driver.fill(address, 0x3c, 3 * tile), "cuMemsetD8");
    base = reinterpret_cast<char*>(address);
    ok(driver.createStream(&stream, 1), "cuStreamCreate");
    ok(driver.loadModule(&module, ptx.c_str()), "cuModuleLoadData");
    ok(driver.function(&bare, module, "bare"), "cuModuleGetFunction");
  }
  check(cermet_prepare(context, plan, 0, &executable), "cermet_prepare");

  const int64_t sizes[] = {rows, kColumns}, strides[] = {kColumns, 1}, columns[] = {kColumns}, one[] = {1};
  const cermet_tensor tensors[] = {{base, sizes, strides, 2, CERMET_BF16},
                                   {base + tile, columns, one, 1, CERMET_BF16},
                                   {base + 2 * tile, sizes, strides, 2, CERMET_BF16}};
  size_t workspace = 0;
  check(cermet_workspace_size(executable, tensors, 2, &workspace), "cermet_workspace_size");
  if (workspace != 0)
    die(fmt::format("a forward RMSNorm asks for {} bytes of workspace, expected none", workspace));

  cermet_status failed = CERMET_OK;
  const auto ours = [&] {
    if (const cermet_status status = cermet_launch(executable, stream, tensors, kOperands, nullptr, 0))
      failed = status;
  };
  cermet::RowArguments arguments{};
  void* parameters[] = {&arguments};
  int bareFailed = 0;
  const auto theirs = [&] {
    if (const int result = driver.launch(bare, unsigned(rows), 1, 1, 128, 1, 1, 0, stream, parameters, nullptr))
      bareFailed = result;
  };

  std::vector<double> cermetTimes, bareTimes;
  for (int batch = -20; batch < kBatches; ++batch) { // the first 20 warm up
    const double mine = nanosecondsEach(ours);
    if (!host)
      ok(driver.synchronize(stream), "cuStreamSynchronize");
    const double other = host ? 0 : nanosecondsEach(theirs);
    if (!host)
      ok(driver.synchronize(stream), "cuStreamSynchronize");
    if (batch >= 0) {
      cermetTimes.push_back(mine);
      bareTimes.push_back(other);
    }
  }
  check(failed, "cermet_launch");
  ok(bareFailed, "cuLaunchKernel");

  const Spread mine = spread(cermetTimes), other = spread(bareTimes);
  std::string answer = fmt::format(R"({{"benchmark": "launch", "version": "{}", "target": "{}", "rows": {}, )"
                                   R"("columns": {}, "cermet_launch": {})",
                                   cermet_version(), target, rows, kColumns, json(mine));
  if (!host)
    answer += fmt::format(R"(, "cuLaunchKernel": {}, "added_ns": {:.1f})", json(other), mine.median - other.median);
  answer += "}\n";
  fmt::print("{}", answer);
  if (!out.empty() && !(std::ofstream(out) << answer))
    die(fmt::format("cannot write {}", out));
  cermet_executable_destroy(executable);
  cermet_plan_destroy(plan);
  cermet_context_destroy(context);
  return 0;
}
