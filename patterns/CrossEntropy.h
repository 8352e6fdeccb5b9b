// cross_entropy, a loss over classes: everything from the logits of each row to one number.
//
//   m = max(x);  d = x - m;  l = log(sum(exp(d)));  log-probability of the label: (d - l)[label]
//
// What stands around that core belongs to it where nothing else reads it: casts, softcaps and scales of the logits,
// ignored labels, label smoothing, a squared log-sum, the sum or mean over rows, and arithmetic on the loss itself.
#pragma once
#include "patterns/Cluster.h"
#include "patterns/Raise.h"

namespace cermet {

// In block order, complete, each with the loss as its first result. Near misses are added to `misses`.
std::vector<Cluster> findCrossEntropies(mlir::func::FuncOp function, const NodeValues& nodes,
                                        std::vector<NearMiss>& misses);

} // namespace cermet
