// What Python has prepared: an executable of libcermet for each (graph key, device), with what a launch must know about
// its inputs and outputs. Readers take no lock; entries live as long as the process, as kernels do.
#pragma once
#include "frontends/c/cermet.h"
#include <cstdint>
#include <string>
#include <vector>

namespace cermet::torch_ops {

// Where a size of an output comes from: a number, or dimension `axis` of input `input`.
struct Size {
  int64_t number = -1;
  int32_t input = -1;
  int32_t axis = -1;
};

struct Input {
  std::string name;
  cermet_dtype dtype;
  int32_t rank;
  bool isStrided; // may be so in its last dimension
};

struct Output {
  cermet_dtype dtype;
  std::vector<Size> sizes;
  std::vector<int8_t> order; // dimensions from outermost to innermost in memory
  int32_t place = -1;        // the input whose memory it takes where that lies as the output would; -1: none
};

struct Executable {
  const cermet_executable* handle;
  std::string name; // "rms_norm_backward"
  std::vector<Input> inputs;
  std::vector<Output> outputs;
  bool workspace; // whether some launch needs one
};

// A device as a key: -1 for the CPU, else the CUDA ordinal.
constexpr int32_t cpuDevice = -1;

// Null where nothing was published.
const Executable* find(int64_t key, int32_t device);

// Asks Python to prepare; returns what it published. Throws with Python's message where it could not.
const Executable& prepare(int64_t key, int32_t device);

} // namespace cermet::torch_ops

extern "C" {

// Prepares (compiles, loads, publishes) `key` for a device. Returns 0, or another number with a message in `error`.
typedef int32_t (*cermet_torch_prepare_callback)(int64_t key, int32_t device, char* error, size_t error_size);

CERMET_API void cermet_torch_set_prepare(cermet_torch_prepare_callback callback);

// Makes `executable` (kept alive by the caller for the life of the process) what `key` runs on `device`. The sizes of
// every output must be numbers or symbols of inputs. `orders`: null, or CERMET_MAX_RANK numbers for each output, its
// dimensions from outermost to innermost in memory; row-major where the first is negative. `places`: null, or for each
// output the input whose memory it takes, of those that the plan lets it, or -1; nobody reads that input behind a
// launch. `strided`: null, or for each input whether it is read as it lies where its columns are apart, else copied.
CERMET_API cermet_status cermet_torch_publish(int64_t key, int32_t device, const char* name,
                                              const cermet_executable* executable, const cermet_plan* plan,
                                              const int8_t* orders, const int32_t* places, const int8_t* strided);
}
