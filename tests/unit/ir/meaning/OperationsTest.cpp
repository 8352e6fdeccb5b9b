// Each small operation of the interpreter against the standard library, on random numbers with infinities, NaNs and
// zeros of both signs among them, in float64 without rounding.
#include "ir/dialect/Shape.h"
#include "runtime/abi/Limits.h"
#include "runtime/abi/Random.h"
#include "tests/unit/ir/GraphTest.h"
#include <cmath>
#include <functional>

using namespace mlir;

namespace cermet::ir {
namespace {

constexpr double inf = INFINITY;

class OperationsTest : public GraphTest {
protected:
  // Uniform numbers, one in four of them special.
  Array special(ArrayRef<int64_t> shape, double lowest = -3, double highest = 3) {
    const double values[] = {0.0, -0.0, 1, -1, inf, -inf, NAN, 0.5};
    Array array = random(shape, lowest, highest);
    for (double& value : array.data)
      if (generator() % 4 == 0)
        value = values[generator() % std::size(values)];
    return array;
  }
  Array integers(ArrayRef<int64_t> shape, int64_t lowest, int64_t highest) {
    Array array = random(shape);
    for (double& value : array.data)
      value = std::uniform_int_distribution<int64_t>(lowest, highest)(generator);
    return array;
  }
  // One function of the body's one value %0.
  Array evaluate(const std::string& arguments, const std::string& op, const std::string& result, ArrayRef<Array> inputs,
                 bool honourCasts = false) {
    OwningOpRef<ModuleOp> graph = parse("func.func @f(" + arguments + ") -> " + result + " { %0 = cermet." + op +
                                        " return %0 : " + result + " }");
    return graph ? run(*graph, inputs, honourCasts)[0] : Array();
  }
  void expectUnary(const std::string& op, const std::function<double(double)>& function) {
    const std::string type = "tensor<?x37xf64, #cermet.symbols<[\"n\"]>>";
    Array x = special({7, 37}), y = evaluate("%x: " + type, op + " %x : " + type, type, x);
    expectEach(op, y, [&](size_t i) { return function(x.data[i]); });
  }
  void expectBinary(const std::string& op, const std::function<double(double, double)>& function) {
    const std::string type = "tensor<?x37xf64, #cermet.symbols<[\"n\"]>>";
    Array a = special({7, 37}), b = special({7, 37});
    for (size_t i = 0; i < a.data.size(); i += 5)
      b.data[i] = a.data[i];
    Array y = evaluate("%a: " + type + ", %b: " + type, op + " %a, %b : " + type, type, {a, b});
    expectEach(op, y, [&](size_t i) { return function(a.data[i], b.data[i]); });
  }
  // To a few units of float64's last place: the same formula may be contracted differently.
  void expectEach(const std::string& op, const Array& given, const std::function<double(size_t)>& expected) {
    for (size_t i = 0; i < given.data.size(); ++i) {
      double value = expected(i);
      if (std::isfinite(value))
        EXPECT_NEAR(given.data[i], value, 4e-15 * std::fabs(value)) << op << ", element " << i;
      else if (std::isnan(value))
        EXPECT_TRUE(std::isnan(given.data[i])) << op << ", element " << i << ": " << given.data[i];
      else
        EXPECT_EQ(given.data[i], value) << op << ", element " << i;
    }
  }
};

TEST_F(OperationsTest, Arithmetic) {
  expectBinary("add", [](double a, double b) { return a + b; });
  expectBinary("sub", [](double a, double b) { return a - b; });
  expectBinary("mul", [](double a, double b) { return a * b; });
  expectBinary("div", [](double a, double b) { return a / b; });
  expectBinary("pow", [](double a, double b) { return std::pow(a, b); });
  auto withNaN = [](auto choose) {
    return [choose](double a, double b) { return std::isnan(a) || std::isnan(b) ? NAN : choose(a, b); };
  };
  expectBinary("max", withNaN([](double a, double b) { return std::fmax(a, b); }));
  expectBinary("min", withNaN([](double a, double b) { return std::fmin(a, b); }));
}

TEST_F(OperationsTest, Functions) {
  expectUnary("neg", [](double x) { return -x; });
  expectUnary("abs", [](double x) { return std::fabs(x); });
  expectUnary("exp", [](double x) { return std::exp(x); });
  expectUnary("log", [](double x) { return std::log(x); });
  expectUnary("sqrt", [](double x) { return std::sqrt(x); });
  expectUnary("rsqrt", [](double x) { return 1 / std::sqrt(x); });
  expectUnary("tanh", [](double x) { return std::tanh(x); });
  expectUnary("erf", [](double x) { return std::erf(x); });
  expectUnary("relu", [](double x) { return std::isnan(x) ? NAN : std::fmax(x, 0); });
  expectUnary("sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); });
  expectUnary("silu", [](double x) { return x / (1 + std::exp(-x)); });
}

// Of e^-40 nothing is left in 1 + e^-40, and e^1000 is no number.
TEST_F(OperationsTest, Softplus) {
  Array x{{5}, {-40, -1, 0, 40, 1000}};
  Array given = evaluate("%x: tensor<5xf64>", "softplus %x : tensor<5xf64>", "tensor<5xf64>", x);
  const double expected[] = {4.248354255291589e-18, 0.31326168751822284, M_LN2, 40, 1000};
  for (int i = 0; i < 5; ++i)
    EXPECT_NEAR(given.data[i], expected[i], 1e-15 * expected[i]) << x.data[i];
}

// gelu far below 0 keeps its digits, and both are what PyTorch documents.
TEST_F(OperationsTest, Gelu) {
  Array x{{6}, {-30, -8, -1, 0, 1, 8}};
  Array exact = evaluate("%x: tensor<6xf64>", "gelu %x : tensor<6xf64>", "tensor<6xf64>", x);
  Array approximate = evaluate("%x: tensor<6xf64>", "gelu_tanh %x : tensor<6xf64>", "tensor<6xf64>", x);
  // x times the normal distribution, from its tables.
  const double expected[] = {-30 * 4.906713927148187e-198, -8 * 6.220960574271786e-16, -0.15865525393145705, 0,
                             0.8413447460685429,           8 * 0.9999999999999994};
  for (int i = 0; i < 6; ++i)
    EXPECT_NEAR(exact.data[i], expected[i], 1e-12 * std::fabs(expected[i])) << x.data[i];
  EXPECT_NEAR(approximate.data[2], -0.15880800939172324, 1e-15);
  EXPECT_NEAR(approximate.data[4], 0.8411919906082768, 1e-15);
  EXPECT_NEAR(approximate.data[5], 8, 1e-13);
  EXPECT_NEAR(approximate.data[0], 0, 1e-13);
}

TEST_F(OperationsTest, Comparisons) {
  const std::string type = "tensor<5x41xf64>", condition = "tensor<5x41xi1>";
  const std::pair<const char*, bool (*)(double, double)> predicates[] = {
      {"eq", [](double a, double b) { return a == b; }}, {"ne", [](double a, double b) { return a != b; }},
      {"lt", [](double a, double b) { return a < b; }},  {"le", [](double a, double b) { return a <= b; }},
      {"gt", [](double a, double b) { return a > b; }},  {"ge", [](double a, double b) { return a >= b; }}};
  for (auto [name, holds] : predicates) {
    Array a = special({5, 41}), b = special({5, 41});
    for (size_t i = 0; i < a.data.size(); i += 3)
      b.data[i] = a.data[i];
    Array given =
        evaluate("%a: " + type + ", %b: " + type,
                 "compare \"" + std::string(name) + "\", %a, %b : " + type + " to " + condition, condition, {a, b});
    for (size_t i = 0; i < a.data.size(); ++i)
      EXPECT_EQ(given.data[i], holds(a.data[i], b.data[i])) << name << " of " << a.data[i] << " and " << b.data[i];
  }
}

TEST_F(OperationsTest, Select) {
  Array c = integers({43}, 0, 1), a = special({43}), b = special({43});
  Array given = evaluate("%c: tensor<43xi1>, %a: tensor<43xf32>, %b: tensor<43xf32>",
                         "select %c, %a, %b : tensor<43xi1>, tensor<43xf32>", "tensor<43xf32>", {c, a, b});
  Array expected = a;
  for (int i = 0; i < 43; ++i)
    expected.data[i] = c.data[i] ? a.data[i] : b.data[i];
  EXPECT_TRUE(sameBits(given, expected));
}

//===--- Integers ----------------------------------------------------------------------------------------------------//

// Wrapped as C++ wraps the unsigned type of that width.
template <typename T> struct Wrapping {
  using Unsigned = std::make_unsigned_t<T>;
  static T add(T a, T b) { return T(Unsigned(a) + Unsigned(b)); }
  static T sub(T a, T b) { return T(Unsigned(a) - Unsigned(b)); }
  static T mul(T a, T b) { return T(uint64_t(int64_t(a)) * uint64_t(int64_t(b))); }
  static T max(T a, T b) { return std::max(a, b); }
  static T min(T a, T b) { return std::min(a, b); }
  static T neg(T a) { return T(0 - Unsigned(a)); }
  static T abs(T a) { return a < T(0) ? neg(a) : a; }
};

class IntegersTest : public OperationsTest {
protected:
  template <typename T> void expectAll(const std::string& element) {
    const std::string type = "tensor<97x" + element + ">";
    constexpr T lowest = std::numeric_limits<T>::min(), highest = std::numeric_limits<T>::max();
    Array a = integers({97}, lowest, highest), b = integers({97}, lowest, highest);
    a.data[0] = lowest, b.data[0] = highest, a.data[1] = b.data[1] = highest, a.data[2] = b.data[2] = lowest;
    using W = Wrapping<T>;
    const std::pair<const char*, T (*)(T, T)> binaries[] = {
        {"add", W::add}, {"sub", W::sub}, {"mul", W::mul}, {"max", W::max}, {"min", W::min}};
    for (auto [op, function] : binaries) {
      Array given = evaluate("%a: " + type + ", %b: " + type, std::string(op) + " %a, %b : " + type, type, {a, b});
      for (size_t i = 0; i < 97; ++i)
        EXPECT_EQ(given.data[i], function(T(a.data[i]), T(b.data[i])))
            << op << " of " << element << " " << a.data[i] << " and " << b.data[i];
    }
    const std::pair<const char*, T (*)(T)> unaries[] = {{"neg", W::neg}, {"abs", W::abs}};
    for (auto [op, function] : unaries) {
      Array given = evaluate("%a: " + type, std::string(op) + " %a : " + type, type, a);
      for (size_t i = 0; i < 97; ++i)
        EXPECT_EQ(given.data[i], function(T(a.data[i]))) << op << " of " << element << " " << a.data[i];
    }
  }
};

TEST_F(IntegersTest, Wrap) {
  expectAll<int8_t>("i8");
  expectAll<uint8_t>("ui8");
  expectAll<int16_t>("i16");
  expectAll<int32_t>("i32");
}

TEST_F(IntegersTest, HaveNoNegativeZero) {
  Array zero = evaluate("%a: tensor<1xi32>", "neg %a : tensor<1xi32>", "tensor<1xi32>", Array{{1}, {0}});
  EXPECT_FALSE(std::signbit(zero.data[0]));
  zero = evaluate("%a: tensor<1xf32>", "cast %a : tensor<1xf32> to tensor<1xi64>", "tensor<1xi64>", Array{{1}, {-0.5}});
  EXPECT_FALSE(std::signbit(zero.data[0]));
}

TEST_F(IntegersTest, MaxAndMinOfI1AreOrAndAnd) {
  Array a{{4}, {0, 0, 1, 1}}, b{{4}, {0, 1, 0, 1}};
  const std::string type = "tensor<4xi1>", arguments = "%a: " + type + ", %b: " + type;
  EXPECT_EQ(evaluate(arguments, "max %a, %b : " + type, type, {a, b}).data, (std::vector<double>{0, 1, 1, 1}));
  EXPECT_EQ(evaluate(arguments, "min %a, %b : " + type, type, {a, b}).data, (std::vector<double>{0, 0, 0, 1}));
}

//===--- Reductions --------------------------------------------------------------------------------------------------//

TEST_F(OperationsTest, ExtremesOfRows) {
  const std::string from = "tensor<?x13xf64, #cermet.symbols<[\"n\"]>>",
                    to = "tensor<?x1xf64, #cermet.symbols<[\"n\"]>>";
  Array x = random({5, 13}, -9, -1);
  x.data[13] = NAN, x.data[2 * 13 + 12] = NAN, x.data[3 * 13 + 4] = inf, x.data[3 * 13 + 5] = -inf;
  Array largest = evaluate("%x: " + from, "reduce_max %x : " + from + " to " + to, to, x);
  Array smallest = evaluate("%x: " + from, "reduce_min %x : " + from + " to " + to, to, x);
  for (int row : {0, 3, 4}) {
    EXPECT_EQ(largest.data[row], *std::max_element(&x.data[row * 13], &x.data[row * 13] + 13)) << row;
    EXPECT_EQ(smallest.data[row], *std::min_element(&x.data[row * 13], &x.data[row * 13] + 13)) << row;
  }
  for (int row : {1, 2}) {
    EXPECT_TRUE(std::isnan(largest.data[row])) << row;
    EXPECT_TRUE(std::isnan(smallest.data[row])) << row;
  }
}

TEST_F(OperationsTest, CumulativeSums) {
  const std::string type = "tensor<?x4xf64, #cermet.symbols<[\"n\"]>>";
  Array x = random({2, 4});
  x.data = {1, -2, 4, 8, 16, NAN, inf, -inf};
  Array from = evaluate("%x: " + type, "cumsum %x : " + type, type, x);
  Array to = evaluate("%x: " + type, "cumsum %x {reverse} : " + type, type, x);
  EXPECT_EQ(std::vector<double>(from.data.begin(), from.data.begin() + 5), (std::vector<double>{1, -1, 3, 11, 16}));
  EXPECT_EQ(std::vector<double>(to.data.begin(), to.data.begin() + 4), (std::vector<double>{11, 10, 12, 8}));
  for (int at : {5, 6, 7})
    EXPECT_TRUE(std::isnan(from.data[at])) << at;
  EXPECT_TRUE(std::isnan(to.data[6]));
  EXPECT_EQ(to.data[7], -inf);
}

TEST_F(OperationsTest, CumulativeSumsOfIntegersWrap) {
  Array x = random({1, 3});
  x.data = {100, 100, 100};
  EXPECT_EQ(evaluate("%x: tensor<1x3xi8>", "cumsum %x : tensor<1x3xi8>", "tensor<1x3xi8>", x).data,
            (std::vector<double>{100, -56, 44}));
  EXPECT_EQ(evaluate("%x: tensor<1x3xui8>", "cumsum %x : tensor<1x3xui8>", "tensor<1x3xui8>", x).data,
            (std::vector<double>{100, 200, 44}));
}

//===--- Shapes ------------------------------------------------------------------------------------------------------//

TEST_F(OperationsTest, Transpose) {
  Array x = random({3, 5, 2});
  Array given = evaluate("%x: tensor<3x?x2xf64, #cermet.symbols<[\"n\"]>>",
                         "transpose %x [2, 0, 1] : tensor<3x?x2xf64, #cermet.symbols<[\"n\"]>> to tensor<2x3x?xf64, "
                         "#cermet.symbols<[\"n\"]>>",
                         "tensor<2x3x?xf64, #cermet.symbols<[\"n\"]>>", x);
  ASSERT_EQ(given.shape, (SmallVector<int64_t>{2, 3, 5}));
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 5; ++j)
      for (int k = 0; k < 2; ++k)
        EXPECT_EQ(given.data[(k * 3 + i) * 5 + j], x.data[(i * 5 + j) * 2 + k]);
}

TEST_F(OperationsTest, Slice) {
  Array x = random({5, 7});
  Array given =
      evaluate("%x: tensor<5x7xf64>", "slice %x [1, 2] : tensor<5x7xf64> to tensor<3x4xf64>", "tensor<3x4xf64>", x);
  ASSERT_EQ(given.data.size(), 12u);
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 4; ++j)
      EXPECT_EQ(given.data[i * 4 + j], x.data[(i + 1) * 7 + j + 2]);
}

// What the types leave open is compared when run.
TEST_F(OperationsTest, SliceOfSymbols) {
  const std::string a = "tensor<?xf64, #cermet.symbols<[\"a\"]>>", b = "tensor<?xf64, #cermet.symbols<[\"b\"]>>";
  OwningOpRef<ModuleOp> graph =
      parse("func.func @f(%x: " + a + ", %y: " + b + ") -> (" + b + ", tensor<2xf64>) { " +
            "%0 = cermet.slice %x [2] : " + a + " to " + b + " %1 = cermet.slice %x [1] : " + a +
            " to tensor<2xf64> return %0, %1 : " + b + ", tensor<2xf64> }");
  ASSERT_TRUE(graph);
  Array x{{5}, {1, 2, 3, 4, 5}};
  std::vector<Array> outputs = run(*graph, {x, random({3})}, true);
  EXPECT_EQ(outputs[0].data, (std::vector<double>{3, 4, 5}));
  EXPECT_EQ(outputs[1].data, (std::vector<double>{2, 3}));
  std::string error;
  EXPECT_FALSE(interpret(*graph, {x, random({4})}, true, outputs, error));
  EXPECT_NE(
      error.find("'cermet.slice' op operand has size 5 in dimension 0 in this run, expected one that holds 4 from "
                 "2 on"),
      std::string::npos)
      << error;
  EXPECT_FALSE(interpret(*graph, {Array{{2}, {1, 2}}, Array{{0}, {}}}, true, outputs, error));
  EXPECT_NE(error.find("operand has size 2 in dimension 0 in this run, expected one that holds 2 from 1 on"),
            std::string::npos)
      << error;
}

TEST_F(OperationsTest, Concat) {
  auto type = [](int columns) { return "tensor<?x" + std::to_string(columns) + "x2xf64, #cermet.symbols<[\"n\"]>>"; };
  Array a = random({3, 1, 2}), b = random({3, 4, 2});
  Array given =
      evaluate("%a: " + type(1) + ", %b: " + type(4),
               "concat %a, %b, %a {dim = 1 : i64} : " + type(1) + ", " + type(4) + ", " + type(1) + " to " + type(6),
               type(6), {a, b});
  ASSERT_EQ(given.shape, (SmallVector<int64_t>{3, 6, 2}));
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 6; ++j)
      for (int k = 0; k < 2; ++k)
        EXPECT_EQ(given.data[(i * 6 + j) * 2 + k],
                  j == 0 || j == 5 ? a.data[i * 2 + k] : b.data[(i * 4 + j - 1) * 2 + k]);
}

