// The interpreter against numbers computed here: rounding against LLVM's own conversions, fused operations against
// their formulas in plain C++, and its refusals.
#include "ir/dialect/ElementTypes.h"
#include "mlir/IR/Builders.h"
#include "tests/unit/ir/GraphTest.h"
#include "llvm/ADT/APFloat.h"
#include <bit>
#include <cmath>
#include <cstring>

using namespace mlir;

namespace cermet::ir {
namespace {

class RoundingTest : public GraphTest {
protected:
  Builder types{&context};
};

TEST_F(RoundingTest, KnownBf16Values) {
  const std::pair<double, double> known[] = {
      {1, 1},
      {1 + 0x1p-8, 1},                      // a tie, to even
      {1 + 0x3p-8, 1 + 0x1p-6},             // a tie, to even upwards
      {1 + 0x1.000002p-8, 1 + 0x1p-7},      // barely above a tie
      {1 + 0x1.00000000001p-8, 1 + 0x1p-7}, // above it by less than an f32 shows: rounded once, not twice
      {3.14159265358979, 3.140625},
      {-65519.5, -65536},
      {0x1.fep127, 0x1.fep127}, // the largest
      {0x1.fefp127, 0x1.fep127},
      {0x1.ffp127, INFINITY}, // a tie beyond the largest
      {-1e300, -INFINITY},
      {0x1p-133, 0x1p-133}, // the smallest subnormal
      {0x1p-134, 0},        // a tie, to even
      {0x1.8p-134, 0x1p-133},
      {INFINITY, INFINITY},
  };
  for (auto [value, expected] : known)
    EXPECT_EQ(roundTo(types.getBF16Type(), value), expected) << std::hexfloat << value;
  EXPECT_TRUE(std::isnan(roundTo(types.getBF16Type(), NAN)));
  EXPECT_TRUE(std::signbit(roundTo(types.getBF16Type(), -0.0)));
  EXPECT_EQ(roundTo(types.getF16Type(), 65519.9), 65504);
  EXPECT_EQ(roundTo(types.getF16Type(), 65520), INFINITY);
  EXPECT_EQ(roundTo(types.getF16Type(), 0x1p-25), 0);
  EXPECT_EQ(roundTo(types.getF16Type(), 0x1.8p-25), 0x1p-24);
}

TEST_F(RoundingTest, AgreesWithLlvmOnRandomBits) {
  const std::pair<Type, const llvm::fltSemantics*> formats[] = {{types.getBF16Type(), &llvm::APFloat::BFloat()},
                                                                {types.getF16Type(), &llvm::APFloat::IEEEhalf()},
                                                                {types.getF32Type(), &llvm::APFloat::IEEEsingle()}};
  for (auto [type, semantics] : formats)
    for (int i = 0; i < 200000; ++i) {
      // An exponent in the format's neighbourhood, and often a mantissa near a tie.
      uint64_t bits = generator();
      if (i % 2)
        bits &= ~uint64_t(0) << (generator() % 52);
      uint64_t exponent = 1023 + int64_t(generator() % 320) - 160;
      double value = std::bit_cast<double>((bits & 0x800fffffffffffffull) | exponent << 52);
      llvm::APFloat expected(value);
      bool losesInfo = false;
      expected.convert(*semantics, llvm::APFloat::rmNearestTiesToEven, &losesInfo);
      expected.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &losesInfo);
      ASSERT_EQ(roundTo(type, value), expected.convertToDouble()) << std::hexfloat << value;
    }
}

// The numbers of an eight-bit format in order, from its definition; f8e5m2's infinity last, as the power of two that it
// stands in for.
std::vector<double> eightBitNumbers(int fraction, int bias, int count) {
  std::vector<double> numbers;
  for (int code = 0; code < count; ++code) {
    int exponent = code >> fraction, units = code % (1 << fraction);
    numbers.push_back(exponent == 0 ? units * std::exp2(1 - bias - fraction)
                                    : (units + (1 << fraction)) * std::exp2(exponent - bias - fraction));
  }
  return numbers;
}

double nearestOf(const std::vector<double>& numbers, double size) {
  size_t above = llvm::lower_bound(numbers, size) - numbers.begin();
  if (above == 0 || above == numbers.size())
    return above == 0 ? 0 : numbers.back();
  double toLower = size - numbers[above - 1], toUpper = numbers[above] - size;
  bool isUpper = toUpper < toLower || (toUpper == toLower && above % 2 == 0);
  return numbers[isUpper ? above : above - 1];
}

// Every bf16, its neighbours in f32, which lie beside every tie, and random bits.
TEST_F(RoundingTest, EightBitsAreTheNearestNumberOfTheFormat) {
  std::vector<uint32_t> bits;
  for (uint32_t high = 0; high < 0x10000; ++high)
    for (uint32_t low : {0u, 1u, 0xffffu})
      bits.push_back(high << 16 | low);
  for (int i = 0; i < 200000; ++i)
    bits.push_back(i % 2 ? generator() : uint32_t(generator() % (50u << 23)) + (100u << 23));
  const std::vector<double> e4m3 = eightBitNumbers(3, 7, 0x7f), e5m2 = eightBitNumbers(2, 15, 0x7d);
  ASSERT_EQ(e4m3.back(), 448);
  ASSERT_EQ(e5m2.back(), 65536);
  Type first = types.getType<Float8E4M3FNType>(), second = types.getType<Float8E5M2Type>();
  for (uint32_t pattern : bits) {
    double value = std::bit_cast<float>(pattern), have = roundTo(first, value), alsoHave = roundTo(second, value);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(have) && std::isnan(alsoHave));
      continue;
    }
    double want = nearestOf(e5m2, std::fabs(value));
    ASSERT_EQ(have, std::copysign(nearestOf(e4m3, std::fabs(value)), value)) << std::hexfloat << value;
    ASSERT_EQ(alsoHave, std::copysign(want == 65536 ? INFINITY : want, value)) << std::hexfloat << value;
    ASSERT_EQ(std::signbit(have), std::signbit(value)) << std::hexfloat << value;
  }
  // What f32 holds of it is rounded: just above a tie in float64 is a tie.
  EXPECT_EQ(roundTo(first, 1.0625 + 0x1p-40), 1);
}

