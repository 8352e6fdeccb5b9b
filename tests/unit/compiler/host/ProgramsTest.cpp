// Every program, type and awkward width against the oracle.
#include "tests/unit/compiler/host/Programs.h"
#include "tests/unit/compiler/host/HostKernel.h"
#include <gtest/gtest.h>

namespace cermet::test {
namespace {

struct Case {
  RowProgram (*program)(int64_t, DType);
  const char* name;
};

constexpr Case kCases[] = {{rmsNorm, "rms_norm"},
                           {rmsNormBackward, "rms_norm_backward"},
                           {addRmsNorm, "add_rms_norm"},
                           {siluGlu, "glu"},
                           {siluGluBackward, "glu_backward"},
                           {softmaxSquares, "softmax_squares"},
                           {geluGlu, "gelu_glu"},
                           {causalLogSoftmax, "causal_log_softmax"},
                           {everyFunction, "every_function"},
                           {embeddingNorm, "embedding_norm"}};

class Programs : public testing::TestWithParam<std::tuple<Case, DType, int64_t>> {};

TEST_P(Programs, EqualOracle) {
  auto [which, dtype, columns] = GetParam();
  std::mt19937 random = freshRandom();
  RowProgram program = which.program(columns, dtype);
  HostKernel kernel(program);
  Arguments arguments(program, {columns > 1000 ? 9 : 37}, random);
  expectEqualsOracle(kernel, arguments, /*parts=*/4);
}

INSTANTIATE_TEST_SUITE_P(All, Programs,
                         testing::Combine(testing::ValuesIn(kCases),
                                          testing::Values(DType::F32, DType::BF16, DType::F16),
                                          testing::Values(1, 3, 16, 127, 4095, 4096)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "_" + name(std::get<1>(info.param)) +
                                  "_" + std::to_string(std::get<2>(info.param));
                         });

// Programs that use each kind of operand and each path between spaces.
TEST(Spaces, UniformRowAndColumnValuesMeet) {
  for (int64_t columns : {5, 40}) {
    ProgramBuilder p("spaces", columns);
    int x = p.load("x", OperandKind::Tile, DType::BF16), bias = p.load("bias", OperandKind::Column, DType::F16);
    int shift = p.load("shift", OperandKind::Row, DType::BF16),
        scale = p.load("scale", OperandKind::Scalar, DType::F16);
    int square = p.compute(Opcode::Mul, scale, scale);                                       // uniform
    int rowwise = p.compute(Opcode::Neg, p.compute(Opcode::Mul, shift, square, DType::F16)); // row
    int columnwise = p.compute(Opcode::Sub, bias, square);                                   // column
    int both = p.compute(Opcode::Add, rowwise, columnwise);                                  // element
    int all = p.compute(Opcode::Mul, x, both, DType::BF16);
    int total = p.sum(all);
    p.store("rowwise", OperandKind::Row, DType::F32, rowwise);
    p.store("uniform", OperandKind::Row, DType::BF16, p.spread(square, Space::Row));
    p.store("both", OperandKind::Tile, DType::F32, both);
    p.store("spread", OperandKind::Tile, DType::F16, p.spread(total, Space::Element));
    p.store("first", OperandKind::Column, DType::F32, all);
    p.store("second", OperandKind::Column, DType::BF16, p.compute(Opcode::Mul, all, total));
    std::mt19937 random = freshRandom();
    HostKernel kernel(p.program);
    Arguments arguments(p.program, {23}, random);
    expectEqualsOracle(kernel, arguments, 3);
  }
}

} // namespace
} // namespace cermet::test