// Numbers outside of the table are told by NaN, or 0 where there is none.
TEST_F(OperationsTest, Gather) {
  Array table = random({4, 3}), index{{2, 3}, {3, 0, -1, 4, 1, 1}};
  Array given = evaluate("%x: tensor<4x3xf64>, %i: tensor<2x3xi32>",
                         "gather %x, %i : tensor<4x3xf64>, tensor<2x3xi32> to tensor<2x3x3xf64>", "tensor<2x3x3xf64>",
                         {table, index});
  for (int i = 0; i < 6; ++i)
    for (int column = 0; column < 3; ++column) {
      double value = given.data[i * 3 + column];
      if (i == 2 || i == 3)
        EXPECT_TRUE(std::isnan(value)) << i;
      else
        EXPECT_EQ(value, table.data[int(index.data[i]) * 3 + column]) << i;
    }
  given =
      evaluate("%x: tensor<2x1xi64>, %i: tensor<i8>", "gather %x, %i : tensor<2x1xi64>, tensor<i8> to tensor<1xi64>",
               "tensor<1xi64>", {Array{{2, 1}, {7, 8}}, Array{{}, {2}}});
  EXPECT_EQ(given.data, std::vector<double>{0});
}

// Bounds beyond the list are its own; a bag of nothing is 0, one with a number of no row NaN.
TEST_F(OperationsTest, EmbeddingBag) {
  Array table = random({4, 3}), index{{6}, {3, 0, 1, 1, 4, 2}};
  Array begins{{5}, {0, 3, 2, -7, 4}}, ends{{5}, {2, 3, 4, 1, 60}};
  Array given = evaluate("%x: tensor<4x3xf64>, %i: tensor<6xi32>, %b: tensor<5xi64>, %e: tensor<5xi64>",
                         "embedding_bag %x, %i, %b, %e : tensor<4x3xf64>, tensor<6xi32>, tensor<5xi64> to "
                         "tensor<5x3xf64>",
                         "tensor<5x3xf64>", {table, index, begins, ends});
  const auto row = [&](int number, int column) { return table.data[number * 3 + column]; };
  for (int column = 0; column < 3; ++column) {
    EXPECT_EQ(given.data[column], row(3, column) + row(0, column));
    EXPECT_EQ(given.data[3 + column], 0);
    EXPECT_EQ(given.data[6 + column], 2 * row(1, column));
    EXPECT_EQ(given.data[9 + column], row(3, column));
    EXPECT_TRUE(std::isnan(given.data[12 + column]));
  }
}

