// Single operations over their whole range, on every level that this machine runs.
#include "tests/unit/compiler/host/HostKernel.h"
#include "tests/unit/compiler/host/Programs.h"
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>

namespace cermet::test {
namespace {

constexpr int64_t kColumns = 1003; // whole steps and a tail

class Numbers : public testing::TestWithParam<std::string> {
protected:
  // y = opcode(x) on arrays that hold the given bits.
  static Arguments apply(const RowProgram& program, const std::vector<uint32_t>& bits) {
    std::mt19937 random;
    int64_t rows = (static_cast<int64_t>(bits.size()) + kColumns - 1) / kColumns;
    Arguments arguments(program, {rows}, random);
    int size = byteSize(arguments.arrays[0].type());
    for (size_t i = 0; i < bits.size(); ++i)
      std::memcpy(arguments.arrays[0].base() + i * size, &bits[i], size);
    HostKernel(program, GetParam()).run(arguments);
    return arguments;
  }

  static std::vector<uint32_t> everyNth(uint32_t step, uint32_t start) {
    std::vector<uint32_t> bits;
    for (uint64_t at = start % step; at <= std::numeric_limits<uint32_t>::max(); at += step)
      bits.push_back(static_cast<uint32_t>(at));
    for (float special :
         {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 88.7228317f, 88.7228394f, -103.972076f, -103.972084f, -87.3365479f,
          65504.0f, 65519.996f, 65520.0f, 65536.0f, 0x1p-24f, 0x1p-25f, 0x1.8p-25f, 0x1p-14f})
      std::memcpy(&bits.emplace_back(), &special, 4);
    for (uint32_t nan : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7f808000u, 0x7f7fffffu, 0x00000001u})
      bits.push_back(nan);
    return bits;
  }

  // The largest distance of y to `truth(x)` in units in the last place, less `slack` times x.
  static double largestError(Opcode opcode, double (*truth)(double), double slack = 0) {
    RowProgram program = unary(kColumns, opcode, DType::F32, DType::F32);
    std::vector<uint32_t> bits = everyNth(1 << 10, freshRandom()());
    Arguments arguments = apply(program, bits);
    double largest = 0, worst = 0;
    for (size_t i = 0; i < bits.size(); ++i) {
      double x = arguments.arrays[0].get(i), have = arguments.arrays[1].get(i), want = truth(x);
      double rounded = nearest(want, DType::F32);
      if (std::isnan(have) && std::isnan(want))
        continue;
      EXPECT_EQ(std::signbit(have), std::signbit(want)) << name(opcode) << " of " << x << " is " << have;
      if (have == rounded)
        continue;
      if (std::isinf(have) && std::abs(want) > 0x1.fffffcp127)
        continue; // one step from the largest number to infinity
      double error = (std::abs(have - want) - slack * std::abs(x)) / unitInLastPlace(rounded, DType::F32);
      if (!(error <= largest)) {
        largest = std::isnan(error) ? HUGE_VAL : error;
        worst = x;
      }
    }
    std::cout << name(opcode) << ": at most " << largest << " ulp, at " << worst << "\n";
    return largest;
  }
};

TEST_P(Numbers, ExpIsWithinOneUnit) {
  EXPECT_LE(largestError(Opcode::Exp, [](double x) { return std::exp(x); }), 1.0);
}

TEST_P(Numbers, SigmoidKeepsBothTails) {
  EXPECT_LE(largestError(Opcode::Sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }), 3.0);
}

// x times a sigmoid that is a small multiple of 2^-149 has that step as its error.
TEST_P(Numbers, Silu) {
  auto truth = [](double x) { return x / (1 + std::exp(-x)); };
  EXPECT_LE(largestError(Opcode::Silu, truth, 0x1p-149), 3.0);
}

TEST_P(Numbers, Rsqrt) {
  EXPECT_LE(largestError(Opcode::Rsqrt, [](double x) { return 1 / std::sqrt(x); }), 1.51); // two roundings
}

// Computed in f64 and rounded once: as good as correctly rounded.
constexpr double kOnce = 0.501;

