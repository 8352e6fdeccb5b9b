// One description of a kernel with three uses: its canonical text is what is hashed into the cache key, what a cache
// entry's header holds and is compared with on every hit, and the title of a dump or a line of `explain`. No path, rank,
// device number, clock or environment is in it. Equal text means equal source.
#pragma once
#include "compiler/program/RowProgram.h"
#include "runtime/abi/Skeleton.h"

namespace cermet {

struct Schedule {
  Skeleton skeleton = Skeleton::Flat;
  int threads = 256;        // per block
  int threadsPerRow = 256;  // a power of two up to `threads`, or a multiple of 32 equal to `threads`; of the column
                            // skeleton those of one row that a block has, of the turned those of a row of its tile
  int vector = 1;           // elements a thread moves at once when bases and strides allow; of rows whose columns it
                            // does not divide, the whole ones in them (long_row.cuh)
  int vectorsPerThread = 1; // of a row, so that threadsPerRow * vector * vectorsPerThread >= columns; 0: too long to keep
  int stages = 0;           // copies of a row in flight in shared memory; 0: straight to registers; kRollingStages: one
                            // row's first vectorsPerThread vectors, which the next row's replace (long_row.cuh)
  int blocksPerSm = 0;      // persistent blocks per multiprocessor; 0: one block for each group of rows
  int residentBlocks = 1;   // per multiprocessor that the vector entry's registers must leave room for
  int sharedBytes = 0;      // dynamic shared memory
};

constexpr int kRollingStages = 1;
constexpr int kMaxKept = 32; // registers of a thread for values that a later stage would compute again

struct ScheduledProgram {
  RowProgram program;
  Schedule schedule; // host: all defaults
  // Whether blocks leave parts of sums over rows, which a second stage adds.
  bool folds() const { return program.accumulates() && schedule.skeleton != Skeleton::Column; }
};

struct KernelSpec {
  std::string target; // "sm_90", "host:x86-64-v3"
  std::string numerics = "traced";
  // Side by side in one launch, each over rows of its own; up to kMaxPrograms. Several are alike in
  // mayStandBeside.
  std::vector<ScheduledProgram> programs;

  std::string name() const; // a C identifier
  bool folds() const { return programs[0].folds(); }
  int sharedBytes() const; // of a block of any of them
};

// Whether the program may stand beside the first of a kernel: both have as many threads, and both are persistent and sum
// over rows or neither does.
bool mayStandBeside(const ScheduledProgram& each, const ScheduledProgram& first);

const char* name(Skeleton);
// The text of one program is `schedule` and its lines; several follow one another.
std::string print(const KernelSpec&);
std::string parse(const std::string& text, KernelSpec& spec); // "" on success, else what is wrong

} // namespace cermet
