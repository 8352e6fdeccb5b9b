// Whether an ELF image is whole. Neither the loader nor the CUDA driver asks: of one that is cut off they read past the
// end.
#pragma once
#include "runtime/support/Status.h"
#include <string_view>

namespace cermet {

constexpr unsigned kHostMachine = 62, kCudaMachine = 190; // e_machine of x86-64 and of a cubin

// Of a little-endian 64-bit image for `machine`: all that its headers say lies in `bytes`.
Status checkElf(std::string_view bytes, unsigned machine);

} // namespace cermet
