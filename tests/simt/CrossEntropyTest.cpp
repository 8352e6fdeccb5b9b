// Loss and gradient of rows of every length, on the simulated machine against the float64 interpreter: rows that
// registers, shared memory or neither hold, odd widths, numbers that are none, and labels that no column has.
#include "frontends/tools/Numbers.h"
#include "runtime/abi/CompilerApi.h"
#include "runtime/abi/ElementType.h"
#include "tests/simt/Truth.h"
#include "tests/unit/patterns/Texts.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <random>

namespace cermet::simt {
namespace {

constexpr int64_t kRows = 10;

std::string graph(const std::string& name, const std::string& from, int64_t columns, const std::string& dtype) {
  std::ifstream file(fmt::format("{}/tests/graphs/{}.mlir", CERMET_SOURCE_DIR, name));
  std::string text{std::istreambuf_iterator<char>(file), {}};
  return replaceAll(replaceAll(text, from, std::to_string(columns)), "xbf16", "x" + dtype);
}

// The same by a pick, which gives NaN where no column has the label, and its gradient as the compiler derives it.
std::string labelLoss(int64_t columns, const std::string& dtype) {
  const std::string text = R"(!t = tensor<?xCOLUMNSxDTYPE, #cermet.symbols<["r0"]>>
!f = tensor<?xCOLUMNSxf32, #cermet.symbols<["r0"]>>
!i = tensor<?xCOLUMNSxi64, #cermet.symbols<["r0"]>>
!b = tensor<?xCOLUMNSxi1, #cermet.symbols<["r0"]>>
!l = tensor<?x1xi64, #cermet.symbols<["r0"]>>
!c = tensor<?x1xi1, #cermet.symbols<["r0"]>>
!r = tensor<?x1xf32, #cermet.symbols<["r0"]>>
module attributes {cermet.version = 1 : i64} {
  func.func @label_loss(%logits: !t, %label: !l, %scale: !r) -> (!r, !t) {
    %wide = cermet.cast %logits : !t to !f
    %max = cermet.reduce_max %wide : !f to !r
    %maxb = cermet.broadcast %max : !r to !f
    %shifted = cermet.sub %wide, %maxb : !f
    %e = cermet.exp %shifted : !f
    %sum = cermet.reduce_sum %e : !f to !r
    %lse = cermet.log %sum : !r
    %lseb = cermet.broadcast %lse : !r to !f
    %logp = cermet.sub %shifted, %lseb : !f
    %ignore = cermet.constant -100.0 : !l
    %counts = cermet.compare "ne", %label, %ignore : !l to !c
    %first = cermet.constant 0.0 : !l
    %class = cermet.select %counts, %label, %first : !c, !l
    %picked = cermet.pick %logp, %class : !f, !l to !r
    %negated = cermet.neg %picked : !r
    %nothing = cermet.constant 0.0 : !r
    %loss = cermet.select %counts, %negated, %nothing : !c, !r
    %g = cermet.select %counts, %scale, %nothing : !c, !r
    %column = cermet.iota 1 : !i
    %classb = cermet.broadcast %class : !l to !i
    %here = cermet.compare "eq", %column, %classb : !i to !b
    %zero = cermet.constant 0.0 : !f
    %elsewhere = cermet.pick %zero, %class : !f, !l to !r
    %gb = cermet.broadcast %g : !r to !f
    %elsewhereb = cermet.broadcast %elsewhere : !r to !f
    %mine = cermet.select %here, %gb, %elsewhereb : !b, !f
    %total = cermet.reduce_sum %mine : !f to !r
    %totalb = cermet.broadcast %total : !r to !f
    %p = cermet.exp %logp : !f
    %all = cermet.mul %p, %totalb : !f
    %difference = cermet.sub %all, %mine : !f
    %dlogits = cermet.cast %difference : !f to !t
    return %loss, %dlogits : !r, !t
  }
})";
  return replaceAll(replaceAll(text, "COLUMNS", std::to_string(columns)), "DTYPE", dtype);
}

// Logits, labels, a factor for each row; loss and gradient.
struct Tensors {
  std::vector<cermet_dtype> dtypes;
  std::vector<std::vector<int64_t>> shapes, strides;
  std::vector<std::unique_ptr<char[]>> memory; // of exactly its extent

