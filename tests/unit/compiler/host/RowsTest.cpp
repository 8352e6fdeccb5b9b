// The iteration space: extents, strides, ranges of rows, partial rows.
#include "tests/unit/compiler/host/HostKernel.h"
#include "tests/unit/compiler/host/Programs.h"
#include <gtest/gtest.h>

namespace cermet::test {
namespace {

TEST(Rows, FollowStridesThatDoNotCollapse) {
  constexpr int64_t columns = 20;
  RowProgram program = addRmsNorm(columns, DType::BF16); // x, residual, weight, sum, y
  HostKernel kernel(program);
  std::mt19937 random = freshRandom();
  struct Space {
    std::vector<int64_t> extents, x, residual, sum;
  };
  const Space spaces[] = {
      {{5, 7}, {7 * 33, 33}, {20, 100}, {1000, 30}},
      {{3, 4, 5}, {25, 3 * 25, 12 * 25}, {0, 20, 80}, {21, 3 * 21, 12 * 21}},
      {{2, 3, 4, 5}, {60 * 24, 24, 15 * 24, 3 * 24}, {0, 20, 0, 60}, {5000, 23, 1000, 120}},
      {{1, 1, 6, 1}, {0, 0, 20, 0}, {20, 20, 40, 20}, {7, 7, 21, 7}},
  };
  for (const Space& space : spaces)
    for (int parts : {1, 7}) {
      Arguments arguments(program, space.extents, random, {space.x, space.residual, {}, space.sum, {}});
      expectEqualsOracle(kernel, arguments, parts);
    }
}

TEST(Rows, AStepOfOneColumnWritesNothingBesideIt) {
  std::mt19937 random = freshRandom();
  for (DType dtype : {DType::BF16, DType::F16})
    for (int64_t columns : {1, 17, 129}) {
      RowProgram program = addRmsNorm(columns, dtype);
      HostKernel kernel(program);
      const std::vector<int64_t> apart = {columns + 1};
      Arguments arguments(program, {6}, random, {{}, {}, {}, apart, apart});
      expectEqualsOracle(kernel, arguments);
    }
}

TEST(Rows, SharedAcrossRowsByStrideZero) {
  RowProgram program = siluGlu(64, DType::F32); // gate, up, y
  HostKernel kernel(program);
  std::mt19937 random = freshRandom();
  Arguments arguments(program, {4, 6}, random, {{0, 64}, {}, {}});
  expectEqualsOracle(kernel, arguments);
}

TEST(Rows, NoneIsNoWorkButClearsSums) {
  RowProgram program = rmsNormBackward(40, DType::BF16);
  HostKernel kernel(program);
  std::mt19937 random = freshRandom();
  Arguments arguments(program, {0}, random);
  Arguments before = arguments;
  kernel.run(arguments, 2);
  EXPECT_TRUE(arguments.arrays[4] == before.arrays[4]) << "dx was written";
  for (int64_t c = 0; c < 40; ++c)
    EXPECT_EQ(arguments.arrays[5].get(c), 0.0);
}

// However the rows are cut, also across programs, each has what it has alone.
TEST(Rows, AreNumberedThroughProgramsSideBySide) {
  const std::vector<RowProgram> programs = {rmsNorm(40, DType::BF16), siluGlu(64, DType::F32),
                                            addRmsNorm(24, DType::F16), softmaxSquares(33, DType::F32)};
  const HostKernel together(programs);
  std::mt19937 random = freshRandom();
  using Extents = std::vector<std::vector<int64_t>>;
  for (const Extents& extents : {Extents{{3, 5}, {7}, {2, 2, 3}, {9}}, {{0}, {7}, {2, 0, 3}, {9}}, {{4}, {0}, {1}, {0}},
                                 {{0}, {0}, {0}, {0}}})
    for (int parts : {1, 3, 50}) {
      std::vector<Arguments> arguments;
      std::vector<Arguments*> pointers;
      for (size_t i = 0; i < programs.size(); ++i)
        arguments.emplace_back(programs[i], extents[i], random);
      std::vector<Arguments> alone = arguments;
      for (size_t i = 0; i < programs.size(); ++i) {
        expectEqualsOracle(HostKernel(programs[i]), alone[i]);
        pointers.push_back(&arguments[i]);
      }
      together.runBeside(pointers, parts);
      for (size_t i = 0; i < programs.size(); ++i)
        for (size_t k = 0; k < alone[i].arrays.size(); ++k)
          EXPECT_TRUE(arguments[i].arrays[k].hasSameNumbers(alone[i].arrays[k])) << programs[i].name << " operand " << k;
    }
}

TEST(Rows, MoreThanOnePartialRowFoldsInOrder) {
  RowProgram program = rmsNormBackward(127, DType::F32);
  HostKernel kernel(program);
  std::mt19937 random = freshRandom();
  Arguments arguments(program, {300}, random);
  for (int parts : {1, 2, 5, 300})
    expectEqualsOracle(kernel, arguments, parts, 1e-5);
}

TEST(Rows, EqualArgumentsGiveEqualBitsOnEveryLevel) {
  std::mt19937 random = freshRandom();
  if (HostKernel::targets().size() < 2)
    GTEST_SKIP() << "this machine runs one micro-architecture level only";
  for (auto* make :
       {rmsNorm, rmsNormBackward, siluGluBackward, softmaxSquares, causalLogSoftmax, embeddingNorm, everyFunction})
    for (DType dtype : {DType::F32, DType::BF16, DType::F16}) {
      RowProgram program = make(1003, dtype);
      Arguments arguments(program, {31}, random);
      std::vector<Arguments> results;
      for (const std::string& target : HostKernel::targets())
        for (int repeat = 0; repeat < 2; ++repeat) {
          results.push_back(arguments);
          HostKernel(program, target).run(results.back(), 3);
        }
      for (const Arguments& result : results)
        for (size_t i = 0; i < result.arrays.size(); ++i)
          EXPECT_TRUE(result.arrays[i] == results[0].arrays[i])
              << program.name << " " << name(dtype) << " " << program.operands[i].name;
    }
}

} // namespace
} // namespace cermet::test
