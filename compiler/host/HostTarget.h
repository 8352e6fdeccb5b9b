// The host target: a kernel spec whose target is `host:x86-64-v2`, `-v3` or `-v4` becomes an ELF shared object, by way
// of MLIR, LLVM and lld, all inside the process. The object needs no library and no symbol from outside, so libcermet
// loads it by dlopen without LLVM; the same bytes run on every machine of that micro-architecture level.
//
// What the code promises: reductions along a row use 64 fixed partial results and a fixed tree, sums over rows go in
// row order, in f32 within a part and in f64 over the parts, cumulative sums are added in f64 and rounded once, and
// nothing is contracted or reassociated, so equal arguments give equal bits, on every level (but for a NaN's own bits).
// Errors over the whole f32 range, in units in the last place of the f32 result, before it is rounded to a 16-bit type:
//   add, sub, mul, div, sqrt           0.5 (correctly rounded)
//   log, tanh, erf, softplus           0.501, in both tails and where results are subnormal, too
//   gelu, gelu_tanh                    the same
//   pow                                0.501, with C's special cases
//   exp                                1
//   rsqrt                              1.51
//   sigmoid, silu                      3 (silu far below 0: and |x| * 2^-149)
// Conversions, comparisons and integer operations are exact; the latter wrap. Real to integer is toward zero and modulo
// the type's range, whatever the real's size. Where columns are not strided they have unit stride; bases need no more
// than their element's alignment; outputs must not overlap inputs.
//
// All functions are safe to call from several threads at once. None throws.
#pragma once
#include "compiler/program/Dump.h"
#include "compiler/program/KernelSpec.h"
#include <string>

namespace cermet {

// Exported symbols of a host kernel's shared object:
//   void main(const RowArguments*, int64_t row_begin, int64_t row_end, int64_t partial_row, HostFault*)
//     computes the rows [row_begin, row_end), and fills in the fault, where it is none yet, if a row is gathered or a
//     column picked (isIndex) by a number that is none; with AccumulateRows it first clears row `partial_row` of every
//     accumulator's partials and then adds its rows into it. Disjoint ranges with their own partial rows may run at
//     once. The rows of several programs are numbered through, in the order of their arguments, which follow one
//     another.
//   void fold(const RowArguments*)
//     sums every accumulator's `partialRows` rows and stores the column outputs. "" without AccumulateRows.
// The accumulators are numbered in the order of their operands.
struct HostEntries {
  std::string main, fold;
};
HostEntries hostEntries(const KernelSpec& spec);

// Compiles `spec`, which is as `parse` leaves it, into `image`. Returns false and says why in `error` when the target
// is not a host level or a tool fails. With a dump, also writes the kernel's MLIR, optimised LLVM
// IR and assembly there.
bool buildHostKernel(const KernelSpec& spec, const Dump& dump, std::string& image, std::string& error);

// The LLVM IR text that `buildHostKernel` hands to LLVM's optimiser. Empty on failure, with the reason in `error`.
std::string hostKernelSource(const KernelSpec& spec, std::string& error);

} // namespace cermet