  Tensors(int64_t columns, cermet_dtype dtype)
      : dtypes{dtype, CERMET_I64, CERMET_F32, CERMET_F32, dtype}, shapes{{kRows, columns},
                                                                         {kRows, 1},
                                                                         {kRows, 1},
                                                                         {kRows, 1},
                                                                         {kRows, columns}} {
    for (size_t i = 0; i < dtypes.size(); ++i) {
      strides.push_back({shapes[i][1], 1});
      memory.emplace_back(new char[elements(i) * elementBytes(dtypes[i])]);
      std::memset(memory[i].get(), 0xff, elements(i) * elementBytes(dtypes[i]));
    }
  }
  int64_t elements(size_t i) const { return shapes[i][0] * shapes[i][1]; }
  void set(size_t i, int64_t row, int64_t column, double value) {
    tools::writeNumber(memory[i].get(), dtypes[i], row * shapes[i][1] + column, value);
  }
  std::vector<double> values(size_t i) const {
    std::vector<double> result;
    for (int64_t k = 0; k < elements(i); ++k)
      result.push_back(tools::readNumber(memory[i].get(), dtypes[i], k));
    return result;
  }
  std::vector<cermet_tensor> arguments() const {
    std::vector<cermet_tensor> result;
    for (size_t i = 0; i < dtypes.size(); ++i)
      result.push_back({memory[i].get(), shapes[i].data(), strides[i].data(), 2, dtypes[i]});
    return result;
  }
};

void fill(Tensors& tensors, std::mt19937_64& random) {
  const int64_t columns = tensors.shapes[0][1], some = columns / 3;
  std::normal_distribution<double> normal(0, 3);
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t column = 0; column < columns; ++column)
      tensors.set(0, row, column, normal(random));
    tensors.set(1, row, 0, int64_t(random() % columns));
    tensors.set(2, row, 0, 0.5 + row);
  }
  for (int64_t column = 0; column < columns; ++column) {
    tensors.set(0, 3, column, column < some ? -INFINITY : 1);
    tensors.set(0, 4, column, -INFINITY);
    tensors.set(0, 8, column, column == some ? 60000 : -60000);
  }
  tensors.set(0, 1, some, NAN);
  tensors.set(0, 2, some, INFINITY);
  tensors.set(1, 5, 0, -100);
  tensors.set(1, 6, 0, columns);
  tensors.set(1, 7, 0, -1);
  tensors.set(1, 8, 0, columns - 1);
  tensors.set(1, 9, 0, 0x1p32 + 1); // a column's number in its lower half
}

std::vector<std::vector<double>> interpret(const std::string& text, const Tensors& given, bool honourCasts) {
  std::vector<std::vector<double>> data;
  std::vector<cermet_tensor> tensors;
  for (size_t i = 0; i < given.dtypes.size(); ++i)
    data.push_back(given.values(i));
  for (size_t i = 0; i < data.size(); ++i)
    tensors.push_back({data[i].data(), given.shapes[i].data(), nullptr, 2, given.dtypes[i]});
  cermet_buffer error{};
  EXPECT_EQ(cermet_compiler_table_v1()->interpret(text.data(), text.size(), honourCasts, tensors.data(),
                                                  int32_t(tensors.size()), &error),
            CERMET_OK);
  return data;
}

// Of the rows whose label is none: the loss, and the gradient at every column.
void expectNothingKnown(const Tensors& run) {
  for (int64_t row : {6, 7, 9})
    for (size_t i : {3, 4}) {
      const std::vector<double> values = run.values(i);
      const int64_t width = run.shapes[i][1];
      EXPECT_TRUE(std::all_of(values.begin() + row * width, values.begin() + (row + 1) * width,
                              [](double value) { return std::isnan(value); }))
          << "output " << i << ", row " << row;
    }
}

// How far the numbers of an output's row stray from float64, squared and added up over all that was tried: ours and the
// traced program's.
struct Strayed {
  double ours = 0, theirs = 0, norm = 0;
  bool tooFar() const { return !(std::sqrt(ours) <= 1.05 * std::sqrt(theirs) + 1e-6 * std::sqrt(norm) + 1e-30); }
};
using Rows = std::map<std::pair<size_t, int64_t>, Strayed>; // by output and row

// Row by row: what is no number is none, and the rest is added to `rows`.
void compare(const std::string& text, const Tensors& run, const std::string& what, Rows& rows) {
  const auto truth = interpret(text, run, false), traced = interpret(text, run, true);
  for (size_t i : {3, 4}) {
    const std::vector<double> values = run.values(i);
    const int64_t width = run.shapes[i][1];
    for (int64_t row = 0; row < kRows; ++row) {
      auto& [ours, theirs, norm] = rows[{i, row}];
      int64_t wrong = 0;
      for (int64_t k = row * width; k < (row + 1) * width; ++k) {
        wrong += std::isnan(values[k]) != std::isnan(traced[i][k]) ||
                 (std::isinf(traced[i][k]) && values[k] != traced[i][k]);
        if (!std::isfinite(traced[i][k]) || !std::isfinite(values[k]))
          continue;
        ours += std::pow(values[k] - truth[i][k], 2);
        theirs += std::pow(traced[i][k] - truth[i][k], 2);
        norm += truth[i][k] * truth[i][k];
      }
      EXPECT_EQ(wrong, 0) << what << ": output " << i << ", row " << row;
    }
  }
}

