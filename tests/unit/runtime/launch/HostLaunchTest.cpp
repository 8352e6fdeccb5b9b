// Launches on the host with kernels written by hand: what reaches a kernel, and what is refused before it.
#include "runtime/device/HostImage.h"
#include "runtime/support/File.h"
#include "tests/unit/runtime/Plans.h"
#include <array>
#include <gtest/gtest.h>
#include <random>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace cermet {
namespace {

struct HostLaunch : testing::Test {
  std::shared_ptr<Context> context = std::make_shared<Context>(testConfig());
  std::mt19937 random{11};

  std::vector<float> randomFloats(size_t count) {
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    for (float& value : values)
      value = normal(random);
    return values;
  }
  static Status launch(const Executable& executable, const std::vector<cermet_tensor>& tensors) {
    size_t bytes = 0;
    const int count = static_cast<int>(tensors.size());
    CERMET_RETURN_IF_ERROR(executable.workspaceSize(tensors.data(), count, &bytes));
    std::unique_ptr<void, decltype(&free)> workspace(bytes ? std::aligned_alloc(256, bytes) : nullptr, &free);
    return executable.launch(nullptr, tensors.data(), count, workspace.get(), bytes);
  }
};

TEST_F(HostLaunch, RowsOfAnyStrideAreWalked) {
  const auto executable = prepare(context, scalePlan(), "host");
  ASSERT_TRUE(executable);
  const std::vector<float> weight = randomFloats(8), memory = randomFloats(6 * 7 * 24 * 2);
  struct Layout {
    int64_t a, b;
    std::vector<int64_t> strides;
  };
  for (const Layout& layout : {Layout{6, 7, {56, 8, 1}},
                               {6, 7, {24 * 7, 24, 1}},
                               {6, 7, {24, 24 * 6, 1}},
                               {6, 7, {0, 8, 1}},
                               {6, 7, {8, 0, 1}},
                               {1, 7, {0, 9, 1}},
                               {6, 1, {11, 3, 1}},
                               {1, 1, {0, 0, 1}}}) {
    std::vector<float> y(static_cast<size_t>(layout.a * layout.b * 8), -1e30f);
    ASSERT_TRUE(
        launch(*executable,
               {TestTensor(const_cast<float*>(memory.data()), {layout.a, layout.b, 8}, layout.strides),
                TestTensor(const_cast<float*>(weight.data()), {8}), TestTensor(y.data(), {layout.a, layout.b, 8})})
            .ok());
    for (int64_t a = 0; a < layout.a; ++a)
      for (int64_t b = 0; b < layout.b; ++b)
        for (int64_t column = 0; column < 8; ++column)
          ASSERT_EQ(y[(a * layout.b + b) * 8 + column],
                    memory[a * layout.strides[0] + b * layout.strides[1] + column] * weight[column]);
  }
  EXPECT_EQ(context->counters().launches, 8u);
}

// Vectors of 16 do not divide rows of 8: rows of all tiles must begin alike within a vector.
TEST_F(HostLaunch, RowsThatBeginInTheMidstOfAVector) {
  Json plan = scalePlan();
  plan["steps"][0]["vector"] = 16;
  plan["steps"][0]["entries"] = {{"vector", "scale_vector"}, {"scalar", "negated_scalar"}, {"fold", ""}};
  const auto executable = prepare(context, plan, "host");
  ASSERT_TRUE(executable);
  alignas(64) static float x[400], y[400], weight[8];
  std::ranges::copy(randomFloats(400), x);
  std::ranges::copy(randomFloats(8), weight);
  struct Layout {
    int64_t x, y, shift, sign; // the distances of rows, where x begins, of which entry the results are
  };
  for (const Layout& layout : {Layout{8, 8, 0, 1}, {9, 9, 0, 1}, {9, 25, 0, 1}, {9, 10, 0, -1}, {9, 9, 1, -1}}) {
    const Status launched =
        launch(*executable, {TestTensor(x + layout.shift, {1, 7, 8}, {7 * layout.x, layout.x, 1}),
                             TestTensor(weight, {8}), TestTensor(y, {1, 7, 8}, {7 * layout.y, layout.y, 1})});
    ASSERT_TRUE(launched.ok()) << launched.message();
    for (int64_t row = 0; row < 7; ++row)
      for (int64_t column = 0; column < 8; ++column)
        ASSERT_EQ(y[row * layout.y + column],
                  float(layout.sign) * (x[layout.shift + row * layout.x + column] * weight[column]))
            << "rows " << layout.x << " and " << layout.y << " apart";
  }
}

// The numbers' rows collapse as any do; the table's rows are counted and its stride is part of what vectors need.
TEST_F(HostLaunch, ProgramsShareTheRows) {
  const auto executable = prepare(context, besidePlan(), "host");
  ASSERT_TRUE(executable);
  const std::vector<float> weight = randomFloats(8), x = randomFloats(6000 * 8), u = randomFloats(5000 * 8);
  const auto data = [](const std::vector<float>& values) { return const_cast<float*>(values.data()); };
  for (const auto [a, b, c] : {std::array<int64_t, 3>{3, 2, 5}, {0, 2, 5}, {3, 2, 0}, {0, 0, 0}, {2000, 3, 5000}}) {
    std::vector<float> y(a * b * 8, -1e30f), z(c * 8, -1e30f);
    ASSERT_TRUE(
        launch(*executable, {TestTensor(data(x), {a, b, 8}), TestTensor(data(weight), {8}), TestTensor(data(u), {c, 8}),
                             TestTensor(y.data(), {a, b, 8}), TestTensor(z.data(), {c, 8})})
            .ok());
    for (size_t i = 0; i < y.size(); ++i)
      ASSERT_EQ(y[i], x[i] * weight[i % 8]) << i;
    for (size_t i = 0; i < z.size(); ++i)
      ASSERT_EQ(z[i], u[i] * weight[i % 8]) << i;
  }
}

TEST_F(HostLaunch, RowsAreGathered) {
  const auto executable = prepare(context, gatherPlan(), "host");
  ASSERT_TRUE(executable);
  alignas(64) static float memory[7 * 12 + 1];
  const std::vector<float> random = randomFloats(std::size(memory));
  std::copy(random.begin(), random.end(), memory);
  const std::vector<int64_t> numbers{3, 0, -1, 6, 7, 2, int64_t(1) << 62, 5, 4, 1, 6, 6};
  struct Layout {
    int64_t rows, stride, shift, sign; // of the table; the scalar entry negates
    std::vector<int64_t> strides;      // of the numbers
  };
  for (const Layout& layout : {Layout{7, 8, 0, 1, {4, 1}},
                               {7, 12, 0, 1, {4, 1}},
                               {7, 9, 0, -1, {4, 1}},
                               {7, 8, 1, -1, {4, 1}},
                               {5, 8, 0, 1, {1, 3}},
                               {0, 8, 0, 1, {4, 1}},
                               {7, 0, 0, 1, {0, 1}}}) {
    alignas(64) float y[3 * 4 * 8];
    const Status launched = launch(
        *executable, {TestTensor(layout.rows ? memory + layout.shift : nullptr, {layout.rows, 8}, {layout.stride, 1}),
                      TestTensor(const_cast<int64_t*>(numbers.data()), {3, 4}, layout.strides, CERMET_I64),
                      TestTensor(y, {3, 4, 8})});
    ASSERT_TRUE(launched.ok()) << launched.message();
    for (int64_t a = 0; a < 3; ++a)
      for (int64_t b = 0; b < 4; ++b) {
        const int64_t number = numbers[a * layout.strides[0] + b * layout.strides[1]];
        const bool exists = number >= 0 && number < layout.rows;
        for (int64_t column = 0; column < 8; ++column)
          ASSERT_EQ(y[(a * 4 + b) * 8 + column],
                    float(layout.sign) * (exists ? memory[layout.shift + number * layout.stride + column] : -1))
              << a << " " << b << " of " << layout.rows << " rows " << layout.stride << " apart";
      }
  }
}

// Of the lowest row, however many threads find one; the next launch is as good as any.
TEST_F(HostLaunch, ANumberOfNoRowFailsTheLaunch) {
  Json plan = gatherPlan();
  plan["steps"][0]["entries"] = {{"vector", "checked_vector"}, {"scalar", "checked_vector"}, {"fold", ""}};
  for (int threads : {1, 4}) {
    Config config = testConfig();
    config.threads = threads;
    const auto executable = prepare(std::make_shared<Context>(config), plan, "host");
    ASSERT_TRUE(executable);
    std::vector<float> table = randomFloats(7 * 8), y(9000 * 8);
    std::vector<int64_t> numbers(9000, 6);
    const auto run = [&] {
      return launch(*executable,
                    {TestTensor(table.data(), {7, 8}), TestTensor(numbers.data(), {90, 100}, {100, 1}, CERMET_I64),
                     TestTensor(y.data(), {90, 100, 8})});
    };
    ASSERT_TRUE(run().ok());
    numbers[8999] = -1;
    numbers[4321] = 7;
    numbers[4322] = int64_t(1) << 40;
    const Status status = run();
    EXPECT_EQ(status.code(), CERMET_OUT_OF_RANGE);
    EXPECT_EQ(status.message(), "gather: row 4321 of kernel 'gather' reads row 7, expected 0 to 6");
    EXPECT_EQ(Executable::lastFault().row, 4321);
    numbers[8999] = numbers[4321] = numbers[4322] = 0;
    EXPECT_TRUE(run().ok());
  }
}

TEST_F(HostLaunch, SumsOverRowsAreRightAndDoNotDependOnThreads) {
  for (int64_t rows : {1, 3, 15, 16, 17, 1000, 40000}) {
    const std::vector<float> weight(8, 1.0f), x = randomFloats(static_cast<size_t>(rows) * 8);
    std::vector<std::vector<float>> results;
    for (int threads : {1, 2, 3, 8}) {
      Config config = testConfig();
      config.threads = threads;
      const auto executable = prepare(std::make_shared<Context>(config), sumPlan(), "host");
      ASSERT_TRUE(executable);
      std::vector<float> total(8, -1e30f);
      const Status launched =
          launch(*executable, {TestTensor(const_cast<float*>(x.data()), {rows, 1, 8}),
                               TestTensor(const_cast<float*>(weight.data()), {8}), TestTensor(total.data(), {8})});
      ASSERT_TRUE(launched.ok()) << launched.message();
      results.push_back(total);
    }
    for (const auto& result : results)
      EXPECT_EQ(result, results.front()) << rows;
    for (size_t column = 0; column < 8; ++column) {
      double sum = 0, size = 0;
      for (int64_t row = 0; row < rows; ++row) {
        sum += x[static_cast<size_t>(row) * 8 + column];
        size += std::abs(x[static_cast<size_t>(row) * 8 + column]);
      }
      EXPECT_NEAR(results.front()[column], sum, 1e-6 * size) << rows;
    }
  }
}

TEST_F(HostLaunch, NoRowsZeroTheSums) {
  const auto executable = prepare(context, sumPlan(), "host");
  ASSERT_TRUE(executable);
  std::vector<float> weight(8, 1.0f), total(8, 5.0f);
  ASSERT_TRUE(launch(*executable,
                     {TestTensor(nullptr, {0, 4, 8}), TestTensor(weight.data(), {8}), TestTensor(total.data(), {8})})
                  .ok());
  EXPECT_EQ(total, std::vector<float>(8, 0.0f));
  const auto scale = prepare(context, scalePlan(), "host");
  EXPECT_TRUE(
      launch(*scale, {TestTensor(nullptr, {3, 0, 8}), TestTensor(weight.data(), {8}), TestTensor(nullptr, {3, 0, 8})})
          .ok());
}

TEST_F(HostLaunch, ManyThreadsShareAnExecutable) {
  const auto executable = prepare(context, scalePlan(), "host");
  ASSERT_TRUE(executable);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 6; ++thread)
    threads.emplace_back([&, thread] {
      const int64_t rows = 5000; // enough to be shared with the pool
      std::vector<float> x(rows * 8, static_cast<float>(thread)), weight(8, 2.0f), y(rows * 8);
      for (int turn = 0; turn < 20; ++turn) {
        std::fill(y.begin(), y.end(), -1.0f);
        const bool ok = launch(*executable, {TestTensor(x.data(), {rows, 1, 8}), TestTensor(weight.data(), {8}),
                                             TestTensor(y.data(), {rows, 1, 8})})
                            .ok();
        wrong += !ok || y != std::vector<float>(rows * 8, 2.0f * static_cast<float>(thread));
      }
    });
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(HostLaunch, AForkedChildLaunches) {
  if (std::string(SANITIZED).find("thread") != std::string::npos)
    GTEST_SKIP() << "ThreadSanitizer cannot follow a fork of a process with threads";
  const auto executable = prepare(context, scalePlan(), "host");
  const int64_t rows = 20000;
  std::vector<float> x(rows * 8, 3.0f), weight(8, 2.0f), y(rows * 8);
  const pid_t child = fork();
  if (child == 0) {
    const TestTensor input(x.data(), {rows, 1, 8}), scale(weight.data(), {8}), output(y.data(), {rows, 1, 8});
    _exit(launch(*executable, {input, scale, output}).ok() && y == std::vector<float>(rows * 8, 6.0f) ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

struct BadTensor {
  const char* message;
  std::function<void(std::vector<TestTensor>&)> spoil;
};

TEST_F(HostLaunch, EveryBadTensorIsNamed) {
  const auto executable = prepare(context, scalePlan(), "host");
  ASSERT_TRUE(executable);
  alignas(64) float memory[3][4 * 5 * 8 + 8] = {};
  char* unaligned = reinterpret_cast<char*>(memory[0]) + 2;
  const BadTensor cases[] = {
      {"scale: input 'x' (tensor 0) has dtype bf16, expected f32", [](auto& t) { t[0].dtype = CERMET_BF16; }},
      {"scale: output 'y' (tensor 2) has dtype an unknown dtype, expected f32", [](auto& t) { t[2].dtype = 77; }},
      {"scale: input 'x' (tensor 0) has 2 dimensions, expected 3",
       [](auto& t) {
         t[0].sizes = {4, 8};
       }},
      {"scale: input 'weight' (tensor 1) has size 9 in dimension 0, expected 8", [](auto& t) { t[1].sizes = {9}; }},
      {"scale: output 'y' (tensor 2) has size 6 in dimension 1, expected 5 (b of 'x')",
       [](auto& t) { t[2].sizes[1] = 6; }},
      {"scale: input 'x' (tensor 0) has size -2 in dimension 0, expected 0 or more",
       [](auto& t) { t[0].sizes[0] = -2; }},
      {"scale: input 'x' (tensor 0) has stride 2 in its last dimension, expected 1; copy it to a dense one",
       [](auto& t) { t[0].strides[2] = 2; }},
      {"scale: input 'weight' (tensor 1) has stride 0 in its last dimension, expected 1; copy it to a dense one",
       [](auto& t) { t[1].strides[0] = 0; }},
      {"scale: output 'y' (tensor 2) has stride 0 in a dimension larger than 1; an output needs its own memory",
       [](auto& t) { t[2].strides[0] = 0; }},
      {"scale: input 'weight' (tensor 1) has a null pointer, expected memory of its elements",
       [](auto& t) { t[1].data = nullptr; }},
      {"which is not aligned to its elements of 4 bytes", [&](auto& t) { t[0].data = unaligned; }},
  };
  for (const BadTensor& bad : cases) {
    std::vector<TestTensor> tensors{{memory[0], {4, 5, 8}}, {memory[1], {8}}, {memory[2], {4, 5, 8}}};
    bad.spoil(tensors);
    const std::vector<cermet_tensor> given(tensors.begin(), tensors.end());
    const Status status = executable->launch(nullptr, given.data(), 3, nullptr, 0);
    EXPECT_EQ(status.code(), CERMET_INVALID_ARGUMENT);
    EXPECT_NE(status.message().find(bad.message), std::string::npos)
        << status.message() << "\nexpected " << bad.message;
  }
  std::vector<cermet_tensor> given{TestTensor(memory[0], {4, 5, 8})};
  given[0].strides = nullptr;
  EXPECT_EQ(executable->launch(nullptr, given.data(), 1, nullptr, 0).message(),
            "scale: 1 tensors given, expected 3 (2 inputs, then 1 outputs)");
  given.resize(3);
  EXPECT_EQ(executable->launch(nullptr, given.data(), 3, nullptr, 0).message(),
            "scale: input 'x' (tensor 0) has no strides, expected an array of 3");
}

TEST_F(HostLaunch, BadWorkspacesAreNamed) {
  const auto executable = prepare(context, sumPlan(), "host");
  ASSERT_TRUE(executable);
  alignas(256) static char workspace[8192];
  float x[4 * 8] = {}, weight[8] = {}, total[8];
  const TestTensor given[] = {{x, {4, 1, 8}}, {weight, {8}}, {total, {8}}};
  const std::vector<cermet_tensor> tensors(std::begin(given), std::end(given));
  size_t bytes = 0;
  ASSERT_TRUE(executable->workspaceSize(tensors.data(), 2, &bytes).ok()); // the outputs may be left out
  EXPECT_EQ(bytes, 256u + 256u);                                          // 4 rows of a buffer, 4 partial rows
  EXPECT_EQ(executable->workspaceSize(tensors.data(), 1, &bytes).message(),
            "sum: 1 tensors given, expected at least the 2 inputs");
  EXPECT_EQ(executable->launch(nullptr, tensors.data(), 3, workspace, 300).message(),
            "sum: the workspace has 300 bytes, expected 512; ask cermet_workspace_size");
  EXPECT_EQ(executable->launch(nullptr, tensors.data(), 3, nullptr, 512).message(),
            "sum: the workspace is null, expected 512 bytes");
  EXPECT_NE(executable->launch(nullptr, tensors.data(), 3, workspace + 64, 512).message().find("aligned to 256 bytes"),
            std::string::npos);
  EXPECT_TRUE(executable->launch(nullptr, tensors.data(), 3, workspace, sizeof(workspace)).ok());
}

TEST_F(HostLaunch, SizesThatOverflowAreRefused) {
  const auto sum = prepare(context, sumPlan(), "host"), scale = prepare(context, scalePlan(), "host");
  float some[8] = {};
  const int64_t huge = int64_t(1) << 40;
  const TestTensor x(some, {huge, huge, 8}, {8, 8, 1}), weight(some, {8}), y(some, {huge, huge, 8}, {8, 8, 1});
  const std::vector<cermet_tensor> tensors{x, weight, y};
  size_t bytes = 0;
  EXPECT_EQ(sum->workspaceSize(tensors.data(), 2, &bytes).message(),
            "sum: the workspace would have more than 2^63 bytes");
  EXPECT_EQ(scale->launch(nullptr, tensors.data(), 3, nullptr, 0).message(),
            "scale: kernel 'scale' would have more than 2^63 elements");
}

TEST_F(HostLaunch, RowsThatDoNotCollapseAreRefused) {
  Json plan = scalePlan();
  plan["values"][0]["dims"] = plan["values"][2]["dims"] = {2, 2, 2, 2, 2, 8};
  const auto executable = prepare(context, plan, "host");
  ASSERT_TRUE(executable);
  std::vector<float> x(4096), weight(8), y(2 * 2 * 2 * 2 * 2 * 8);
  const TestTensor strided(x.data(), {2, 2, 2, 2, 2, 8}, {8, 24, 72, 216, 648, 1});
  EXPECT_EQ(
      launch(*executable, {strided, TestTensor(weight.data(), {8}), TestTensor(y.data(), {2, 2, 2, 2, 2, 8})})
          .message(),
      "scale: the rows of kernel 'scale' have 5 dimensions whose strides do not collapse, expected at most 4; copy the "
      "strided tensors to dense ones");
}

TEST_F(HostLaunch, ExternalStepsGoToTheCallback) {
  Json plan = scalePlan();
  plan["values"][3] = {{"name", "t"}, {"kind", "buffer"}, {"dtype", "f32"}, {"dims", {"a", "b", 8}}};
  plan["steps"][0]["operands"][2]["value"] = 3;
  plan["steps"][1] = {{"kind", "external"}, {"op", "cermet.matmul"}, {"operands", {3, 1}}, {"results", {2}}};
  const auto executable = prepare(context, plan, "host");
  ASSERT_TRUE(executable);
  std::vector<float> x = randomFloats(16), weight = randomFloats(8), y(16);
  const TestTensor input(x.data(), {2, 1, 8}), scale(weight.data(), {8}), output(y.data(), {2, 1, 8});
  EXPECT_EQ(
      launch(*executable, {input, scale, output}).message(),
      "scale: the plan has the external step cermet.matmul('t', 'weight'), which Cermet does not run; set a callback "
      "with cermet_executable_set_external");
  std::string op;
  executable->setExternal(
      [](void* user, const char* name, const cermet_tensor* tensors, int32_t operands, int32_t results, void*) {
        *static_cast<std::string*>(user) = name;
        if (operands != 2 || results != 1 || tensors[0].rank != 3 || tensors[0].sizes[0] != 2 ||
            tensors[0].strides[0] != 8)
          return CERMET_INTERNAL;
        for (int index = 0; index < 16; ++index)
          static_cast<float*>(tensors[2].data)[index] = static_cast<float*>(tensors[0].data)[index] + 1;
        return CERMET_OK;
      },
      &op);
  ASSERT_TRUE(launch(*executable, {input, scale, output}).ok());
  EXPECT_EQ(op, "cermet.matmul");
  for (size_t index = 0; index < 16; ++index)
    EXPECT_EQ(y[index], x[index] * weight[index % 8] + 1);
  executable->setExternal(
      [](void*, const char*, const cermet_tensor*, int32_t, int32_t, void*) { return CERMET_UNSUPPORTED; }, nullptr);
  EXPECT_EQ(launch(*executable, {input, scale, output}).code(), CERMET_UNSUPPORTED);
}

TEST(HostImage, EachImageIsItsOwnLibrary) {
  const std::string image = *readFile(FAKE_KERNELS);
  const auto first = HostImage::load(image), second = HostImage::load(image);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(*(*first)->entry("scale_vector"), *(*second)->entry("scale_vector"));
  EXPECT_EQ((*first)->entry("nothing").status().message(), "a host kernel's image has no entry 'nothing'");
  EXPECT_FALSE(HostImage::load("no ELF").ok());
}

} // namespace
} // namespace cermet
