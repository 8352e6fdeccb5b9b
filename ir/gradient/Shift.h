// Largest elements that only keep exponentials finite.
#pragma once
#include "ir/dialect/Ops.h"

namespace cermet::ir {

// The largest of a row, subtracted before exponentials are taken: softmax, its logarithm and the logarithm of the sum
// are the same whatever number that is, so it has no gradient. (Derived step by step it would be a sum of rounding
// errors, and a pass over the row.)
bool isShift(ReduceMaxOp largest);

} // namespace cermet::ir
