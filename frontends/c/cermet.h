/* cermet.h: the C interface of Cermet, a run-time kernel-fusion compiler for transformers.
 *
 * From graph text to a running kernel in four calls:
 *
 *     cermet_context* context;     cermet_context_create(NULL, &context);
 *     cermet_plan* plan;           cermet_compile(context, text, strlen(text), "sm_90", &plan);
 *     cermet_executable* run;      cermet_prepare(context, plan, 0, &run);          // may compile; loads
 *     cermet_launch(run, stream, tensors, count, workspace, workspace_size);        // never compiles
 *
 * Conventions. Every function that can fail returns a status; CERMET_OK is 0. On failure the outputs are untouched and
 * cermet_error_message() holds one or more lines for the calling thread: what was given, what was expected, what to do.
 * Nothing throws or aborts across this boundary; what a callback throws becomes a status. Handles are opaque; a handle
 * is destroyed by its own function, NULL is allowed there. One that was destroyed is INVALID_ARGUMENT where it is used,
 * and nothing happens where it is destroyed again, until its place is another handle's, 1,024 of its kind later. A
 * callback may destroy what called it. Text is UTF-8 and need not end in a zero where a length is passed; the names that
 * a graph's text gives are UTF-8 without a zero, whatever its escapes say.
 *
 * Versions. A struct with a `size` may gain fields at its end; set size to sizeof(the struct) before every call, for an
 * answer too: `cermet_counters counters = {.size = sizeof(counters)};`. A library that knows more than the program's
 * header reads and writes the fields that fit. One that knows less refuses options of which the rest is not 0
 * (INVALID_ARGUMENT), and fills the rest of an answer with 0. cermet_tensor is passed in arrays and never changes; what
 * it lacks will come by another function. An enum may gain values: expect some that your header has not.
 *
 * Threads. A context, a plan and an executable may be used from any number of threads at once; creating and destroying
 * one is the caller's to order. cermet_launch takes no lock and allocates nothing; only where more threads than before
 * launch one executable of a large plan at once does it take memory, which the executable keeps. It needs some 16 KiB
 * of stack, whatever the plan.
 *
 * Processes. After fork, at any moment and whatever other threads were doing, contexts, plans and host executables work
 * in the child, which starts threads of its own. fork waits for a compile that runs, for at most ten seconds; beyond
 * that the child's compiles are UNSUPPORTED, and what it has in memory or finds in the cache directory works. CUDA does
 * not survive a fork: what the parent opened is DRIVER_ERROR in the child.
 *
 * Nothing here needs a GPU, MLIR, LLVM or NVRTC to be present until it is used: the compiler library is opened on the
 * first cache miss, the driver on the first CUDA device.
 */
#ifndef CERMET_H
#define CERMET_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CERMET_API __attribute__((visibility("default")))
#define CERMET_VERSION_MAJOR 0
#define CERMET_VERSION_MINOR 1

/*===--- Status ------------------------------------------------------------------------------------------------------*/

typedef enum cermet_status {
  CERMET_OK = 0,
  CERMET_INVALID_ARGUMENT = 1,  /* a null pointer, a wrong count, dtype, rank, dimension, stride, device or alignment */
  CERMET_INVALID_GRAPH = 2,     /* the text does not parse or verify; the message has line and column */
  CERMET_UNSUPPORTED = 3,       /* legal, but not something this build or target can do */
  CERMET_NOT_FOUND = 4,         /* a file, library, device or cache entry that is not there */
  CERMET_COMPILE_FAILED = 5,    /* NVRTC or the host code generator refused our text; the message has its log */
  CERMET_DRIVER_ERROR = 6,      /* the CUDA driver reported an error; the message has its name */
  CERMET_CAPTURING = 7,         /* a compile or load was needed while a stream is being captured */
  CERMET_INTERNAL = 8,          /* a defect in Cermet */
  CERMET_OUT_OF_RANGE = 9,      /* a launch on the host: a tensor holds the number of a row or column that is not there */
  CERMET_NOT_STORED = 10        /* no pack and no directory holds it, and the context may not make it (CERMET_CACHE) */
} cermet_status;

