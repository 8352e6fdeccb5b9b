// rope, rotary position embedding: y = x * a + rotated(x) * b, where `rotated` exchanges the halves of a head, or
// neighbours in pairs, and turns the sign of one of them; of all columns or of some, the others staying as they are.
//
// Found by what each column of the result is, not by how a program spells it: halves cut and joined, two half results
// joined, neighbours stacked, sines of a whole or of half a row. Queries and keys that turn by the same tables are one
// region, with the norms of their heads where those stand right before.
#pragma once
#include "patterns/matching/Selection.h"

namespace cermet {

// Whether the value is query or key of an attention: by way of views alone it goes into a rope or a call of scaled dot
// product attention.
bool isQueryOrKey(mlir::Value value, const std::vector<Selection>& ropes);

} // namespace cermet
