// The registry: every finder of this room, in the order in which each looks at the whole function. Those that answer
// with named operations come first: a finder sees what the ones before it made. The compiler adds the engine's own
// clusters at the end (compiler/plan/Clusters.h).
#pragma once
#include "patterns/matching/Finder.h"

namespace cermet {

llvm::ArrayRef<Finder> fusions();

} // namespace cermet