// Of parts that are whole the sums are taken, whatever they are.
TEST_F(OperationsTest, EmbeddingBagWithSumsOfParts) {
  const int part = kBagPart, count = 3 * part;
  Array table = random({4, 2}), index{{count}, {}}, sums{{2, 2}, {100, 200, 300, 400}};
  for (int i = 0; i < count; ++i)
    index.data.push_back(i % 4);
  const double begins[] = {0, 1, 0, double(part), double(part - 1)};
  const double ends[] = {double(part), double(2 * part), double(part - 1), double(count), double(2 * part + 1)};
  Array given = evaluate("%x: tensor<4x2xf64>, %i: tensor<" + std::to_string(count) +
                             "xi32>, %b: tensor<5xi64>, %e: tensor<5xi64>, %s: tensor<2x2xf32>",
                         "embedding_bag %x, %i, %b, %e sums %s : tensor<4x2xf64>, tensor<" + std::to_string(count) +
                             "xi32>, tensor<5xi64> sums tensor<2x2xf32> to tensor<5x2xf64>",
                         "tensor<5x2xf64>", {table, index, {{5}, {begins, begins + 5}}, {{5}, {ends, ends + 5}}, sums});
  for (int bag = 0; bag < 5; ++bag)
    for (int column = 0; column < 2; ++column) {
      double expected = 0;
      for (int i = int(begins[bag]); i < int(ends[bag]);)
        if (i % part == 0 && i + part <= int(ends[bag]) && i / part < 2) {
          expected += sums.data[i / part * 2 + column];
          i += part;
        } else {
          expected += table.data[int(index.data[i++]) * 2 + column];
        }
      EXPECT_DOUBLE_EQ(given.data[bag * 2 + column], expected) << bag;
    }
}