/* The calling thread's last failure, or "". Valid until the thread's next failing call. */
CERMET_API const char* cermet_error_message(void);
CERMET_API const char* cermet_status_name(cermet_status status);
/* Of the calling thread's last failure, where that was CERMET_OUT_OF_RANGE: the kernel's row that asked, the number that it
 * asked for, and how many there are. Returns 1 where columns are numbered (`pick`), 0 where rows (`gather`), and -1, with
 * nothing written, after any other failure. */
CERMET_API int32_t cermet_error_index(int64_t* row, int64_t* number, int64_t* bound);
/* "0.1.0+<build id>": the build id changes when anything that affects generated code does. */
CERMET_API const char* cermet_version(void);

/*===--- Context: configuration, caches, counters ---------------------------------------------------------------------*/

typedef struct cermet_context cermet_context;

/* What a context does off the launch path, as it happens. An answer that is in memory already is no event. */
typedef enum cermet_event_kind {
  CERMET_EVENT_MADE = 1,   /* the compiler made an answer, in `microseconds` */
  CERMET_EVENT_FOUND = 2,  /* a pack or the directory had it */
  CERMET_EVENT_WARNING = 3 /* something works less well than it could; every time, not once as on stderr */
} cermet_event_kind;

/* Strings live during the call. */
typedef struct cermet_event {
  size_t size;           /* the library's sizeof(cermet_event): it has the fields that lie within */
  uint64_t kind;         /* a cermet_event_kind */
  const char* what;      /* "plan", "match", "gradient" or "kernel"; of a warning its cause, always the same words */
  const char* text;      /* the function or the kernel and its target; of a warning a sentence */
  const char* source;    /* "compiler", "pack" or "directory"; of a warning NULL */
  uint64_t microseconds; /* of MADE, else 0 */
  uint64_t bytes;        /* of the answer; of a warning 0 */
} cermet_event;

/* Called by the thread that does it, by several at once. Of this context it may ask the counters and nothing else. What
 * it throws is dropped. */
typedef void (*cermet_event_callback)(void* user, const cermet_event* event);

/* Zero-initialise, set size, then what you need. NULL strings mean "as the environment or the default says"
 * (docs/environment.md). Strings are copied. */
typedef struct cermet_context_options {
  size_t size;                   /* sizeof(cermet_context_options) */
  const char* cache_directory;   /* "" switches the directory cache off; NULL: CERMET_CACHE_DIR, or below HOME */
  const char* nvrtc_library;     /* path of libnvrtc.so.*; NULL: CERMET_NVRTC or found by name */
  const char* dump_directory;    /* NULL: CERMET_DUMP or none */
  const char* packs;             /* files, ':' between them, asked in order; "": none; NULL: CERMET_PACKS or none */
  const char* cache;             /* "on", or "only": what no pack or directory holds is an error; NULL: CERMET_CACHE */
  const char* log;               /* "off", "warn" or "info": what goes to stderr; NULL: CERMET_LOG */
  cermet_event_callback on_event; /* NULL: none; it is called until the context and its executables are gone */
  void* event_user;               /* the callback's `user` */
} cermet_context_options;

CERMET_API cermet_status cermet_context_create(const cermet_context_options* options, cermet_context** context);
CERMET_API void cermet_context_destroy(cermet_context* context);

/* The directory that the context keeps plans and kernels in, absolute; "" where it keeps none. The context's own. */
CERMET_API const char* cermet_context_cache_directory(const cermet_context* context);

/* Everything that the context was asked since it was made, and has, as a pack (docs/cache-format.md): one file at
 * `path`, which serves other processes as `packs`. The answer says its `entries`, `bytes` and `digest`, as JSON;
 * release it with cermet_string_free. */
CERMET_API cermet_status cermet_context_write_pack(cermet_context* context, const char* path, char** json);

