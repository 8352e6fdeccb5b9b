// The seam between libcermet and libcermet_compiler: one exported function that returns a table. Plain C types; nothing
// throws across. libcermet opens the library on its first miss, checks `build_id`, and never closes it.
#pragma once
#include "frontends/c/cermet.h"

extern "C" {

// A byte buffer that the compiler library owns until it is released through the table.
struct cermet_buffer {
  char* data;
  size_t size;
};

struct cermet_compiler_options {
  const char* nvrtc_library;  // path, or "" to search by name
  const char* dump_directory; // "" for none
  // Told of each text that cannot be written there, which fails nothing; by any thread that compiles. May be null.
  void (*dump_failed)(void* user, const char* what) = nullptr;
  void* user = nullptr;
};

// Each function returns CERMET_OK and fills `answer`, or another status and fills `error` with text. All are safe to
// call from several threads at once.
struct cermet_compiler_table {
  uint32_t table_version; // 1
  const char* build_id;   // must equal libcermet's

  // Graph text to plan JSON for a concrete target ("sm_90", "host:x86-64-v3"); docs/plan-format.md.
  cermet_status (*compile)(const char* text, size_t length, const char* target, const cermet_compiler_options*,
                           cermet_buffer* answer, cermet_buffer* error);
  cermet_status (*match)(const char* text, size_t length, const cermet_compiler_options*, cermet_buffer* answer,
                         cermet_buffer* error);
  cermet_status (*differentiate)(const char* text, size_t length, const uint8_t* wanted, int32_t count,
                                 const cermet_compiler_options*, cermet_buffer* answer, cermet_buffer* error);
  // Of a graph with a linear_cross_entropy: the loss of given logits in parts of rows, with their gradient where one of
  // `wanted` is not 0 (1: in the input's type, 2: in f32; `count` 0: none is); docs/plan-format.md.
  cermet_status (*linear_loss)(const char* text, size_t length, const uint8_t* wanted, int32_t count,
                               const cermet_compiler_options*, cermet_buffer* answer, cermet_buffer* error);
  // A kernel spec's canonical text (as a plan's step holds it) to its image: a cubin, or an ELF shared object for host.
  // `nvrtc_version` receives major * 1000 + minor * 10 (0 for host).
  cermet_status (*build_kernel)(const char* spec, size_t length, const cermet_compiler_options*, cermet_buffer* image,
                                int32_t* nvrtc_version, cermet_buffer* error);
  // The CUDA C++ (or LLVM IR for host) of a spec, as `build_kernel` would compile it.
  cermet_status (*kernel_source)(const char* spec, size_t length, cermet_buffer* answer, cermet_buffer* error);
  // The float64 reference interpreter. `tensors` holds inputs then outputs, all dense row-major float64 on the host
  // with the function's own dtypes in `dtype`; sizes are concrete. `honour_casts` 0 gives the mathematical value, 1
  // what the traced program rounds to.
  cermet_status (*interpret)(const char* text, size_t length, int32_t honour_casts, const cermet_tensor* tensors,
                             int32_t count, cermet_buffer* error);
  void (*release)(cermet_buffer*);
};

__attribute__((visibility("default"))) const cermet_compiler_table* cermet_compiler_table_v1(void);
}
