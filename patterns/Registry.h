// Every pattern, in the order in which they are tried over the whole function: a pattern may build on operations that
// an earlier one made.
#pragma once
#include "patterns/Pattern.h"

namespace cermet {

llvm::ArrayRef<Pattern> patterns();

} // namespace cermet
