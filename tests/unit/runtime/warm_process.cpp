// warm_process: an RMSNorm on the host through libcermet. Prints the plans and kernels compiled, and every library in
// the process that a warm start must not open.
#include "frontends/c/cermet.h"
#include <cstdio>
#include <cstring>
#include <link.h>
#include <vector>

namespace {

const char* const kGraph = R"(module attributes {cermet.version = 1 : i64} {
  func.func @rms_norm(%x: tensor<?x512xf32, #cermet.symbols<["r0"]>>, %w: tensor<512xf32>)
      -> tensor<?x512xf32, #cermet.symbols<["r0"]>> {
    %y = cermet.rms_norm %x, %w {eps = 1.0e-6 : f64} : tensor<?x512xf32, #cermet.symbols<["r0"]>>, tensor<512xf32>
        to tensor<?x512xf32, #cermet.symbols<["r0"]>>
    return %y : tensor<?x512xf32, #cermet.symbols<["r0"]>>
  }
})";

int check(cermet_status status) {
  if (status != CERMET_OK)
    std::fprintf(stderr, "%s: %s\n", cermet_status_name(status), cermet_error_message());
  return status;
}

int report(dl_phdr_info* info, size_t, void*) {
  for (const char* unwanted : {"cermet_compiler", "nvrtc", "LLVM", "MLIR", "libcuda"})
    if (std::strstr(info->dlpi_name, unwanted))
      std::printf(" %s", unwanted);
  return 0;
}

} // namespace

int main() {
  cermet_context* context;
  cermet_plan* plan;
  cermet_executable* executable;
  if (check(cermet_context_create(nullptr, &context)) ||
      check(cermet_compile(context, kGraph, std::strlen(kGraph), "host", &plan)) ||
      check(cermet_prepare(context, plan, 0, &executable)))
    return 1;
  std::vector<float> x(4 * 512, 2.0f), w(512, 3.0f), y(4 * 512);
  const int64_t matrix[] = {4, 512}, strides[] = {512, 1}, vector[] = {512}, one[] = {1};
  const cermet_tensor tensors[] = {{x.data(), matrix, strides, 2, CERMET_F32},
                                   {w.data(), vector, one, 1, CERMET_F32},
                                   {y.data(), matrix, strides, 2, CERMET_F32}};
  if (check(cermet_launch(executable, nullptr, tensors, 3, nullptr, 0)))
    return 1;
  for (float value : y)
    if (value < 2.9999f || value > 3.0001f) // 2 / sqrt(4 + eps) * 3
      return 2;
  cermet_counters counters{};
  counters.size = sizeof(counters);
  check(cermet_context_counters(context, &counters));
  std::printf("%d %d:", static_cast<int>(counters.plans_compiled), static_cast<int>(counters.kernels_compiled));
  dl_iterate_phdr(report, nullptr);
  cermet_executable_destroy(executable);
  cermet_plan_destroy(plan);
  cermet_context_destroy(context);
  return 0;
}
