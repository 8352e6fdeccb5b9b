#include "compiler/program/ColumnMap.h"
#include <gtest/gtest.h>
#include <sstream>

namespace cermet {
namespace {

std::string reread(const ColumnMap& map, int64_t columns, ColumnMap& result) {
  std::istringstream text(map.text());
  std::vector<std::string> words;
  for (std::string word; text >> word;)
    words.push_back(word);
  EXPECT_EQ(words.empty() ? "" : words[0], "columns");
  return parseColumnMap({words.begin() + 1, words.end()}, columns, result);
}

std::vector<int64_t> columnsOf(const ColumnMap& map, int64_t count) {
  std::vector<int64_t> result;
  for (int64_t column = 0; column < count; ++column)
    result.push_back(map.at(column));
  return result;
}

TEST(ColumnMap, IsWhatItWasMadeFrom) {
  struct Case {
    std::vector<int64_t> columns;
    int64_t width;
    std::string text;
    int vector; // of 8
  };
  const Case cases[] = {
      {{0, 1, 2, 3}, 4, "", 8},
      {{4, 5, 6, 7, 0, 1, 2, 3}, 8, " columns 8 0:4 4:-4", 4},
      {{1, 0, 3, 2}, 4, " columns 4 0:pairs:0", 8},
      {{0, 0, 1, 1, 2, 2}, 3, " columns 3 0:half:0", 8},
      {{0, 0, 1, 1, 2, 3, 4, 5}, 6, " columns 6 0:half:0 4:-2", 2},
      {{0, 1, 2, 3}, 8, " columns 8 0:0", 8},
      {{3, 2, 1, 0}, 4, " columns 4 0:pairs:2 2:pairs:-2", 2},
      {{1, 3}, 4, " columns 4 0:1 1:2", 1},
  };
  for (const Case& it : cases) {
    std::optional<ColumnMap> map = columnMapOf(it.columns, it.width);
    ASSERT_TRUE(map);
    EXPECT_EQ(map->text(), it.text);
    EXPECT_EQ(columnsOf(*map, it.columns.size()), it.columns);
    EXPECT_EQ(map->vectorWithin(8), it.vector) << it.text;
    ColumnMap again;
    if (map->isMapped()) {
      EXPECT_EQ(reread(*map, it.columns.size(), again), "");
      EXPECT_EQ(again, *map);
    }
  }
}

TEST(ColumnMap, HasAtMostEightPieces) {
  std::vector<int64_t> columns;
  for (int64_t i = 0; i < 20; ++i)
    columns.push_back(19 - i);
  EXPECT_FALSE(columnMapOf(columns, 20));
}

TEST(ColumnMap, WhatIsWrongIsNamed) {
  ColumnMap map;
  EXPECT_EQ(parseColumnMap({"8"}, 8, map), "expected `columns <number> <column>:[pairs:|half:]<shift> ...`");
  EXPECT_EQ(parseColumnMap({"8", "0:x"}, 8, map), "`0:x` is no piece `<column>:[pairs:|half:]<shift>`");
  EXPECT_EQ(parseColumnMap({"8", "1:0"}, 8, map), "the piece `1:0` does not follow the one before it within 8 columns");
  EXPECT_EQ(parseColumnMap({"8", "0:0", "3:pairs:0"}, 8, map),
            "the piece `3:pairs:0` does not follow the one before it within 8 columns");
  EXPECT_EQ(parseColumnMap({"8", "0:4"}, 8, map), "column 4 reads column 8 of the input's 8");
}

} // namespace
} // namespace cermet
