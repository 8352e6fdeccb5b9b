// The answer to `cermet_match` (docs/plan-format.md, "A match"), in which each region is a graph of its own.
#pragma once
#include "patterns/matching/Raise.h"
#include <string>

namespace cermet {

// The text of one function, named after the region's pattern, that holds the region's operation alone. Arguments have
// their roles' names, row dimensions are symbols r0, r1, ..., columns are numbers, and there are no locations: regions
// of equal meaning have equal text, byte by byte, wherever and for however many rows they were found.
std::string textOf(const NamedRegion& region);

// The JSON of format cermet.match.1. A named region that a selection has taken into itself counts as part of that.
std::string matchAnswer(const RaiseResult& result, const std::vector<Selection>& selections);

} // namespace cermet
