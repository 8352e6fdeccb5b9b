// Launches of sums over rows and of several programs side by side: grids, partial rows and the fold behind them.
#include "tests/unit/runtime/launch/CudaLaunch.h"
#include <cstring>

namespace cermet {
namespace {

TEST_F(CudaLaunch, AccumulatorsFoldTheirPartialRows) {
  const auto executable = prepare(context, sumPlan("$TARGET", kCubin), "auto");
  ASSERT_TRUE(executable);
  for (int64_t rows : {3, 100000}) {
    cuda.launches.clear();
    const TestTensor x(memory, {rows, 1, 8}, {0, 0, 1}), weight(memory + 4096, {8}), total(memory + 8192, {8});
    const std::vector<cermet_tensor> tensors{x, weight, total};
    size_t bytes = 0;
    ASSERT_TRUE(executable->workspaceSize(tensors.data(), 2, &bytes).ok());
    const int64_t blocks = std::min<int64_t>((rows + 1) / 2, 132 * 2);
    const auto padded = [](int64_t size) { return static_cast<size_t>((size + 255) / 256 * 256); };
    EXPECT_EQ(bytes, padded(rows * 32) + padded(blocks * 32));
    char* workspace = memory + (1 << 15); // only passed on
    ASSERT_TRUE(executable->launch(nullptr, tensors.data(), 3, workspace, bytes).ok());
    ASSERT_EQ(cuda.launches.size(), 3u);
    const FakeLaunch &main = cuda.launches[1], &fold = cuda.launches[2];
    EXPECT_EQ(main.grid[0], blocks);
    EXPECT_EQ(main.arguments.partialRows, blocks);
    EXPECT_EQ(reinterpret_cast<char*>(main.arguments.partials), workspace + padded(rows * 32));
    EXPECT_EQ(main.arguments.operand[0].base, workspace);
    EXPECT_EQ(fold.kernel, "sum_rows_fold");
    EXPECT_EQ(fold.grid[0], 1u);
    EXPECT_EQ(fold.grid[1], 1u);
    EXPECT_EQ(fold.block[0], 16u);
    EXPECT_EQ(fold.block[1], 32u);
    EXPECT_EQ(fold.arguments.partialRows, blocks);
  }
}

// The programs share one launch: the first blocks are the first's, and vectors are moved where both can.
TEST_F(CudaLaunch, ProgramsStandSideBySide) {
  const auto executable = prepare(context, besidePlan("$TARGET", kCubin), "auto");
  ASSERT_TRUE(executable);
  struct Case {
    int64_t first, second; // rows
    int offset, other;     // of x and u, in bytes
    const char* entry;
  };
  for (const Case& one : {Case{5, 9, 0, 0, "beside_vector"},
                          {5, 9, 0, 8, "beside_vector"},
                          {5, 9, 8, 0, "beside_scalar"},
                          {5, 9, 0, 4, "beside_scalar"},
                          {0, 9, 4, 0, "beside_vector"},
                          {5, 0, 0, 4, "beside_vector"},
                          {0, 0, 0, 0, nullptr}}) {
    cuda.launches.clear();
    const TestTensor x(memory + one.offset, {one.first, 1, 8}, {16, 16, 1}), weight(memory + 4096, {8}),
        u(memory + 1024 + one.other, {one.second, 8}), y(memory + 8192, {one.first, 1, 8}),
        z(memory + 16384, {one.second, 8});
    const cermet_tensor tensors[] = {x, weight, u, y, z};
    ASSERT_TRUE(executable->launch(nullptr, tensors, 5, nullptr, 0).ok());
    ASSERT_EQ(cuda.launches.size(), one.entry ? 1u : 0u);
    if (!one.entry)
      continue;
    const FakeLaunch& launch = cuda.launches[0];
    EXPECT_EQ(launch.kernel, one.entry) << one.offset << " " << one.other;
    EXPECT_EQ(launch.grid[0], (one.first + 1) / 2 + (one.second + 3) / 4);
    EXPECT_EQ(launch.arguments.rows, one.first);
    EXPECT_EQ(launch.arguments.partialRows, (one.first + 1) / 2);
    RowArguments second;
    std::memcpy(static_cast<void*>(&second), launch.bytes + argumentBytes(3), argumentBytes(3));
    EXPECT_EQ(second.rows, one.second);
    EXPECT_EQ(second.partialRows, (one.second + 3) / 4);
    if (one.first > 0) {
      EXPECT_EQ(launch.arguments.operand[0].stride[3], one.first > 1 ? 16 : 0);
      EXPECT_EQ(launch.arguments.operand[2].base, memory + 8192);
    }
    if (one.second > 0) {
      EXPECT_EQ(second.extent[3], one.second);
      EXPECT_EQ(second.operand[0].base, memory + 1024 + one.other);
      EXPECT_EQ(second.operand[1].base, memory + 4096);
      EXPECT_EQ(second.operand[2].base, memory + 16384);
    }
  }
}

// Programs that sum over rows: partial rows one program after the other, and one fold for all of them.
TEST_F(CudaLaunch, SumsStandSideBySide) {
  const auto executable = prepare(context, sumsBesidePlan("$TARGET", kCubin), "auto");
  ASSERT_TRUE(executable);
  for (auto [first, second] : {std::pair<int64_t, int64_t>{100000, 6}, {3, 100000}, {0, 5}, {5, 0}}) {
    cuda.launches.clear();
    cuda.memsets.clear();
    const TestTensor x(memory, {first, 1, 8}, {0, 0, 1}), u(memory + 1024, {second, 8}, {0, 1}),
        total(memory + 8192, {8}), other(memory + 12288, {8});
    const cermet_tensor tensors[] = {x, u, total, other};
    size_t bytes = 0;
    ASSERT_TRUE(executable->workspaceSize(tensors, 2, &bytes).ok());
    const int64_t blocks = std::min<int64_t>((first + 1) / 2, 132 * 2);
    const int64_t others = std::min<int64_t>((second + 3) / 4, 132 * 2);
    EXPECT_EQ(bytes, static_cast<size_t>(((blocks + others) * 32 + 255) / 256 * 256));
    char* workspace = memory + (1 << 15); // only passed on
    ASSERT_TRUE(executable->launch(nullptr, tensors, 4, workspace, bytes).ok());
    ASSERT_EQ(cuda.launches.size(), 2u);
    const FakeLaunch &main = cuda.launches[0], &fold = cuda.launches[1];
    EXPECT_EQ(main.grid[0], blocks + others);
    RowArguments last;
    std::memcpy(static_cast<void*>(&last), main.bytes + argumentBytes(2), argumentBytes(2));
    EXPECT_EQ(main.arguments.partialRows, blocks);
    EXPECT_EQ(last.partialRows, others);
    EXPECT_EQ(reinterpret_cast<char*>(main.arguments.partials), workspace);
    EXPECT_EQ(reinterpret_cast<char*>(last.partials), workspace + blocks * 32);
    EXPECT_EQ(fold.kernel, "sum_rows_fold");
    EXPECT_EQ(fold.grid[0], 2u) << "a block for each program's columns";
    EXPECT_EQ(fold.grid[1], 1u);
    // What sums over no rows is zero, and the fold finds no partial rows for it.
    ASSERT_EQ(cuda.memsets.size(), first && second ? 0u : 1u);
    for (const FakeMemset& zeroed : cuda.memsets)
      EXPECT_EQ(zeroed.address, reinterpret_cast<uintptr_t>(memory + (first ? 12288 : 8192)));
  }
}

} // namespace
} // namespace cermet