// A row that has no column of its number gives NaN.
TEST_F(OperationsTest, Pick) {
  Array rows = random({2, 3, 4}), index{{2, 3, 1}, {3, 0, -1, 4, 1, 1e12}};
  const std::string to = "tensor<2x3x1xf64>";
  Array given = evaluate("%x: tensor<2x3x4xf64>, %i: tensor<2x3x1xi64>",
                         "pick %x, %i : tensor<2x3x4xf64>, tensor<2x3x1xi64> to " + to, to, {rows, index});
  ASSERT_EQ(given.data.size(), 6u);
  for (int i = 0; i < 6; ++i)
    if (index.data[i] >= 0 && index.data[i] < 4)
      EXPECT_EQ(given.data[i], rows.data[i * 4 + int(index.data[i])]) << i;
    else
      EXPECT_TRUE(std::isnan(given.data[i])) << i;
}

TEST_F(OperationsTest, Iota) {
  const std::string type = "tensor<2x?x3xf64, #cermet.symbols<[\"n\"]>>";
  Array given = evaluate("%x: " + type, "iota 1 : " + type, type, random({2, 5, 3}));
  for (int i = 0; i < 30; ++i)
    EXPECT_EQ(given.data[i], i / 3 % 5);
  given = evaluate("", "iota 0 : tensor<300xui8>", "tensor<300xui8>", {});
  EXPECT_EQ(given.data[299], 299 - 256);
}

