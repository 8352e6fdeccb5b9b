// A KernelSpec as CUDA C++: prelude and skeleton as they stand in compiler/cuda/device, then the program's
// straight-line code as a functor, then its instantiations. Nothing else is generated; no algorithm is assembled from
// text.
#pragma once
#include "compiler/program/KernelSpec.h"

namespace cermet {

// The kernels of one image. `vector` moves schedule.vector elements at once and needs bases and row strides aligned to
// that; `scalar` needs nothing (the same kernel when schedule.vector is 1). `fold` is empty without AccumulateRows.
struct KernelEntries {
  std::string vector, scalar, fold;
};

KernelEntries kernelEntries(const KernelSpec& spec);
std::string emitCuda(const KernelSpec& spec);

// emitCuda's text without its types, the prelude, which is the only part that a CPU cannot compile, and its eight-bit
// floats.
std::string emitKernel(const KernelSpec& spec);

// The part of emitCuda's text after prelude and skeleton: what `explain` shows and golden tests review.
std::string emitProgram(const KernelSpec& spec);

} // namespace cermet