/* Monotonic since the context was made. "Plans" are all answers about a graph: plans, matches and gradients. */
typedef struct cermet_counters {
  size_t size;                           /* sizeof(cermet_counters), set by the caller */
  uint64_t plans_compiled, plans_from_memory, plans_from_directory;
  uint64_t kernels_compiled, kernels_from_memory, kernels_from_directory;
  uint64_t kernel_compile_microseconds;  /* NVRTC or host code generation, summed over kernels */
  uint64_t launches;                     /* successful cermet_launch calls */
  uint64_t cache_failures;               /* entries that could not be read, used or written; each kind is logged once */
  uint64_t plans_from_packs, kernels_from_packs;
  uint64_t plan_compile_microseconds;    /* the compiler's, summed over plans, matches and gradients */
  uint64_t cache_misses;                 /* answers that no store had, whatever became of them */
  uint64_t cache_waits;                  /* misses that another process was making, which were waited for */
  uint64_t cache_wait_microseconds;      /* summed over them */
  uint64_t cache_removals;               /* files that this context removed to keep the directory within its bound */
  uint64_t cache_bytes_read, cache_bytes_written; /* of entries; of packs too */
} cermet_counters;
CERMET_API cermet_status cermet_context_counters(const cermet_context* context, cermet_counters* counters);

/* What this build knows, as JSON: `element_types` (a cermet_dtype's code, its names in plans, graph texts and array
 * libraries, bytes, class, sign; of a real its digits in bits and the exponents of its normal numbers), `cuda_targets`,
 * `host_targets`, `operand_kinds` and `limits`. Never freed. */
CERMET_API const char* cermet_facts(void);
/* The settings of docs/environment.md as JSON, by variable, as the environment has them now or as they are without it.
 * INVALID_ARGUMENT where a value cannot be understood. Release the answer with cermet_string_free. */
CERMET_API cermet_status cermet_settings(char** json);

/* The most bytes that a text may have; a larger length is refused before anything of the text is read. */
#define CERMET_MAX_TEXT ((size_t)64 << 20)

/*===--- Graph text to plan -------------------------------------------------------------------------------------------*/

/* Targets: one of `cuda_targets` ("sm_90") or `host_targets`, "host" (this machine's CPU), or "auto" (device 0 if there
 * is one, else host). */
typedef struct cermet_plan cermet_plan;

/* Matches, fuses and schedules the single function of a graph text (docs/ir.md); no kernel is compiled yet. */
CERMET_API cermet_status cermet_compile(cermet_context* context, const char* text, size_t length, const char* target,
                                        cermet_plan** plan);
CERMET_API void cermet_plan_destroy(cermet_plan* plan);

/* The plan as JSON (docs/plan-format.md): inputs, outputs, steps, kernel specs. Owned by the plan. */
CERMET_API const char* cermet_plan_json(const cermet_plan* plan);

typedef enum cermet_dtype {
  CERMET_F32 = 0, CERMET_BF16 = 1, CERMET_F16 = 2, CERMET_F64 = 3,
  CERMET_I64 = 4, CERMET_I32 = 5, CERMET_I16 = 6, CERMET_I8 = 7, CERMET_U8 = 8, CERMET_I1 = 9,
  CERMET_F8E4M3 = 10, CERMET_F8E5M2 = 11 /* as OCP has them: of e4m3 the one without infinities */
} cermet_dtype;

#define CERMET_MAX_RANK 8
typedef struct cermet_value_info {
  size_t size;                    /* sizeof(cermet_value_info), set by the caller */
  const char* name;               /* owned by the plan */
  cermet_dtype dtype;
  int32_t rank;
  int64_t sizes[CERMET_MAX_RANK]; /* -1 where symbolic */
  const char* symbols[CERMET_MAX_RANK]; /* the symbol's name there, else NULL */
} cermet_value_info;

