// One description of a kernel with three uses: its canonical text is what is hashed into the cache key, what a cache
// entry's header holds and is compared with on every hit, and the title of a dump or a line of `explain`. No path, rank,
// device number, clock or environment is in it. Equal text means equal source.
#pragma once
#include "compiler/RowProgram.h"

namespace cermet {

enum class Skeleton { Flat, Row };

struct Schedule {
  Skeleton skeleton = Skeleton::Flat;
  int threads = 256;        // per block
  int threadsPerRow = 256;  // a power of two up to `threads`, or a multiple of 32 equal to `threads`
  int vector = 1;           // elements a thread moves at once when bases and strides allow
  int vectorsPerThread = 1; // of a row, so that threadsPerRow * vector * vectorsPerThread >= columns; 0: too long to keep
  int stages = 0;           // copies of a row in flight in shared memory; 0: straight to registers
  int blocksPerSm = 0;      // persistent blocks per multiprocessor; 0: one block for each group of rows
  int residentBlocks = 1;   // per multiprocessor that the vector entry's registers must leave room for
  int sharedBytes = 0;      // dynamic shared memory
};

struct KernelSpec {
  std::string target;   // "sm_90", "host:x86-64-v3"
  std::string numerics = "traced";
  RowProgram program;
  Schedule schedule;    // host: all defaults
};

const char* name(Skeleton);
std::string print(const KernelSpec&);
std::string parse(const std::string& text, KernelSpec& spec); // "" on success, else what is wrong

} // namespace cermet