void checkLosses(const std::string& text, int64_t columns, cermet_dtype dtype, bool isRolling,
                 bool isLabelLoss = false) {
  const Plan plan = planOf(text);
  ASSERT_EQ(plan.steps.size(), 1);
  const PlanKernels kernels(plan);
  EXPECT_EQ(kernels.spec(0).programs[0].schedule.stages == kRollingStages, isRolling) << plan.steps[0].spec;
  for (bool scalar : {false, true}) {
    Rows rows;
    const auto tooFar = [&] {
      return std::find_if(rows.begin(), rows.end(), [](const auto& each) { return each.second.tooFar(); });
    };
    std::string what = fmt::format("{} columns, {} entry, seeds", columns, scalar ? "scalar" : "vector");
    // A loss is one number, and near zero what the traced program rounds may cancel by luck: then more are judged as
    // one.
    for (int tried = 0, wanted = 1; tried < wanted; ++tried) {
      PlanOptions options;
      options.scalar = scalar;
      options.forceVector = !scalar;
      options.blocks = 3;
      options.seed = std::random_device{}();
      std::mt19937_64 random(options.seed);
      Tensors tensors(columns, dtype);
      fill(tensors, random);
      what += fmt::format(" {}", options.seed);
      ASSERT_EQ(run(plan, kernels, tensors.arguments(), options), "") << what;
      compare(text, tensors, what, rows);
      if (isLabelLoss)
        expectNothingKnown(tensors);
      if (tooFar() != rows.end())
        wanted = 16;
    }
    if (const auto found = tooFar(); found != rows.end())
      ADD_FAILURE() << what << ": output " << found->first.first << ", row " << found->first.second << " strays by "
                    << std::sqrt(found->second.ours) << ", the traced program by " << std::sqrt(found->second.theirs);
  }
}

struct Case {
  int64_t columns;
  const char* dtype;
  cermet_dtype type;
  bool isRolling;
};

class CrossEntropy : public testing::TestWithParam<Case> {};

TEST_P(CrossEntropy, LossAndGradient) {
  const auto& [columns, dtype, type, isRolling] = GetParam();
  checkLosses(graph("cross_entropy_with_gradient", "128256", columns, dtype), columns, type, isRolling);
}

TEST_P(CrossEntropy, SoftcapAndSmoothedLabels) {
  const auto& [columns, dtype, type, isRolling] = GetParam();
  checkLosses(graph("smoothed_cross_entropy", "50257", columns, dtype), columns, type, isRolling);
}

TEST_P(CrossEntropy, ALabelThatIsNoColumn) {
  const auto& [columns, dtype, type, isRolling] = GetParam();
  checkLosses(labelLoss(columns, dtype), columns, type, isRolling, /*isLabelLoss=*/true);
}

// Several rows a block, values that registers keep and that they do not, a row in shared memory whole and in part, none
// of it, and rows that begin in the midst of a vector.
INSTANTIATE_TEST_SUITE_P(Widths, CrossEntropy,
                         testing::Values(Case{7, "f32", CERMET_F32, false}, Case{1000, "bf16", CERMET_BF16, false},
                                         Case{1200, "bf16", CERMET_BF16, false}, Case{9000, "f16", CERMET_F16, true},
                                         Case{12004, "bf16", CERMET_BF16, false},
                                         Case{16392, "bf16", CERMET_BF16, true}, Case{20004, "f32", CERMET_F32, true},
                                         Case{5003, "bf16", CERMET_BF16, true}, Case{9001, "f32", CERMET_F32, true},
                                         Case{17001, "bf16", CERMET_BF16, true}, Case{30522, "f16", CERMET_F16, true},
                                         Case{50257, "bf16", CERMET_BF16, true}, Case{60004, "f16", CERMET_F16, true},
                                         Case{120008, "bf16", CERMET_BF16, true}),
                         [](const auto& info) { return fmt::format("{}{}", info.param.dtype, info.param.columns); });

} // namespace
} // namespace cermet::simt
