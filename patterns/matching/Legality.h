// What must hold for every match, whatever its finder.
#pragma once
#include "patterns/matching/Finder.h"
#include <optional>

namespace cermet {

// The condition that keeps a match from being rewritten, or nothing:
// - no inner value is written in place, returned, or read from outside; no operand's conversion is written in place;
// - operands are f32, bf16 or f16, of rank 2 to 5 (weights 1), contiguous in the last dimension, which is a number, and
//   have names of their own, so that a frontend can hand them over;
// - there is a place in the order of the block where every operand exists, none has been written since, and no result
//   has been read yet.
std::optional<std::string> violation(const NamedAnswer& answer, const Match& match);

} // namespace cermet