TEST_F(OperationsTest, IotaWithAPeriod) {
  Array given = evaluate("", "iota 1 {period = 2 : i64} : tensor<2x5xi64>", "tensor<2x5xi64>", {});
  EXPECT_EQ(given.data, (std::vector<double>{0, 1, 0, 1, 0, 0, 1, 0, 1, 0}));
}

// A key is an output of splitmix64, whose first five of the seed 1234567 are widely known.
TEST(Random, KeysAreSplitmix64s) {
  constexpr uint64_t known[] = {6457827717110365317u, 3203168211198807973u, 9817491932198370423u, 4593380528125082431u,
                                16408922859458223821u};
  for (uint64_t row = 0; row < 5; ++row)
    EXPECT_EQ(randomKey(1234567, row), known[row]) << row;
}

// Without a key a column is mixed as by lowbias32.
TEST(Random, BitsAreLowbias32s) {
  auto mixed = [](uint32_t x) {
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
  };
  for (uint32_t column : {0u, 1u, 2u, 0x7fffffffu, 0xffffffffu})
    EXPECT_EQ(randomBits(0, column), mixed(column)) << column;
  EXPECT_EQ(randomBits(5, 7), mixed(12)); // the low half moves the columns
  EXPECT_NE(randomBits(uint64_t(1) << 32, 7), mixed(7));
}