CERMET_API int32_t cermet_plan_input_count(const cermet_plan* plan);
CERMET_API int32_t cermet_plan_output_count(const cermet_plan* plan);
CERMET_API cermet_status cermet_plan_input(const cermet_plan* plan, int32_t index, cermet_value_info* info);
CERMET_API cermet_status cermet_plan_output(const cermet_plan* plan, int32_t index, cermet_value_info* info);

/*===--- What frontends ask -------------------------------------------------------------------------------------------*/

/* Which sequences of a graph Cermet would replace, as JSON (docs/plan-format.md, "match"): regions with their own graph
 * text, and near misses with the one condition that failed. Release the answer with cermet_string_free. */
CERMET_API cermet_status cermet_match(cermet_context* context, const char* text, size_t length, char** json);

/* The gradient of a graph text with respect to the inputs whose entry in `wanted` (one per input) is not 0, as JSON
 * (docs/plan-format.md, "differentiate"): a forward text that also returns what the backward needs, and the backward
 * text with the origin of each of its inputs. */
CERMET_API cermet_status cermet_differentiate(cermet_context* context, const char* text, size_t length,
                                              const uint8_t* wanted, int32_t count, char** json);

/* The text that a kernel spec (a plan's step holds it) becomes, for a reader: CUDA C++, or LLVM IR for the host. Needs the
 * compiler library, neither a GPU nor NVRTC. Release the answer with cermet_string_free. */
CERMET_API cermet_status cermet_kernel_source(cermet_context* context, const char* spec, size_t length, char** source);

/* A 63-bit hash of the text, equal in every process: a short name for a graph. -1 where text is NULL or longer than
 * CERMET_MAX_TEXT. */
CERMET_API int64_t cermet_text_key(const char* text, size_t length);

CERMET_API void cermet_string_free(char* text);

/*===--- Plan to launch -----------------------------------------------------------------------------------------------*/

/* Gets every kernel of the plan (memory, packs, directory, else compile, several at once) and loads none, so that neither
 * a device nor its driver is needed: what a pack (cermet_context_write_pack) for another machine is made of. */
CERMET_API cermet_status cermet_compile_kernels(cermet_context* context, const cermet_plan* plan);

typedef struct cermet_executable cermet_executable;

/* Gets every kernel of the plan (memory, directory, else compile, several at once) and loads it. `device` is a CUDA
 * ordinal, ignored for host plans. Where the driver can tell that a stream of the device is being captured, fails with
 * CERMET_CAPTURING rather than load; it never invalidates a capture. */
CERMET_API cermet_status cermet_prepare(cermet_context* context, const cermet_plan* plan, int32_t device,
                                        cermet_executable** executable);
/* Kernels stay loaded for the life of the context: a captured graph may still hold them. */
CERMET_API void cermet_executable_destroy(cermet_executable* executable);

/* A tensor of the caller's. Sizes and strides are in elements, `rank` of each; they are read during the call only. The
 * struct is an element of arrays, so it has no size and keeps this layout for good. */
typedef struct cermet_tensor {
  void* data;             /* may be NULL only when the tensor has no elements */
  const int64_t* sizes;
  const int64_t* strides;
  int32_t rank;
  int32_t dtype;          /* a cermet_dtype */
} cermet_tensor;

/* Bytes of scratch that a launch on these inputs needs; the first input_count entries of `tensors` are read. */
CERMET_API cermet_status cermet_workspace_size(const cermet_executable* executable, const cermet_tensor* tensors,
                                               int32_t count, size_t* size);

/* Runs the plan on `stream` (a CUstream; ignored on host, where the call returns when the work is done). `tensors` are
 * the inputs then the outputs, in the plan's order. Rows may have any stride; the last dimension must have stride 1
 * where a kernel moves vectors along it. Zero rows is legal. Outputs must not overlap inputs, but an output may be one that
 * the plan lets it take (`in_place`). The workspace is 256-byte aligned, on the same device, and may be reused by later
 * work of the same stream. Where a graph gathers rows or picks columns by a number that is none, floats are NaN; on the
 * host the launch also fails with CERMET_OUT_OF_RANGE, and its outputs hold what was computed until then. */