TEST_F(RoundingTest, Integers) {
  EXPECT_EQ(roundTo(types.getI32Type(), -2.7), -2);
  EXPECT_EQ(roundTo(types.getIntegerType(8), 200), -56);
  EXPECT_EQ(roundTo(types.getIntegerType(8, false), -1), 255);
  EXPECT_EQ(roundTo(types.getI1Type(), 0.25), 1);
  EXPECT_EQ(roundTo(types.getI64Type(), 123456789012.0), 123456789012.0);
}

//===--- Fused operations --------------------------------------------------------------------------------------------//

// bf16 by bits, independent of roundTo.
float bf16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  bits += 0x7fff + (bits >> 16 & 1);
  return std::bit_cast<float>(bits & 0xffff0000u);
}

class FusedTest : public GraphTest {
protected:
  Array randomBf16(ArrayRef<int64_t> shape) {
    Array array = random(shape);
    for (double& value : array.data)
      value = bf16(value);
    return array;
  }
};

// Hugging Face's LlamaRMSNorm in bf16: statistics in f32, the normalised value rounded, then the weight.
TEST_F(FusedTest, RmsNormIsLlamas) {
  OwningOpRef<ModuleOp> graph = parse(R"(
    func.func @f(%x: tensor<?x37xbf16, #cermet.symbols<["r0"]>>, %w: tensor<37xbf16>) -> tensor<?x37xbf16, #cermet.symbols<["r0"]>> {
      %0 = cermet.rms_norm %x, %w {eps = 1.0e-5 : f64, round_before_weight} : tensor<?x37xbf16, #cermet.symbols<["r0"]>>, tensor<37xbf16> to tensor<?x37xbf16, #cermet.symbols<["r0"]>>
      return %0 : tensor<?x37xbf16, #cermet.symbols<["r0"]>>
    })");
  ASSERT_TRUE(graph);
  Array x = randomBf16({4, 37}), weight = randomBf16({37});
  std::vector<Array> outputs = run(*graph, {x, weight}, true), exact = run(*graph, {x, weight}, false);
  for (int row = 0; row < 4; ++row) {
    double sum = 0, exactSum = 0;
    for (int column = 0; column < 37; ++column) {
      float value = x.data[row * 37 + column];
      sum += value * value; // rounded to f32
      exactSum += double(value) * double(value);
    }
    float variance = float(sum) / 37.0f;
    float scale = 1 / std::sqrt(double(variance + 1e-5f));
    double exactScale = 1 / std::sqrt(exactSum / 37 + 1e-5);
    for (int column = 0; column < 37; ++column) {
      float normalised = bf16(float(x.data[row * 37 + column]) * scale);
      EXPECT_EQ(outputs[0].data[row * 37 + column], bf16(float(weight.data[column]) * normalised));
      double expected = x.data[row * 37 + column] * exactScale * weight.data[column];
      EXPECT_NEAR(exact[0].data[row * 37 + column], expected, 1e-14 * (1 + std::fabs(expected)));
    }
  }
}

