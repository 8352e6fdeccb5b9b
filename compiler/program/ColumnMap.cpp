#include "compiler/program/ColumnMap.h"
#include <algorithm>
#include <charconv>
#include <fmt/format.h>

namespace cermet {
namespace {

constexpr size_t kMaxPieces = 8; // a kernel compares its column with each

using Piece = ColumnMap::Piece;
using Step = ColumnMap::Step;

bool readNumber(std::string_view text, int64_t& value) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return !text.empty() && error == std::errc() && end == text.data() + text.size();
}

int64_t before(Step step, int64_t column) {
  return step == Step::Pairs ? column ^ 1 : step == Step::Half ? column / 2 : column;
}

constexpr std::string_view kSteps[] = {"", "pairs:", "half:"};

std::string parsePiece(std::string_view word, Piece& piece) {
  const size_t colon = word.find(':');
  if (colon != std::string_view::npos && readNumber(word.substr(0, colon), piece.begin)) {
    std::string_view rest = word.substr(colon + 1);
    piece.step = Step::One;
    for (Step step : {Step::Pairs, Step::Half})
      if (rest.starts_with(kSteps[static_cast<int>(step)])) {
        piece.step = step;
        rest.remove_prefix(kSteps[static_cast<int>(step)].size());
      }
    if (readNumber(rest, piece.shift))
      return "";
  }
  return fmt::format("`{}` is no piece `<column>:[pairs:|half:]<shift>`", word);
}

} // namespace

bool ColumnMap::isOneByOne() const {
  return std::all_of(pieces.begin(), pieces.end(), [](const Piece& piece) { return piece.step == Step::One; });
}

int64_t ColumnMap::at(int64_t column) const {
  if (!isMapped())
    return column;
  auto after = std::upper_bound(pieces.begin(), pieces.end(), column,
                                [](int64_t column, const Piece& piece) { return column < piece.begin; });
  const Piece& piece = *std::prev(after);
  return before(piece.step, column) + piece.shift;
}

int ColumnMap::vectorWithin(int vector) const {
  for (const Piece& piece : pieces)
    while (piece.begin % vector != 0 || (piece.step == Step::Half ? 2 : 1) * piece.shift % vector != 0)
      vector /= 2;
  return vector;
}

bool ColumnMap::isWithin(int64_t span) const {
  return std::ranges::all_of(pieces, [&](const Piece& piece) {
    return piece.step != Step::Half && piece.begin % span == 0 && piece.shift % span == 0;
  });
}

std::string ColumnMap::text() const {
  if (!isMapped())
    return "";
  std::string result = fmt::format(" columns {}", width);
  for (const Piece& piece : pieces)
    result += fmt::format(" {}:{}{}", piece.begin, kSteps[static_cast<int>(piece.step)], piece.shift);
  return result;
}

std::optional<ColumnMap> columnMapOf(const std::vector<int64_t>& columns, int64_t width) {
  const int64_t count = static_cast<int64_t>(columns.size());
  ColumnMap map{width, {}};
  for (int64_t begin = 0; begin < count;) {
    // The longest piece; pairs begin and end with a whole pair, and so do halves.
    int64_t longest = 0;
    Piece best{};
    for (Step step : {Step::One, Step::Pairs, Step::Half}) {
      if (step != Step::One && begin % 2 != 0)
        continue;
      const int64_t shift = columns[begin] - before(step, begin);
      int64_t end = begin;
      while (end < count && columns[end] == before(step, end) + shift)
        ++end;
      if (step != Step::One)
        end -= (end - begin) % 2;
      if (end - begin > longest) {
        longest = end - begin;
        best = {begin, step, shift};
      }
    }
    map.pieces.push_back(best);
    begin += longest;
    if (map.pieces.size() > kMaxPieces)
      return std::nullopt;
  }
  if (width == count && map.pieces == std::vector<Piece>{{0, Step::One, 0}})
    map.pieces.clear();
  return map;
}

std::string parseColumnMap(const std::vector<std::string_view>& words, int64_t columns, ColumnMap& map) {
  ColumnMap result;
  if (words.size() < 2 || !readNumber(words[0], result.width) || result.width < 1)
    return "expected `columns <number> <column>:[pairs:|half:]<shift> ...`";
  for (size_t i = 1; i < words.size(); ++i) {
    Piece piece{};
    if (std::string reason = parsePiece(words[i], piece); !reason.empty())
      return reason;
    const int64_t last = result.pieces.empty() ? -1 : result.pieces.back().begin;
    if (piece.begin <= last || piece.begin >= columns || (result.pieces.empty() && piece.begin != 0) ||
        (piece.step != Step::One && piece.begin % 2 != 0))
      return fmt::format("the piece `{}` does not follow the one before it within {} columns", words[i], columns);
    result.pieces.push_back(piece);
  }
  for (int64_t column = 0; column < columns; ++column)
    if (int64_t source = result.at(column); source < 0 || source >= result.width)
      return fmt::format("column {} reads column {} of the input's {}", column, source, result.width);
  map = std::move(result);
  return "";
}

} // namespace cermet
