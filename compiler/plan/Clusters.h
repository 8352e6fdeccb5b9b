// The engine's finder: what else of a graph it takes as one kernel, where that moves fewer bytes. Elementwise work
// beside a norm joins it (a residual's multiplier, the norm on the residual's other side); what no pattern names
// becomes a `cluster`.
#pragma once
#include "patterns/matching/Finder.h"

namespace cermet {

Finder clusters(); // behind every other finder: it leaves alone what they took

} // namespace cermet
