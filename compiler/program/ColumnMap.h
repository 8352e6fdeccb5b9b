// Which column of an input a row program reads at each of its own columns: the other half of a rotated row, its
// neighbour in a pair, one of half as many. Free of MLIR, as a row program is.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cermet {

struct ColumnMap {
  enum class Step {
    One,   // column + shift
    Pairs, // the other one of columns 2i and 2i + 1, + shift
    Half,  // column / 2 + shift
  };
  struct Piece {
    int64_t begin; // from this column on, until the next piece
    Step step;
    int64_t shift;
    bool operator==(const Piece&) const = default;
  };

  int64_t width = 0;         // the input's columns
  std::vector<Piece> pieces; // none: its own columns, as many as the program has

  bool operator==(const ColumnMap&) const = default;
  bool isMapped() const { return !pieces.empty(); }
  // Whether columns that lie together do so in the input.
  bool isOneByOne() const;
  int64_t at(int64_t column) const;
  // The largest power of two up to `vector` of whose columns, from a multiple of it on, one access has all.
  int vectorWithin(int vector) const;
  // Whether, where a thread has the columns of one place in each `span` of them, it has those that are read for them too.
  bool isWithin(int64_t span) const;
  // "" where it is not mapped, else what follows an operand's type: " columns 128 0:64 64:-64", " columns 64 0:half:0".
  std::string text() const;
};

// The map from the input's column at each of the program's; none where kernels have no such access.
std::optional<ColumnMap> columnMapOf(const std::vector<int64_t>& columns, int64_t width);

// The words that `text` wrote after " columns ". "" on success, else what is wrong with them for that many columns.
std::string parseColumnMap(const std::vector<std::string_view>& words, int64_t columns, ColumnMap& map);

} // namespace cermet
