// Outlining: each region as a graph of its own, and the answer to `cermet_match` (docs/plan-format.md, "A match").
#pragma once
#include "patterns/Cluster.h"
#include "patterns/Raise.h"
#include <string>

namespace cermet {

// The text of one function named after the pattern that holds the region's operation alone. Arguments have their roles'
// names, row dimensions are symbols r0, r1, ..., columns are numbers, and there are no locations: regions of equal
// meaning have equal text, byte by byte, wherever and for however many rows they were found.
std::string outline(const Region& region);

// The JSON of format cermet.match.1. A region that a cluster has taken into itself counts as part of that.
std::string matchAnswer(const RaiseResult& result, const std::vector<Cluster>& clusters);

} // namespace cermet
