// Products with a number that the memory they go to may hold already.
#pragma once
#include "compiler/program/RowProgram.h"
#include <optional>

namespace cermet {

struct Scaling {
  int from, by, to; // operands: a tile, a scalar and the tile that is stored
};

// What a program multiplies, where it is one product of a tile and a scalar and nothing else. With a scalar of 1 in the
// tile's own memory it has nothing to do.
std::optional<Scaling> scalingOf(const RowProgram& program);

} // namespace cermet