TEST_P(Numbers, Log) {
  EXPECT_LE(largestError(Opcode::Log, [](double x) { return std::log(x); }), kOnce);
}

TEST_P(Numbers, Tanh) {
  EXPECT_LE(largestError(Opcode::Tanh, [](double x) { return std::tanh(x); }), kOnce);
}

TEST_P(Numbers, Erf) {
  EXPECT_LE(largestError(Opcode::Erf, [](double x) { return std::erf(x); }), kOnce);
}

TEST_P(Numbers, SoftplusKeepsItsNegativeTail) {
  auto truth = [](double x) { return std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x))); };
  EXPECT_LE(largestError(Opcode::Softplus, truth), kOnce);
}

TEST_P(Numbers, GeluKeepsItsNegativeTail) {
  EXPECT_LE(largestError(Opcode::Gelu, [](double x) { return 0.5 * x * std::erfc(-x * M_SQRT1_2); }), kOnce);
}

TEST_P(Numbers, GeluTanhKeepsItsNegativeTail) {
  auto truth = [](double x) { return x / (1 + std::exp(-2 * std::sqrt(M_2_PI) * (x + 0.044715 * x * x * x))); };
  EXPECT_LE(largestError(Opcode::GeluTanh, truth), kOnce);
}

TEST_P(Numbers, SqrtIsCorrectlyRounded) {
  EXPECT_EQ(largestError(Opcode::Sqrt, [](double x) { return std::sqrt(x); }), 0);
}

// Every pair of special numbers, whole exponents of negative bases, results over the whole range, bases close to 1.
TEST_P(Numbers, Pow) {
  ProgramBuilder p("pow", kColumns);
  int x = p.load("x", OperandKind::Tile, DType::F32), y = p.load("y", OperandKind::Tile, DType::F32);
  p.store("power", OperandKind::Tile, DType::F32, p.compute(Opcode::Pow, x, y));
  std::mt19937 random = freshRandom();
  Arguments arguments(p.program, {600}, random);
  constexpr float specials[] = {0,         -0.0f,     1,          -1,        0.5f,        -0.5f,     2,
                                -2,        3,         -3,         1.5f,      -2.5f,       NAN,       INFINITY,
                                -INFINITY, 0x1p-149f, -0x1p-149f, 0x1p127f,  1e30f,       -7e5f,     8388607,
                                -8388607,  16777215,  16777216,   -16777218, 0.99999994f, 1.0000001f};
  const int64_t count = std::size(specials), total = 600 * kColumns;
  auto anyBits = [&](int64_t j, int operand) { arguments.arrays[operand].setBits(j, random()); };
  std::uniform_real_distribution<double> uniform(-1, 1);
  for (int64_t j = 0; j < total; ++j) {
    Array &base = arguments.arrays[0], &exponent = arguments.arrays[1];
    anyBits(j, 0);
    anyBits(j, 1);
    if (j < count * count) {
      base.set(j, specials[j / count]);
      exponent.set(j, specials[j % count]);
    } else if (j % 4 == 1) { // a result of any size
      exponent.set(j, 152 * uniform(random) / std::log2(std::abs(double(base.get(j)))));
    } else if (j % 4 == 2) {
      exponent.set(j, std::round(20 * uniform(random)));
      base.set(j, std::exp(5 * uniform(random)) * (random() % 2 ? 1 : -1));
    } else if (j % 4 == 3) {
      base.set(j, 1 + 1e-3 * uniform(random));
      exponent.set(j, 1e5 * uniform(random));
    }
  }
  HostKernel(p.program, GetParam()).run(arguments);
  double largest = 0;
  int64_t wrong = 0;
  for (int64_t j = 0; j < total; ++j) {
    double base = arguments.arrays[0].get(j), exponent = arguments.arrays[1].get(j), have = arguments.arrays[2].get(j);
    double want = std::pow(base, exponent), rounded = nearest(want, DType::F32);
    if (std::isnan(have) && std::isnan(want))
      continue;
    double error = have == rounded ? 0 : std::abs(have - want) / double(unitInLastPlace(rounded, DType::F32));
    if (std::isinf(have) && std::abs(want) > 0x1.fffffep127)
      error = 0;
    largest = std::max(largest, error);
    if ((!(error <= kOnce) || std::signbit(have) != std::signbit(want)) && wrong++ < 5)
      ADD_FAILURE() << base << " to the power of " << exponent << " is " << have << ", expected " << want;
  }
  std::cout << "pow: at most " << largest << " ulp\n";
  EXPECT_EQ(wrong, 0) << "of " << total;
}

