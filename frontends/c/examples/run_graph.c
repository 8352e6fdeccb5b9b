/* Runs any graph text on tensors of ones, on the CPU or on a GPU's stream:
 *
 *     run_graph GRAPH [TARGET] [SYMBOL=SIZE ...]
 *
 * A TARGET that is not given is auto, a SIZE is 4.
 *
 * It shows every step between a file and a launch: compile, look at inputs and outputs, prepare, launch twice with
 * different sizes of the symbolic dimensions, and what to do about external steps, failures and counters. A graph that
 * computes on ones gives numbers that can be checked by hand. Build: cc run_graph.c -lcermet -ldl -lm
 */
#include <cermet.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TENSORS 64
#define MAX_SYMBOLS 32
#define MAX_TYPES 64
#define SHOWN 4

static void check(cermet_status status, const char* what) {
  if (status == CERMET_OK)
    return;
  fprintf(stderr, "%s: %s: %s\n", what, cermet_status_name(status), cermet_error_message());
  exit(1);
}

static void fail(const char* what, const char* detail) {
  fprintf(stderr, "%s: %s\n", what, detail);
  exit(2);
}

static char* read_file(const char* path, size_t* length) {
  FILE* file = fopen(path, "rb");
  char* text = NULL;
  long size = 0;
  if (!file || fseek(file, 0, SEEK_END) != 0 || (size = ftell(file)) < 0 || fseek(file, 0, SEEK_SET) != 0)
    fail(path, "cannot be read");
  text = malloc((size_t)size + 1);
  if (!text || fread(text, 1, (size_t)size, file) != (size_t)size)
    fail(path, "cannot be read");
  fclose(file);
  *length = (size_t)size;
  return text;
}

/*===--- The CUDA driver, where there is one -------------------------------------------------------------------------*/

typedef unsigned long long device_pointer;
static struct {
  int (*cuInit)(unsigned);
  int (*cuDeviceGet)(int*, int);
  int (*cuDevicePrimaryCtxRetain)(void**, int);
  int (*cuCtxSetCurrent)(void*);
  int (*cuStreamCreate)(void**, unsigned);
  int (*cuStreamSynchronize)(void*);
  int (*cuMemAlloc)(device_pointer*, size_t);
  int (*cuMemFree)(device_pointer);
  int (*cuMemcpyHtoD)(device_pointer, const void*, size_t);
  int (*cuMemcpyDtoH)(void*, device_pointer, size_t);
} cuda;
static void* stream; /* NULL on the host, which has none */

