// Integers, bools, index and strided operands, and the largest and smallest of a row.
#include "tests/unit/compiler/host/HostKernel.h"
#include "tests/unit/compiler/host/Programs.h"
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>

namespace cermet::test {
namespace {

const std::vector<DType> kIntegers = kernelTypes(ValueClass::Integer);
const std::vector<DType> kTypes = [] {
  std::vector<DType> result = kernelTypes(ValueClass::Real);
  result.insert(result.end(), kIntegers.begin(), kIntegers.end());
  result.push_back(DType::I1);
  return result;
}();
constexpr OperandKind tile = OperandKind::Tile, row = OperandKind::Row, column = OperandKind::Column;

class Types : public testing::TestWithParam<std::string> {
protected:
  static void expectExactHere(const RowProgram& program, Arguments& arguments, int parts = 1) {
    expectExact(HostKernel(program, GetParam()), arguments, parts);
  }
};

// Reals over their whole range, to every type.
TEST_P(Types, RealsConvertTowardZeroAndWrap) {
  constexpr int64_t columns = 1003, rows = 300;
  for (DType to : kTypes) {
    RowProgram program = unary(columns, Opcode::Cast, DType::F32, to);
    std::mt19937 random = freshRandom();
    Arguments arguments(program, {rows}, random);
    for (int64_t j = 0; j < rows * columns; ++j)
      if (j % 3) // all exponents, and more often those of integers
        arguments.arrays[0].setBits(j,
                                    j % 3 == 1 ? random() : random() % (66u << 23) + (120u << 23) + (random() << 31));
    for (float edge : {0x1p31f, -0x1p31f, 0x1p63f, -0x1p63f, 0x1.8p63f, 0x1p64f, 0x1.000002p64f, -0x1.000002p64f,
                       255.9f, -0.9f, 127.5f, 128.0f, -128.99f, 32768.0f, NAN, INFINITY, -INFINITY, 0x1p-149f})
      arguments.arrays[0].set(random() % (rows * columns), edge);
    expectExactHere(program, arguments);
  }
}

// Integers around powers of two, where rounding to a real has its ties, to every type.
TEST_P(Types, IntegersConvertRoundedOnceOrWrap) {
  for (DType from : kIntegers)
    for (DType to : kTypes) {
      RowProgram program = unary(257, Opcode::Cast, from, to);
      std::mt19937 random = freshRandom();
      Arguments arguments(program, {40}, random);
      for (int64_t j = 0; j < arguments.arrays[0].size(); ++j) {
        uint64_t power = uint64_t(1) << random() % 64, half = power >> (random() % 2 ? 8 : 24), more = random() % 3;
        uint64_t value = (random() % 2 ? power : power - 1) + half * (random() % 4) + more - 1;
        arguments.arrays[0].setBits(j, random() % 2 ? value : 0 - value);
      }
      expectExactHere(program, arguments);
    }
}

TEST_P(Types, EveryPairOfBytes) {
  for (DType type : {DType::I8, DType::U8}) {
    ProgramBuilder p("pairs", 256);
    int a = p.load("a", tile, type), b = p.load("b", column, type);
    using enum Opcode;
    for (Opcode opcode : {Add, Sub, Mul, Max, Min})
      p.store(name(opcode), tile, type, p.compute(opcode, a, b, type));
    for (Opcode opcode : {Neg, Abs})
      p.store(name(opcode), tile, type, p.compute(opcode, a, -1, type));
    for (Opcode opcode : {Equal, NotEqual, Less, LessEqual})
      p.store(name(opcode), tile, DType::I1, p.compute(opcode, a, b, DType::I1));
    std::mt19937 random = freshRandom();
    Arguments arguments(p.program, {256}, random);
    for (int64_t j = 0; j < 256 * 256; ++j)
      arguments.arrays[0].setBits(j, j / 256);
    for (int64_t j = 0; j < 256; ++j)
      arguments.arrays[1].setBits(j, j);
    expectExactHere(p.program, arguments);
  }
}

TEST_P(Types, AnyByteButZeroIsTrueAndTrueIsStoredAsOne) {
  constexpr int64_t columns = 256 + 7;
  ProgramBuilder p("bools", columns);
  int a = p.load("a", tile, DType::I1), zero = p.constant(0, DType::I1);
  p.store("y", tile, DType::I1, a);
  p.store("not", tile, DType::I1, p.compute(Opcode::Equal, a, zero, DType::I1));
  std::mt19937 random = freshRandom();
  Arguments arguments(p.program, {1}, random);
  for (int64_t j = 0; j < columns; ++j)
    arguments.arrays[0].setBits(j, j % 256);
  HostKernel(p.program, GetParam()).run(arguments);
  for (int64_t j = 0; j < columns; ++j) {
    EXPECT_EQ(arguments.arrays[1].base()[j], j % 256 != 0) << j;
    EXPECT_EQ(arguments.arrays[2].base()[j], j % 256 == 0) << j;
  }
}

// x transposed: its rows are neighbours in memory, its columns far apart.
TEST_P(Types, StridedColumnsOfEveryType) {
  for (DType type : kTypes)
    for (int64_t columns : {1, 15, 16, 37}) {
      constexpr int64_t rows = 9;
      ProgramBuilder p("strided", columns);
      int x = p.load("x", tile, type, true), bias = p.load("bias", column, type, true);
      p.store("y", tile, type, p.compute(Opcode::Max, x, bias, type));
      std::mt19937 random = freshRandom();
      Arguments arguments(p.program, {rows}, random, {{1}, {}, {columns + 1}}, {rows, 2, 0});
      expectExactHere(p.program, arguments, 2);
    }
}

TEST_P(Types, IndicesFollowTheirStrides) {
  ProgramBuilder p("indices", 19);
  int outer = p.load("outer", OperandKind::Index, DType::I64), flat = p.load("flat", OperandKind::Index, DType::I64);
  int x = p.load("x", tile, DType::I32), number = p.columnIndex(DType::I16);
  int isCausal = p.compute(Opcode::LessEqual, number, flat, DType::I1);
  p.store("masked", tile, DType::I32, p.compute(Opcode::Select, DType::I32, {isCausal, x, outer}));
  p.store("flat_number", row, DType::I64, flat);
  p.store("number", tile, DType::F32, p.compute(Opcode::Cast, p.spread(number, Space::Element)));
  std::mt19937 random = freshRandom();
  for (int parts : {1, 5}) {
    Arguments arguments(p.program, {3, 4, 5}, random, {{0, 1, 0}, {20, 5, 1}});
    expectExactHere(p.program, arguments, parts);
  }
  // Forty rows, none of which may begin with another's index.
  Arguments many(p.program, {40}, random, {{-3}, {1}});
  expectExactHere(p.program, many, 7);
}

// By numbers of every type, with some that no row has: below 0, and behind the last row.
TEST_P(Types, GatheredRowsOfEveryType) {
  using enum DType;
  for (DType type : kTypes)
    for (DType numbers : kIntegers)
      for (bool isStrided : {false, true}) {
        ProgramBuilder p("gathered", isStrided ? 19 : 37);
        int x = p.gather("table", type, "numbers", numbers, isStrided), bias = p.load("bias", column, type);
        p.store("x", tile, type, x);
        p.store("y", tile, type, p.compute(Opcode::Max, x, bias, type));
        std::mt19937 random = freshRandom();
        Arguments arguments(p.program, {3, 5}, random, {{}, {}, {0, 0}, {300, 41}});
        expectExactHere(p.program, arguments, 2);
        Arguments apart(p.program, {3, 5}, random, {{1, 7}, {isStrided ? 1 : 50}}, {0, isStrided ? 20 : 1});
        for (int64_t edge : {int64_t(1) << 62, -(int64_t(1) << 62), int64_t(-1), Arguments::kSourceRows})
          apart.arrays[0].set(random() % 15, edge);
        expectExactHere(p.program, apart, 5);
      }
}

// A number that no column has is NaN, and the kernel says of the first row which it was; a pick that gives 0 says
// nothing.
TEST_P(Types, AColumnThatIsNotThereIsToldOfTheFirstRow) {
  for (bool isIndex : {true, false}) {
    ProgramBuilder p("picked", 37);
    int x = p.load("x", tile, DType::F32), n = p.load("n", row, DType::I64);
    p.store("y", row, DType::F32, p.pick(x, n, DType::F32, isIndex ? NAN : 0));
    std::mt19937 random = freshRandom();
    Arguments arguments(p.program, {40}, random);
    for (int64_t r = 0; r < 40; ++r)
      arguments.arrays[1].set(r, random() % 37);
    const HostKernel kernel(p.program, GetParam());
    EXPECT_LT(kernel.run(arguments, 3).row, 0);
    for (const auto& [at, number] : {std::pair<int64_t, int64_t>{29, -1}, {23, 37}, {31, int64_t(1) << 32}})
      arguments.arrays[1].set(at, number);
    const HostFault fault = kernel.run(arguments, 3);
    if (isIndex) {
      EXPECT_EQ(std::vector({fault.row, fault.number, fault.bound, fault.isColumn}),
                (std::vector<int64_t>{23, 37, 37, 1}));
      EXPECT_TRUE(std::isnan(arguments.arrays[2].get(29)));
    } else {
      EXPECT_LT(fault.row, 0);
      EXPECT_EQ(arguments.arrays[2].get(29), 0);
    }
    expectExactHere(p.program, arguments, 3);
  }
}

TEST_P(Types, ARowThatIsNotThereIsToldOfTheFirstRow) {
  ProgramBuilder p("gathered", 5);
  p.store("y", tile, DType::F32, p.gather("table", DType::F32, "numbers", DType::I64));
  std::mt19937 random = freshRandom();
  Arguments arguments(p.program, {40}, random);
  for (int64_t r = 0; r < 40; ++r)
    arguments.arrays[0].set(r, random() % Arguments::kSourceRows);
  const HostKernel kernel(p.program, GetParam());
  EXPECT_LT(kernel.run(arguments, 3).row, 0);
  arguments.arrays[0].set(30, -1);
  arguments.arrays[0].set(25, Arguments::kSourceRows);
  const HostFault fault = kernel.run(arguments, 3);
  EXPECT_EQ(std::vector({fault.row, fault.number, fault.bound, fault.isColumn}),
            (std::vector<int64_t>{25, Arguments::kSourceRows, Arguments::kSourceRows, 0}));
}

// A NaN anywhere is the result, and idle lanes of the last step are no elements.
TEST_P(Types, LargestAndSmallestOfARow) {
  for (int64_t columns : {1, 7, 16, 17, 64, 65, 130}) {
    ProgramBuilder p("extremes", columns);
    int x = p.load("x", tile, DType::F32);
    p.store("largest", row, DType::F32, p.reduce(Opcode::ReduceMax, x));
    p.store("smallest", row, DType::F32, p.reduce(Opcode::ReduceMin, x));
    p.store("sum", row, DType::F32, p.reduce(Opcode::ReduceSum, p.compute(Opcode::Relu, x)));
    std::mt19937 random = freshRandom();
    const int64_t rows = columns + 4;
    Arguments arguments(p.program, {rows}, random);
    Array& array = arguments.arrays[0];
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c) {
        Number value = -std::fabs(array.get(r * columns + c)) - 1;
        array.set(r * columns + c, r == columns       ? -value
                                   : r == columns + 1 ? -HUGE_VALL
                                   : r == columns + 2 ? HUGE_VALL
                                   : r == c           ? NAN
                                                      : value);
      }
    expectEqualsOracle(HostKernel(p.program, GetParam()), arguments);
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, Types, testing::ValuesIn(HostKernel::targets()),
                         [](const auto& info) { return info.param.substr(info.param.size() - 2); });

} // namespace
} // namespace cermet::test
