// What a caller's tensors and workspace must be like. Each check is a few comparisons; only the messages cost.
#pragma once
#include "runtime/plan/Plan.h"
#include "runtime/support/Status.h"

namespace cermet {

constexpr size_t kWorkspaceAlignment = 256;

inline int64_t sizeOf(const Dimension& dimension, const int64_t* symbols) {
  return dimension.symbolic() ? symbols[dimension.symbol] : dimension.size;
}

// A value of a plan, for messages.
std::string placeOf(const Plan& plan, int value);
// Type and shape. Of `symbols`, one for each of the plan's, those below 0 become what the tensor has.
Status checkShape(const Plan& plan, int value, const cermet_tensor& tensor, int64_t* symbols);
// Pointer and strides of an input or output whose shape is right.
Status checkMemory(const Plan& plan, int value, const cermet_tensor& tensor, bool unitStride);
// `asked`: the function that says how large it must be.
Status checkWorkspace(const std::string& name, const void* workspace, size_t given, size_t needed, const char* asked);

} // namespace cermet
