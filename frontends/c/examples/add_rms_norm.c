/* A runtime without Python and without torch: graph text in, numbers out.
 *
 * Fuses an RMSNorm with the residual add before it, runs it on this machine's CPU, and, where the CUDA driver sees a
 * device, on that too; prints both results beside the value computed here. Build: cc example.c -lcermet -ldl -lm
 */
#include <cermet.h>
#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 6
#define COLUMNS 256

static const char* const kGraph =
    "module attributes {cermet.version = 1 : i64} {\n"
    "  func.func @add_rms_norm(%x: tensor<?x256xf32, #cermet.symbols<[\"rows\"]>>,\n"
    "                          %residual: tensor<?x256xf32, #cermet.symbols<[\"rows\"]>>, %weight: tensor<256xf32>)\n"
    "      -> (tensor<?x256xf32, #cermet.symbols<[\"rows\"]>>, tensor<?x256xf32, #cermet.symbols<[\"rows\"]>>) {\n"
    "    %y, %sum = cermet.add_rms_norm %x, %residual, %weight {eps = 1.0e-5 : f64}\n"
    "        : tensor<?x256xf32, #cermet.symbols<[\"rows\"]>>, tensor<?x256xf32, #cermet.symbols<[\"rows\"]>>,\n"
    "          tensor<256xf32> to\n"
    "          tensor<?x256xf32, #cermet.symbols<[\"rows\"]>>, tensor<?x256xf32, #cermet.symbols<[\"rows\"]>>\n"
    "    return %y, %sum : tensor<?x256xf32, #cermet.symbols<[\"rows\"]>>,\n"
    "                      tensor<?x256xf32, #cermet.symbols<[\"rows\"]>>\n"
    "  }\n"
    "}\n";

static void check(cermet_status status, const char* what) {
  if (status == CERMET_OK)
    return;
  fprintf(stderr, "%s: %s: %s\n", what, cermet_status_name(status), cermet_error_message());
  exit(1);
}

/* The few functions of the CUDA driver that copy memory. */
typedef unsigned long long device_pointer;
static struct {
  int (*cuInit)(unsigned);
  int (*cuDeviceGet)(int*, int);
  int (*cuDevicePrimaryCtxRetain)(void**, int);
  int (*cuCtxSetCurrent)(void*);
  int (*cuMemAlloc)(device_pointer*, size_t);
  int (*cuMemcpyHtoD)(device_pointer, const void*, size_t);
  int (*cuMemcpyDtoH)(void*, device_pointer, size_t);
} cuda;

static int open_cuda(void) {
  const char* named = getenv("CERMET_CUDA_LIBRARY"); /* the driver that Cermet opens */
  void* library = dlopen(named ? named : "libcuda.so.1", RTLD_NOW);
  int device;
  void* context;
  if (!library)
    return 0;
  *(void**)&cuda.cuInit = dlsym(library, "cuInit");
  *(void**)&cuda.cuDeviceGet = dlsym(library, "cuDeviceGet");
  *(void**)&cuda.cuDevicePrimaryCtxRetain = dlsym(library, "cuDevicePrimaryCtxRetain");
  *(void**)&cuda.cuCtxSetCurrent = dlsym(library, "cuCtxSetCurrent");
  *(void**)&cuda.cuMemAlloc = dlsym(library, "cuMemAlloc_v2");
  *(void**)&cuda.cuMemcpyHtoD = dlsym(library, "cuMemcpyHtoD_v2");
  *(void**)&cuda.cuMemcpyDtoH = dlsym(library, "cuMemcpyDtoH_v2");
  return cuda.cuInit(0) == 0 && cuda.cuDeviceGet(&device, 0) == 0 &&
         cuda.cuDevicePrimaryCtxRetain(&context, device) == 0 && cuda.cuCtxSetCurrent(context) == 0;
}

