// A stand-in for CUDA where this machine has no GPU, so that autograd takes fake tensors of one.
#pragma once
#include "frontends/c/cermet.h"

extern "C" {

// Makes libtorch say that CUDA is its accelerator and give it a device guard that does nothing, for a process that has
// no GPU. It lasts until the process ends, which then runs nothing on a GPU. Null, or why this torch cannot.
CERMET_API const char* cermet_torch_stand_in_for_cuda();
}
