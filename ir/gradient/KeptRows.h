// Which rows of a piece give anything: a loss's ignored labels, a mask that it is multiplied by.
#pragma once
#include "ir/gradient/RowParts.h"

namespace cermet::ir {

// The part that says of each row of a piece, as an i1, whether it may give other results than zeros; null where every
// row may, or only the walked input (of number `walked`) decides. It is exact but for a row whose walked input is not
// finite: there a zero times that is taken for zero.
//
// Found by assuming: where conditions of a row being false makes all results of `rows` zeros, one of them must hold.
RowPart keptRows(const RowPart& rows, int walked);

} // namespace cermet::ir