static void* to_device(const void* data, size_t bytes) {
  device_pointer copy = 0;
  if (cuda.cuMemAlloc(&copy, bytes) != 0 || (data && cuda.cuMemcpyHtoD(copy, data, bytes) != 0)) {
    fprintf(stderr, "device memory: failed\n");
    exit(1);
  }
  return (void*)(uintptr_t)copy;
}

static float x[ROWS * COLUMNS], residual[ROWS * COLUMNS], weight[COLUMNS], y[ROWS * COLUMNS], sum[ROWS * COLUMNS];

/* Compiles, prepares and launches for one target, and prints how far the result is from the value computed here. */
static int run(cermet_context* context, const char* target, int on_device) {
  const int64_t matrix[2] = {ROWS, COLUMNS}, strides[2] = {COLUMNS, 1}, vector[1] = {COLUMNS}, one[1] = {1};
  cermet_tensor tensors[5] = {{x, matrix, strides, 2, CERMET_F32},
                              {residual, matrix, strides, 2, CERMET_F32},
                              {weight, vector, one, 1, CERMET_F32},
                              {y, matrix, strides, 2, CERMET_F32},
                              {sum, matrix, strides, 2, CERMET_F32}};
  cermet_plan* plan;
  cermet_executable* executable;
  size_t workspace_size;
  void* workspace = NULL;
  double worst = 0;
  memset(y, 0xff, sizeof(y));

  check(cermet_compile(context, kGraph, strlen(kGraph), target, &plan), "compile");
  check(cermet_prepare(context, plan, 0, &executable), "prepare");
  if (on_device) {
    tensors[0].data = to_device(x, sizeof(x));
    tensors[1].data = to_device(residual, sizeof(residual));
    tensors[2].data = to_device(weight, sizeof(weight));
    tensors[3].data = to_device(NULL, sizeof(y));
    tensors[4].data = to_device(NULL, sizeof(sum));
  }
  check(cermet_workspace_size(executable, tensors, 5, &workspace_size), "workspace size");
  if (workspace_size > 0)
    workspace = on_device ? to_device(NULL, workspace_size) : aligned_alloc(256, workspace_size);
  check(cermet_launch(executable, NULL, tensors, 5, workspace, workspace_size), "launch");
  if (on_device && cuda.cuMemcpyDtoH(y, (device_pointer)(uintptr_t)tensors[3].data, sizeof(y)) != 0)
    return 1;

  for (int row = 0; row < ROWS; ++row) {
    double squares = 0;
    for (int column = 0; column < COLUMNS; ++column) {
      const double value = (double)x[row * COLUMNS + column] + residual[row * COLUMNS + column];
      squares += value * value;
    }
    for (int column = 0; column < COLUMNS; ++column) {
      const int at = row * COLUMNS + column;
      const double expected = ((double)x[at] + residual[at]) / sqrt(squares / COLUMNS + 1e-5) * weight[column];
      worst = fmax(worst, fabs(y[at] - expected) / fmax(1, fabs(expected)));
    }
  }
  printf("%-5s y[0][0..3] = %8.5f %8.5f %8.5f %8.5f   largest relative error %.1e\n", target, y[0], y[1], y[2], y[3],
         worst);
  cermet_executable_destroy(executable);
  cermet_plan_destroy(plan);
  return worst < 1e-5 ? 0 : 1;
}

int main(void) {
  cermet_context* context;
  int failed;
  for (int index = 0; index < ROWS * COLUMNS; ++index) {
    x[index] = sinf(0.37f * (float)index);
    residual[index] = cosf(0.11f * (float)index);
  }
  for (int column = 0; column < COLUMNS; ++column)
    weight[column] = 1.0f + 0.001f * (float)column;

  printf("cermet %s\n", cermet_version());
  check(cermet_context_create(NULL, &context), "context");
  failed = run(context, "host", 0);
  if (open_cuda())
    failed |= run(context, "auto", 1);
  else
    printf("cuda  not run: no CUDA device\n");
  cermet_context_destroy(context);
  if (fflush(stdout) != 0 || ferror(stdout)) {
    fprintf(stderr, "standard output: cannot be written\n");
    return 1;
  }
  return failed;
}