static int open_cuda(void) {
  const struct {
    void* function;
    const char* name;
  } functions[] = {{&cuda.cuInit, "cuInit"},
                   {&cuda.cuDeviceGet, "cuDeviceGet"},
                   {&cuda.cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain"},
                   {&cuda.cuCtxSetCurrent, "cuCtxSetCurrent"},
                   {&cuda.cuStreamCreate, "cuStreamCreate"},
                   {&cuda.cuStreamSynchronize, "cuStreamSynchronize"},
                   {&cuda.cuMemAlloc, "cuMemAlloc_v2"},
                   {&cuda.cuMemFree, "cuMemFree_v2"},
                   {&cuda.cuMemcpyHtoD, "cuMemcpyHtoD_v2"},
                   {&cuda.cuMemcpyDtoH, "cuMemcpyDtoH_v2"}};
  const char* named = getenv("CERMET_CUDA_LIBRARY"); /* the driver that Cermet opens */
  void *library = dlopen(named ? named : "libcuda.so.1", RTLD_NOW), *context;
  int device;
  if (!library)
    return 0;
  for (size_t index = 0; index < sizeof(functions) / sizeof(functions[0]); ++index) {
    void* found = dlsym(library, functions[index].name);
    if (!found)
      return 0;
    memcpy(functions[index].function, &found, sizeof(found)); /* C has no cast from data to a function */
  }
  return cuda.cuInit(0) == 0 && cuda.cuDeviceGet(&device, 0) == 0 &&
         cuda.cuDevicePrimaryCtxRetain(&context, device) == 0 && cuda.cuCtxSetCurrent(context) == 0 &&
         cuda.cuStreamCreate(&stream, 1 /* does not wait for the legacy stream */) == 0;
}

/* Memory that is aligned as a workspace must be; on the device where there is a stream. */
static void* allocate(size_t bytes) {
  device_pointer address = 0;
  void* memory;
  const size_t rounded = (bytes + 255) / 256 * 256;
  if (bytes == 0)
    return NULL;
  if (!stream)
    memory = aligned_alloc(256, rounded);
  else
    memory = cuda.cuMemAlloc(&address, rounded) == 0 ? (void*)(uintptr_t)address : NULL;
  if (!memory)
    fail("memory", "there is not enough");
  return memory;
}

static void release(void* memory) {
  if (stream && memory)
    cuda.cuMemFree((device_pointer)(uintptr_t)memory);
  else
    free(memory);
}

static void copy_in(void* to, const void* from, size_t bytes) {
  if (!stream)
    memcpy(to, from, bytes);
  else if (cuda.cuMemcpyHtoD((device_pointer)(uintptr_t)to, from, bytes) != 0)
    fail("cuMemcpyHtoD", "failed");
}

static void copy_out(void* to, const void* from, size_t bytes) {
  if (!stream)
    memcpy(to, from, bytes);
  else if (cuda.cuMemcpyDtoH(to, (device_pointer)(uintptr_t)from, bytes) != 0)
    fail("cuMemcpyDtoH", "failed");
}

/*===--- Elements ----------------------------------------------------------------------------------------------------*/

/* What cermet_facts says of each, by cermet_dtype. A real has a sign, an exponent and a fraction, of `digits` bits with
 * the leading one; its normal numbers have exponents from `lowest` to `highest`. */
static struct element_type {
  char name[16];
  int bytes, is_real, is_signed, digits, lowest, highest;
} types[MAX_TYPES];

/* What stands behind a field's name in the JSON object that begins there; the objects of element types hold no others.
 */
static const char* field(const char* object, const char* name) {
  char key[32];
  const char* found;
  snprintf(key, sizeof(key), "\"%s\":", name);
  found = strstr(object, key);
  return found && found < strchr(object, '}') ? found + strlen(key) : "";
}

static int number(const char* object, const char* name) {
  return (int)strtol(field(object, name), NULL, 10);
}

static void read_types(void) {
  const char* at = strstr(cermet_facts(), "\"element_types\":");
  while (at && (at = strpbrk(at, "{]")) && *at == '{') {
    const int code = number(at, "code");
    if (code < 0 || code >= MAX_TYPES)
      fail("cermet_facts", "there are more element types than this program takes");
    types[code].bytes = number(at, "bytes");
    types[code].is_real = strncmp(field(at, "class"), "\"real\"", 6) == 0;
    types[code].is_signed = *field(at, "signed") == 't';
    types[code].digits = number(at, "digits");
    types[code].lowest = number(at, "lowest_exponent");
    types[code].highest = number(at, "highest_exponent");
    sscanf(field(at, "name"), "\"%15[^\"]", types[code].name);
    at = strchr(at, '}');
  }
}

/* The bits of 1, little-endian: no fraction, and the exponent 0, which is stored as itself less that of subnormals. */
static uint64_t one(const struct element_type* type) {
  return type->is_real ? (uint64_t)(1 - type->lowest) << (type->digits - 1) : 1;
}

static double element(const char* at, const struct element_type* type) {
  const uint64_t sign = UINT64_C(1) << (8 * type->bytes - 1);
  uint64_t bits = 0, size, units;
  double value;
  int stored;
  memcpy(&bits, at, (size_t)type->bytes);
  size = bits & (sign - 1);
  if (!type->is_real) /* of two's complement the highest bit counts below zero */
    return type->is_signed && bits & sign ? (double)size - ldexp(1, 8 * type->bytes - 1) : (double)bits;
  units = size & ((UINT64_C(1) << (type->digits - 1)) - 1);
  stored = (int)(size >> (type->digits - 1));
  if (stored - 1 + type->lowest > type->highest || size == sign - 1)
    value = units ? NAN : INFINITY;
  else
    value = ldexp((double)(stored ? units + (UINT64_C(1) << (type->digits - 1)) : units),
                  (stored ? stored - 1 : 0) + type->lowest - (type->digits - 1));
  return bits & sign ? -value : value;
}

/*===--- Tensors -----------------------------------------------------------------------------------------------------*/

static struct {
  const char* name;
  int64_t size;
} symbols[MAX_SYMBOLS];
static int symbol_count;

/* The size of a symbolic dimension: from the command line, else 4; later launches are larger by `more`. */
static int64_t size_of(const char* name, int64_t more) {
  for (int index = 0; index < symbol_count; ++index)
    if (strcmp(symbols[index].name, name) == 0)
      return symbols[index].size + more;
  return 4 + more;
}

static void print_value(const char* kind, const cermet_value_info* info) {
  printf("  %-6s %-16s %s[", kind, info->name, types[info->dtype].name);
  for (int dim = 0; dim < info->rank; ++dim) {
    if (info->symbols[dim])
      printf("%s%s", dim ? ", " : "", info->symbols[dim]);
    else
      printf("%s%" PRId64, dim ? ", " : "", info->sizes[dim]);
  }
  printf("]\n");
}

struct tensor {
  int64_t sizes[CERMET_MAX_RANK], strides[CERMET_MAX_RANK];
  size_t elements, bytes;
  void* data;
};

/* Dense, row-major, and filled with ones. */
static void make_tensor(const cermet_value_info* info, int64_t more, struct tensor* tensor) {
  const size_t size = (size_t)types[info->dtype].bytes;
  const uint64_t bits = one(&types[info->dtype]);
  char* ones;
  tensor->elements = 1;
  for (int dim = info->rank; dim-- > 0;) {
    tensor->sizes[dim] = info->symbols[dim] ? size_of(info->symbols[dim], more) : info->sizes[dim];
    tensor->strides[dim] = (int64_t)tensor->elements;
    tensor->elements *= (size_t)tensor->sizes[dim];
  }
  tensor->bytes = tensor->elements * size;
  tensor->data = allocate(tensor->bytes);
  ones = malloc(tensor->bytes + 8);
  if (!ones)
    fail("memory", "there is not enough");
  for (size_t index = 0; index < tensor->elements; ++index)
    memcpy(ones + index * size, &bits, size);
  if (tensor->bytes > 0)
    copy_in(tensor->data, ones, tensor->bytes);
  free(ones);
}

static void print_tensor(const cermet_value_info* info, const struct tensor* tensor) {
  const struct element_type* type = &types[info->dtype];
  char* bytes = malloc(tensor->bytes + 8);
  if (!bytes)
    fail("memory", "there is not enough");
  if (tensor->bytes > 0)
    copy_out(bytes, tensor->data, tensor->bytes);
  printf("  %s =", info->name);
  for (size_t index = 0; index < tensor->elements && index < SHOWN; ++index)
    printf(" %g", element(bytes + index * (size_t)type->bytes, type));
  printf("%s (%zu elements)\n", tensor->elements > SHOWN ? " ..." : "", tensor->elements);
  free(bytes);
}

/* Called for a step that Cermet does not run, such as a matrix product. A program with a BLAS would call it here. */
static cermet_status refuse_external(void* user, const char* op, const cermet_tensor* tensors, int32_t operands,
                                     int32_t results, void* on_stream) {
  (void)user, (void)tensors, (void)on_stream;
  fprintf(stderr, "external step %s: %d operands, %d results; this program runs none\n", op, (int)operands,
          (int)results);
  return CERMET_UNSUPPORTED;
}

static void launch(const cermet_executable* executable, const cermet_value_info* infos, int inputs, int count,
                   int64_t more) {
  struct tensor made[MAX_TENSORS];
  cermet_tensor tensors[MAX_TENSORS];
  size_t workspace_size;
  void* workspace;
  for (int index = 0; index < count; ++index) {
    make_tensor(&infos[index], more, &made[index]);
    tensors[index] = (cermet_tensor){made[index].data, made[index].sizes, made[index].strides, infos[index].rank,
                                     infos[index].dtype};
  }
  check(cermet_workspace_size(executable, tensors, count, &workspace_size), "workspace size");
  workspace = allocate(workspace_size);
  check(cermet_launch(executable, stream, tensors, count, workspace, workspace_size), "launch");
  if (stream && cuda.cuStreamSynchronize(stream) != 0)
    fail("cuStreamSynchronize", "failed");
  printf("launched, workspace of %zu bytes\n", workspace_size);
  for (int index = inputs; index < count; ++index)
    print_tensor(&infos[index], &made[index]);
  release(workspace);
  for (int index = 0; index < count; ++index)
    release(made[index].data);
}

int main(int argc, char** argv) {
  static cermet_value_info infos[MAX_TENSORS];
  cermet_context* context;
  cermet_plan* plan;
  cermet_executable* executable;
  cermet_counters counters = {.size = sizeof(counters)};
  const char* target = "auto";
  char* text;
  size_t length;
  int inputs, count, on_device;
  if (argc < 2)
    fail("usage", "run_graph GRAPH [TARGET] [SYMBOL=SIZE ...]");
  for (int index = 2; index < argc; ++index) {
    char* equals = strchr(argv[index], '=');
    if (!equals) {
      target = argv[index];
      continue;
    }
    if (symbol_count == MAX_SYMBOLS)
      fail(argv[index], "there are too many sizes");
    *equals = '\0';
    symbols[symbol_count].name = argv[index];
    symbols[symbol_count++].size = strtoll(equals + 1, NULL, 10);
  }
  text = read_file(argv[1], &length);
  on_device = strncmp(target, "host", 4) != 0 && open_cuda();
  if (strcmp(target, "auto") == 0 && !on_device)
    target = "host";

  printf("cermet %s\n", cermet_version());
  read_types();
  check(cermet_context_create(NULL, &context), "context");
  check(cermet_compile(context, text, length, target, &plan), "compile");
  inputs = cermet_plan_input_count(plan);
  count = inputs + cermet_plan_output_count(plan);
  if (count > MAX_TENSORS)
    fail(argv[1], "has more inputs and outputs than this program takes");
  for (int index = 0; index < count; ++index) {
    infos[index].size = sizeof(infos[index]);
    if (index < inputs)
      check(cermet_plan_input(plan, index, &infos[index]), "input");
    else
      check(cermet_plan_output(plan, index - inputs, &infos[index]), "output");
    print_value(index < inputs ? "input" : "output", &infos[index]);
  }
  check(cermet_prepare(context, plan, 0, &executable), "prepare");
  check(cermet_executable_set_external(executable, refuse_external, NULL), "external");
  launch(executable, infos, inputs, count, 0);
  launch(executable, infos, inputs, count, 1); /* nothing is compiled again for other sizes */

  check(cermet_context_counters(context, &counters), "counters");
  printf("plans: %" PRIu64 " compiled, %" PRIu64 " from the directory; kernels: %" PRIu64 " compiled in %" PRIu64
         " us, %" PRIu64 " from the directory; launches: %" PRIu64 "\n",
         counters.plans_compiled, counters.plans_from_directory, counters.kernels_compiled,
         counters.kernel_compile_microseconds, counters.kernels_from_directory, counters.launches);
  cermet_executable_destroy(executable);
  cermet_plan_destroy(plan);
  cermet_context_destroy(context);
  free(text);
  if (fflush(stdout) != 0 || ferror(stdout))
    fail("standard output", "cannot be written");
  return 0;
}