CERMET_API cermet_status cermet_launch(const cermet_executable* executable, void* stream, const cermet_tensor* tensors,
                                       int32_t count, void* workspace, size_t workspace_size);

/* A plan may hold external steps (matmul, opaque) that Cermet does not run. The callback runs one: `op` is its name,
 * operands then results are in `tensors`. It returns CERMET_OK or a status that ends the launch. */
typedef cermet_status (*cermet_external)(void* user, const char* op, const cermet_tensor* tensors, int32_t operands,
                                         int32_t results, void* stream);
CERMET_API cermet_status cermet_executable_set_external(cermet_executable* executable, cermet_external callback,
                                                        void* user);

/*===--- A loss without logits ----------------------------------------------------------------------------------------*/

/* A graph whose loss is a linear_cross_entropy (docs/c-api.md), run so that of its logits only a piece of the rows exists
 * at a time, with gradients for a cotangent of 1. Like an executable: any number of threads may launch it. */
typedef struct cermet_linear_cross_entropy cermet_linear_cross_entropy;

/* Zero-initialise, set size, then what you need. */
typedef struct cermet_linear_cross_entropy_options {
  size_t size;              /* sizeof(cermet_linear_cross_entropy_options) */
  const uint8_t* gradients; /* one for each input: 0, 1 where its gradient is wanted in its type, 2 in f32; NULL: none is.
                             * Of hidden, weight and bias; the graph returns one number then */
  uint64_t gradient_count;  /* how many these are */
  uint64_t budget;          /* bytes of logits that may exist at a time; 0: 512 MiB. INVALID_ARGUMENT where it is less than a
                             * row of them takes */
  cermet_external product;  /* who multiplies; NULL: a plain loop of Cermet's, on the host alone */
  void* product_user;       /* the callback's `user` */
} cermet_linear_cross_entropy_options;

/* The operation of `options->product` is "matmul", result [m, n] = left [m, k] times right [k, n], or "matmul_accumulate",
 * which adds that to the result; two operands, one result. Of each one stride is 1 and the other at least as large as the
 * size that it steps over: a transposed matrix is the strides of one. Operands are of one type, the result of theirs or of
 * f32; what is added is added in f32, and rounded once. No size is 0. It queues its work on `stream`, with the device's
 * primary context current. */

/* Matches and compiles as cermet_compile and cermet_prepare do, of the graph text that has the operation; its hidden,
 * weight and bias are inputs of the graph that nothing else reads. */
CERMET_API cermet_status cermet_linear_cross_entropy_prepare(cermet_context* context, const char* text, size_t length,
                                                             const char* target, int32_t device,
                                                             const cermet_linear_cross_entropy_options* options,
                                                             cermet_linear_cross_entropy** loss);
CERMET_API void cermet_linear_cross_entropy_destroy(cermet_linear_cross_entropy* loss);

/* As cermet_workspace_size and cermet_launch. `tensors` are the graph's inputs, its outputs, then the gradients that were
 * asked for, in the order of their inputs and with their sizes. Zero rows are legal: gradients are zero then. */
CERMET_API cermet_status cermet_linear_cross_entropy_workspace_size(const cermet_linear_cross_entropy* loss,
                                                                    const cermet_tensor* tensors, int32_t count,
                                                                    size_t* size);
CERMET_API cermet_status cermet_linear_cross_entropy_launch(const cermet_linear_cross_entropy* loss, void* stream,
                                                            const cermet_tensor* tensors, int32_t count,
                                                            void* workspace, size_t workspace_size);

/*===--- Devices ------------------------------------------------------------------------------------------------------*/

/* What can be compiled and run here, as JSON: devices, driver, NVRTC, host target. */
CERMET_API cermet_status cermet_targets(cermet_context* context, char** json);

#ifdef __cplusplus
}
#endif
#endif
