// Regions beyond the patterns' own: what else of a graph the engine takes as one kernel, where that moves fewer bytes.
// Elementwise work beside a norm joins it (a residual's multiplier, the norm on the residual's other side); what no
// pattern names becomes a `cluster`.
#pragma once
#include "patterns/Cluster.h"
#include "patterns/Raise.h"

namespace cermet {

// `taken`: clusters that are regions already. In block order, complete. One that would gain and cannot be replaced is
// added to `misses`.
std::vector<Cluster> findClusters(mlir::func::FuncOp function, const std::vector<Cluster>& taken,
                                  const NodeValues& nodes, std::vector<NearMiss>& misses);

} // namespace cermet