// Gemma's: f32 up to the end, with 1 + weight; after a residual add that is rounded to bf16.
TEST_F(FusedTest, AddRmsNormWithOffset) {
  OwningOpRef<ModuleOp> graph = parse(R"(
    func.func @f(%x: tensor<3x8xbf16>, %r: tensor<3x8xbf16>, %w: tensor<8xbf16>) -> (tensor<3x8xbf16>, tensor<3x8xbf16>) {
      %0:2 = cermet.add_rms_norm %x, %r, %w {eps = 1.0e-6 : f64, weight_offset = 1.0 : f64} : tensor<3x8xbf16>, tensor<3x8xbf16>, tensor<8xbf16> to tensor<3x8xbf16>, tensor<3x8xbf16>
      return %0#0, %0#1 : tensor<3x8xbf16>, tensor<3x8xbf16>
    })");
  ASSERT_TRUE(graph);
  Array x = randomBf16({3, 8}), residual = randomBf16({3, 8}), weight = randomBf16({8});
  std::vector<Array> outputs = run(*graph, {x, residual, weight}, true);
  for (int row = 0; row < 3; ++row) {
    float sums[8];
    double squares = 0;
    for (int column = 0; column < 8; ++column) {
      sums[column] = bf16(float(x.data[row * 8 + column]) + float(residual.data[row * 8 + column]));
      squares += sums[column] * sums[column];
    }
    float scale = 1 / std::sqrt(double(float(squares) / 8.0f + 1e-6f));
    for (int column = 0; column < 8; ++column) {
      EXPECT_EQ(outputs[1].data[row * 8 + column], sums[column]);
      EXPECT_EQ(outputs[0].data[row * 8 + column], bf16((1.0f + float(weight.data[column])) * (sums[column] * scale)));
    }
  }
}

TEST_F(FusedTest, GluRoundsItsActivation) {
  OwningOpRef<ModuleOp> graph =
      parse("func.func @f(%g: tensor<64xbf16>, %u: tensor<64xbf16>) -> tensor<64xbf16> { %0 = "
            "cermet.glu %g, %u : tensor<64xbf16> return %0 : tensor<64xbf16> }");
  ASSERT_TRUE(graph);
  Array gate = randomBf16({64}), up = randomBf16({64});
  std::vector<Array> outputs = run(*graph, {gate, up}, true);
  for (int i = 0; i < 64; ++i) {
    float activation = bf16(gate.data[i] / (1 + std::exp(-gate.data[i])));
    EXPECT_EQ(outputs[0].data[i], bf16(activation * float(up.data[i])));
  }
}

//===--- Shapes and refusals -----------------------------------------------------------------------------------------//

TEST_F(GraphTest, BroadcastAndSums) {
  OwningOpRef<ModuleOp> graph = parse(R"(
    func.func @f(%x: tensor<2x1x3xf32>) -> (tensor<2x2x3xf32>, tensor<2x2x1xf32>, tensor<3xf32>) {
      %0 = cermet.broadcast %x : tensor<2x1x3xf32> to tensor<2x2x3xf32>
      %1 = cermet.reduce_sum %0 : tensor<2x2x3xf32> to tensor<2x2x1xf32>
      %2 = cermet.sum_rows %0 : tensor<2x2x3xf32> to tensor<3xf32>
      return %0, %1, %2 : tensor<2x2x3xf32>, tensor<2x2x1xf32>, tensor<3xf32>
    })");
  ASSERT_TRUE(graph);
  std::vector<Array> outputs = run(*graph, {Array{{2, 1, 3}, {1, 2, 3, 4, 5, 6}}}, true);
  EXPECT_EQ(outputs[0].data, (std::vector<double>{1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6}));
  EXPECT_EQ(outputs[1].data, (std::vector<double>{6, 6, 15, 15}));
  EXPECT_EQ(outputs[2].data, (std::vector<double>{10, 14, 18}));
}

