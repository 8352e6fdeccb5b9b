// What one kernel saves over its operations, each a kernel of its own: bytes that are not moved.
#pragma once
#include "patterns/matching/Finder.h"

namespace cermet {

bool isFused(mlir::Operation* op);
// A kernel that stands in the graph already, and whose operations are known.
bool isLaunch(mlir::Operation* op);
// Whether nobody asks for the graph's gradient: it is one of those that autograd made.
bool hasNoGradient(mlir::Operation* op);

// Whether one kernel moves enough less, or is worth it for one operation that moves as much.
bool gains(const Selection& cluster, const NodeValues& nodes);

// Why what has a reduction and something beside it is left alone, where it could have gained.
void miss(const Selection& cluster, const std::string& reason, std::vector<NearMiss>& misses);
// What saves bytes, but too small a part of them. The name of a fused operation in it is found all the same.
void missGain(const Selection& cluster, std::vector<NearMiss>& misses);

} // namespace cermet
