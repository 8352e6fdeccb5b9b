// The pass that cermet-opt offers for looking at this room's work: -cermet-raise rewrites the function and reports each
// near miss as a remark, `near miss of rms_norm at mul_9: eps is not a constant`.
#pragma once

namespace cermet {

void registerPatternPasses();

} // namespace cermet
