// What an operand of a kernel is, by its shape beside the kernel's rows and columns (docs/plan-format.md has the
// table).
#pragma once
#include <iterator>
#include <optional>
#include <string_view>

namespace cermet {

// [rows..., columns], [rows..., 1], [columns], [1]; Index: no memory, a row's number among those of some
// row extents, in row-major order (I64).
// Gathered: [any, columns], of which each row reads the row whose number a Row operand has for it, or the sum of those
// whose numbers a part of a List has; a number that none has gives NaN, or 0 where the type is no real.
// List: [any], numbers of rows that Gathered operands read, or [any, columns], sums of such rows.
enum class OperandKind { Tile, Row, Column, Scalar, Index, Gathered, List };
constexpr const char* kOperandKinds[] = {"tile",  "row",      "column", "scalar",
                                         "index", "gathered", "list"}; // in plans, specs

constexpr const char* name(OperandKind kind) {
  return kOperandKinds[static_cast<int>(kind)];
}
inline std::optional<OperandKind> operandKind(std::string_view name) {
  for (int kind = 0; kind < int(std::size(kOperandKinds)); ++kind)
    if (name == kOperandKinds[kind])
      return static_cast<OperandKind>(kind);
  return std::nullopt;
}

} // namespace cermet