TEST_F(OperationsTest, Random) {
  const std::string type = "tensor<2x?x3xi64, #cermet.symbols<[\"n\"]>>";
  Array given = evaluate("%x: " + type + ", %s: tensor<i64>", "random %s : tensor<i64> to " + type, type,
                         {random({2, 5, 3}), Array{{}, {-7}}});
  ASSERT_EQ(given.data.size(), 30u);
  for (int i = 0; i < 30; ++i)
    EXPECT_EQ(given.data[i], randomBits(randomKey(uint64_t(-7), i / 3), i % 3)) << i;
}

TEST_F(OperationsTest, Columns) {
  Array given = evaluate("%x: tensor<2x3xf64>", "columns %x [2, 0, 0, 1] : tensor<2x3xf64> to tensor<2x4xf64>",
                         "tensor<2x4xf64>", Array{{2, 3}, {1, 2, 3, 4, 5, 6}});
  EXPECT_EQ(given.data, (std::vector<double>{3, 1, 1, 2, 6, 4, 4, 5}));
}

// A run with no rows at all.
TEST_F(OperationsTest, NothingToMove) {
  const std::string type = "tensor<?x2xf64, #cermet.symbols<[\"n\"]>>";
  Array nothing{{0, 2}, {}};
  EXPECT_TRUE(evaluate("%x: " + type, "slice %x [0, 1] : " + type + " to tensor<?x1xf64, #cermet.symbols<[\"n\"]>>",
                       "tensor<?x1xf64, #cermet.symbols<[\"n\"]>>", nothing)
                  .data.empty());
  EXPECT_TRUE(evaluate("%x: " + type, "iota 1 : " + type, type, nothing).data.empty());
  EXPECT_TRUE(evaluate("%x: " + type,
                       "concat %x, %x {dim = 1 : i64} : " + type + ", " + type +
                           " to tensor<?x4xf64, #cermet.symbols<[\"n\"]>>",
                       "tensor<?x4xf64, #cermet.symbols<[\"n\"]>>", nothing)
                  .data.empty());
  EXPECT_TRUE(evaluate("%x: " + type, "transpose %x [1, 0] : " + type + " to tensor<2x?xf64, #cermet.symbols<[\"n\"]>>",
                       "tensor<2x?xf64, #cermet.symbols<[\"n\"]>>", nothing)
                  .data.empty());
  Array row = evaluate("%x: tensor<2x?xf64, #cermet.symbols<[\"n\"]>>",
                       "reduce_max %x : tensor<2x?xf64, #cermet.symbols<[\"n\"]>> to tensor<2x1xf64>",
                       "tensor<2x1xf64>", Array{{2, 0}, {}});
  EXPECT_EQ(row.data, (std::vector<double>{-inf, -inf}));
}

} // namespace
} // namespace cermet::ir