TEST_P(Numbers, RoundingToNarrowTypes) {
  for (DType to : {DType::BF16, DType::F16, DType::F8E4M3, DType::F8E5M2}) {
    RowProgram program = unary(kColumns, Opcode::Cast, DType::F32, to);
    std::vector<uint32_t> bits = everyNth(0xfff, freshRandom()());
    for (uint32_t high = 0; high < 0x10000; ++high)
      bits.push_back(high << 16 | 0x8000); // every tie of bf16
    for (uint32_t high = 0; high < 0x80000; ++high)
      bits.push_back(high << 13 | 0x1000); // and of f16; those of eight bits are numbers of bf16
    for (uint32_t high = 0; high < 0x10000; ++high)
      for (uint32_t low : {0u, 1u, 0xffffu})
        bits.push_back(high << 16 | low);
    Arguments arguments = apply(program, bits);
    int64_t wrong = 0;
    for (size_t i = 0; i < bits.size(); ++i) {
      double x = arguments.arrays[0].get(i), have = arguments.arrays[1].get(i), want = roundTo(x, to);
      bool isEqual = have == want && std::signbit(have) == std::signbit(want);
      if (!isEqual && !(std::isnan(have) && std::isnan(want)) && wrong++ < 5)
        ADD_FAILURE() << x << " rounds to " << have << ", expected " << want;
    }
    EXPECT_EQ(wrong, 0) << name(to) << " of " << bits.size();
  }
}

TEST_P(Numbers, WideningFromNarrowTypes) {
  for (DType from : {DType::BF16, DType::F16, DType::F8E4M3, DType::F8E5M2}) {
    RowProgram program = unary(kColumns, Opcode::Cast, from, DType::F32);
    std::vector<uint32_t> bits(size_t(1) << 8 * byteSize(from));
    for (uint32_t i = 0; i < bits.size(); ++i)
      bits[i] = i;
    Arguments arguments = apply(program, bits);
    for (size_t i = 0; i < bits.size(); ++i) {
      double want = arguments.arrays[0].get(i), have = arguments.arrays[1].get(i);
      ASSERT_TRUE(have == want || (std::isnan(have) && std::isnan(want))) << name(from) << " " << i << ": " << have;
      ASSERT_TRUE(std::isnan(have) || std::signbit(have) == std::signbit(want)) << name(from) << " " << i;
    }
  }
}

// A product that is rounded before it is added: a fused multiply-add would keep what rounding drops.
TEST_P(Numbers, ProductsAreRoundedBeforeTheyAreAdded) {
  ProgramBuilder p("product_sum", kColumns);
  int x = p.load("x", OperandKind::Tile, DType::F32);
  int square = p.compute(Opcode::Mul, x, x);
  p.store("y", OperandKind::Tile, DType::F32, p.compute(Opcode::Sub, square, p.constant(1)));
  float value = 1 + 0x1p-12f; // its square, 1 + 2^-11 + 2^-24, rounds to 1 + 2^-11
  std::vector<uint32_t> bits(kColumns);
  for (uint32_t& entry : bits)
    std::memcpy(&entry, &value, 4);
  Arguments arguments = apply(p.program, bits);
  for (int64_t c = 0; c < kColumns; ++c)
    ASSERT_EQ(arguments.arrays[1].get(c), 0x1p-11);
}

INSTANTIATE_TEST_SUITE_P(Levels, Numbers, testing::ValuesIn(HostKernel::targets()),
                         [](const auto& info) { return info.param.substr(info.param.size() - 2); });

} // namespace
} // namespace cermet::test