TEST_F(GraphTest, MatmulForms) {
  OwningOpRef<ModuleOp> graph = parse(R"(
    func.func @f(%a: tensor<2x3xf32>, %b: tensor<3x2xf32>, %c: tensor<2x3xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>, tensor<3x3xf32>) {
      %0 = cermet.matmul %a, %b : tensor<2x3xf32>, tensor<3x2xf32> to tensor<2x2xf32>
      %1 = cermet.matmul %a, %c {transpose_rhs} : tensor<2x3xf32>, tensor<2x3xf32> to tensor<2x2xf32>
      %2 = cermet.matmul %a, %c {transpose_lhs} : tensor<2x3xf32>, tensor<2x3xf32> to tensor<3x3xf32>
      return %0, %1, %2 : tensor<2x2xf32>, tensor<2x2xf32>, tensor<3x3xf32>
    })");
  ASSERT_TRUE(graph);
  Array a{{2, 3}, {1, 2, 3, 4, 5, 6}}, b{{3, 2}, {1, 0, 0, 1, 1, 1}}, c{{2, 3}, {1, 0, 2, 0, 1, 0}};
  std::vector<Array> outputs = run(*graph, {a, b, c}, true);
  EXPECT_EQ(outputs[0].data, (std::vector<double>{4, 5, 10, 11}));
  EXPECT_EQ(outputs[1].data, (std::vector<double>{7, 2, 16, 5}));
  EXPECT_EQ(outputs[2].data, (std::vector<double>{1, 4, 2, 2, 5, 4, 3, 6, 6}));
}

TEST_F(GraphTest, InterpreterRefusals) {
  OwningOpRef<ModuleOp> graph = parse(R"(
    func.func @f(%x: tensor<?x4xf32, #cermet.symbols<["r0"]>>, %y: tensor<?x4xf32, #cermet.symbols<["r0"]>>) -> tensor<?x4xf32, #cermet.symbols<["r0"]>> {
      %0 = cermet.add %x, %y : tensor<?x4xf32, #cermet.symbols<["r0"]>>
      %1 = cermet.opaque "aten.erf"(%0) : (tensor<?x4xf32, #cermet.symbols<["r0"]>>) -> tensor<?x4xf32, #cermet.symbols<["r0"]>>
      return %1 : tensor<?x4xf32, #cermet.symbols<["r0"]>>
    })");
  ASSERT_TRUE(graph);
  auto errorOf = [&](std::vector<Array> inputs) {
    std::vector<Array> outputs;
    std::string error;
    EXPECT_FALSE(interpret(*graph, inputs, true, outputs, error));
    return error;
  };
  Array x = random({2, 4});
  auto expect = [&](std::vector<Array> inputs, const std::string& message) {
    std::string error = errorOf(std::move(inputs));
    EXPECT_NE(error.find(message), std::string::npos) << error;
  };
  expect({x}, "given 1 inputs, expected 2");
  expect({x, random({8})}, "input 1 (y) has rank 1, expected 2");
  expect({x, random({2, 5})}, "input 1 (y) has size 5 in dimension 1, expected 4");
  expect({x, random({3, 4})}, "input 1 (y) has size 3 in dimension 0, expected 2 (r0 of an earlier input)");
  expect({x, Array{{2, 4}, {1, 2}}}, "input 1 (y) has 2 numbers, expected 8 (its shape's)");
  expect({x, x}, "'cermet.opaque' op \"aten.erf\" cannot be interpreted");
}

TEST_F(GraphTest, NoRowsAtAll) {
  OwningOpRef<ModuleOp> graph = parse(R"(
    func.func @f(%x: tensor<?x4xf32, #cermet.symbols<["r0"]>>) -> (tensor<?x1xf32, #cermet.symbols<["r0"]>>, tensor<4xf32>) {
      %0 = cermet.reduce_sum %x : tensor<?x4xf32, #cermet.symbols<["r0"]>> to tensor<?x1xf32, #cermet.symbols<["r0"]>>
      %1 = cermet.sum_rows %x : tensor<?x4xf32, #cermet.symbols<["r0"]>> to tensor<4xf32>
      return %0, %1 : tensor<?x1xf32, #cermet.symbols<["r0"]>>, tensor<4xf32>
    })");
  ASSERT_TRUE(graph);
  std::vector<Array> outputs = run(*graph, {Array{{0, 4}, {}}}, true);
  EXPECT_TRUE(outputs[0].data.empty());
  EXPECT_EQ(outputs[1].data, (std::vector<double>{0, 0, 0, 0}));
}

} // namespace
} // namespace cermet::ir
