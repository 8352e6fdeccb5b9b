// The passes that cermet-opt offers for looking at this room's work: -cermet-check, -cermet-decompose and
// -cermet-differentiate.
#pragma once

namespace cermet::ir {

void registerPasses();

} // namespace cermet::ir
