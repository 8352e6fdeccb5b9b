// The CUDA text of real plans, run on the CPU by the machine of Machine.h under AddressSanitizer and UBSan, against the
// float64 interpreter; and the controls: each kind of mistake, planted, must be found.
#include "compiler/CompilerApi.h"
#include "frontends/tools/Numbers.h"
#include "runtime/ElementType.h"
#include "tests/simt/Plans.h"

#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

namespace cermet::simt {
namespace {

using nlohmann::json;
using Symbols = std::map<std::string, int64_t>;

//===--- Asking the compiler --------------------------------------------------------------------------------------===//

const cermet_compiler_table& compiler() {
  return *cermet_compiler_table_v1();
}
const cermet_compiler_options kOptions = {"", ""};

std::string answer(cermet_status status, cermet_buffer& text, cermet_buffer& error) {
  cermet_buffer& used = status == CERMET_OK ? text : error;
  std::string content(used.data, used.size);
  compiler().release(&used);
  if (status != CERMET_OK)
    throw std::runtime_error(content);
  return content;
}

Plan planOf(const std::string& text) {
  cermet_buffer result{}, error{};
  auto plan = parsePlan(
      answer(compiler().compile(text.data(), text.size(), "sm_90", &kOptions, &result, &error), result, error));
  if (!plan.ok())
    throw std::runtime_error(plan.status().message());
  return std::move(*plan);
}

json gradient(const std::string& text, const std::vector<uint8_t>& wanted) {
  cermet_buffer result{}, error{};
  return json::parse(answer(compiler().differentiate(text.data(), text.size(), wanted.data(), int32_t(wanted.size()),
                                                     &kOptions, &result, &error),
                            result, error));
}

//===--- Tensors --------------------------------------------------------------------------------------------------===//

// How tensors lie in memory, in elements.
struct Layout {
  int64_t pad = 0; // rows are as many vectors apart beyond their width at every level, so that no two extents collapse
  int64_t shift = 0; // of every base, off its allocation
  int64_t step = 1;  // from one column of a strided input to the next
  bool isSwapped = false; // of four dimensions the two in the middle lie in the other order
};

// A tensor in memory of exactly its extent, so that AddressSanitizer sees the byte after it.
struct Tensor {
  cermet_dtype dtype;
  std::vector<int64_t> shape, strides;
  std::unique_ptr<char[]> memory;
  char* base = nullptr;
  int64_t elements = 1;

  Tensor(const Plan& plan, const PlanValue& value, const Symbols& symbols, const Layout& layout) : dtype(value.dtype) {
    for (int dim = 0; dim < value.rank; ++dim) {
      const Dimension& dimension = value.dims[dim];
      shape.push_back(dimension.symbolic() ? symbols.at(plan.symbols[dimension.symbol]) : dimension.size);
    }
    strides.resize(shape.size());
    int64_t span = 1, next = layout.step;
    for (int i = int(shape.size()) - 1; i >= 0; --i) {
      const int k = layout.isSwapped && shape.size() == 4 && (i == 1 || i == 2) ? 3 - i : i;
      strides[k] = next;
      next = next * shape[k] + layout.pad;
      span += (shape[k] - 1) * strides[k];
      elements *= shape[k];
    }
    span = elements == 0 ? 0 : span;
    const int width = elementBytes(dtype);
    const size_t bytes = size_t(span + layout.shift) * width;
    memory.reset(new char[bytes]);
    std::memset(memory.get(), 0xff, bytes); // NaN in every float type
    base = memory.get() + layout.shift * width;
  }
  char* at(int64_t index) const {
    int64_t offset = 0;
    for (int k = int(shape.size()) - 1; k >= 0; --k) {
      offset += index % shape[k] * strides[k];
      index /= shape[k];
    }
    return base + offset * elementBytes(dtype);
  }
  void randomise(std::mt19937_64& random, bool positive) {
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < elements; ++i) {
      const float value = normal(random);
      const double number = dtype == CERMET_I1       ? double(random() % 2)
                            : !tools::isFloat(dtype) ? double(random() % 100) - (dtype == CERMET_U8 ? 0 : 50)
                            : positive               ? 0.5f + std::fabs(value)
                                                     : value;
      tools::writeNumber(at(i), dtype, 0, number);
    }
  }
  std::vector<double> values() const {
    std::vector<double> result(elements);
    for (int64_t i = 0; i < elements; ++i)
      result[i] = tools::readNumber(at(i), dtype, 0);
    return result;
  }
};

//===--- Running a plan -------------------------------------------------------------------------------------------===//

struct Outcome {
  std::vector<Tensor> tensors; // inputs, then outputs
  std::string machineError;
};

Outcome runPlan(const Plan& plan, const PlanKernels& kernels, const Symbols& symbols, const PlanOptions& options,
                const Layout& layout) {
  Outcome outcome;
  std::mt19937_64 random(options.seed);
  std::vector<bool> strided(plan.values.size());
  int vector = 1;
  for (const PlanStep& step : plan.steps)
    for (const PlanProgram& program : step.programs) {
      vector = std::max(vector, program.vector);
      for (const PlanOperand& operand : program.operands)
        if (operand.strided)
          strided[operand.value] = true;
    }
  for (int i = 0; i < plan.inputs + plan.outputs; ++i) {
    Layout own = layout;
    own.pad *= options.scalar ? 1 : vector;
    own.shift = options.scalar ? 1 : layout.shift;
    own.step = strided[i] ? layout.step : 1;
    outcome.tensors.emplace_back(plan, plan.values[i], symbols, own);
    if (i < plan.inputs)
      outcome.tensors.back().randomise(random, plan.values[i].name.rfind("saved", 0) == 0);
  }
  std::vector<cermet_tensor> arguments;
  for (const Tensor& tensor : outcome.tensors)
    arguments.push_back(
        {tensor.base, tensor.shape.data(), tensor.strides.data(), int32_t(tensor.shape.size()), tensor.dtype});
  outcome.machineError = run(plan, kernels, arguments, options);
  return outcome;
}

std::vector<std::vector<double>> interpret(const std::string& text, const Outcome& run, bool honourCasts) {
  std::vector<std::vector<double>> data;
  std::vector<cermet_tensor> tensors;
  for (const Tensor& tensor : run.tensors)
    data.push_back(tensor.values());
  for (size_t i = 0; i < data.size(); ++i)
    tensors.push_back({data[i].data(), run.tensors[i].shape.data(), nullptr, int32_t(run.tensors[i].shape.size()),
                       run.tensors[i].dtype});
  cermet_buffer error{};
  if (compiler().interpret(text.data(), text.size(), honourCasts, tensors.data(), int32_t(tensors.size()), &error) !=
      CERMET_OK)
    throw std::runtime_error(std::string(error.data, error.size));
  return data;
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / std::max(norm, 1e-300));
}

// The plan may stray from float64 by no more than the traced program itself does, plus f32's own noise; integers and
// conditions not at all.
void expectRight(const std::string& text, const Plan& plan, const Outcome& run, const std::string& what) {
  ASSERT_EQ(run.machineError, "") << what;
  const auto truth = interpret(text, run, false), traced = interpret(text, run, true);
  for (size_t i = plan.inputs; i < run.tensors.size(); ++i) {
    const double ours = distance(run.tensors[i].values(), truth[i]), theirs = distance(traced[i], truth[i]);
    EXPECT_LE(ours, tools::isFloat(run.tensors[i].dtype) ? 1.05 * theirs + 1e-6 : 0)
        << what << ": output " << plan.values[i].name << ", traced error " << theirs;
  }
}

void check(const std::string& text, const Symbols& symbols, int64_t step = 1, bool isSwapped = false) {
  const Plan plan = planOf(text);
  const PlanKernels kernels(plan);
  for (bool scalar : {false, true})
    for (int64_t pad : {0, 3}) {
      PlanOptions options;
      options.scalar = scalar;
      options.seed = std::random_device{}();
      const Outcome run = runPlan(plan, kernels, symbols, options, {pad, 0, step, isSwapped});
      expectRight(
          text, plan, run,
          fmt::format("{}, {} entry, pad {}, seed {}", plan.name, scalar ? "scalar" : "vector", pad, options.seed));
    }
}

//===--- Graphs
//------------------------------------------------------------------------------------------------------===//
//-------------------------------------------------------------------------------------------------------//

std::string tile(int64_t columns, const std::string& dtype) {
  return fmt::format("tensor<?x?x{}x{}, #cermet.symbols<[\"r0\", \"r1\"]>>", columns, dtype);
}

std::string rmsNorm(int64_t columns, const std::string& dtype, bool residual) {
  const std::string x = tile(columns, dtype), w = fmt::format("tensor<{}x{}>", columns, dtype);
  if (!residual)
    return fmt::format(
        "module attributes {{cermet.version = 1 : i64}} {{ func.func @rms_norm(%x: {0}, %weight: {1}) -> {0} {{\n"
        "%0 = cermet.rms_norm %x, %weight {{eps = 1.0e-6 : f64, round_before_weight}} : {0}, {1} to {0}\n"
        "return %0 : {0} }} }}",
        x, w);
  return fmt::format("module attributes {{cermet.version = 1 : i64}} {{ func.func @add_rms_norm(%x: {0}, %residual: "
                     "{0}, %weight: {1}) -> ({0}, {0}) {{\n"
                     "%0, %1 = cermet.add_rms_norm %x, %residual, %weight {{eps = 1.0e-5 : f64, round_before_weight}} "
                     ": {0}, {0}, {1} to {0}, {0}\n"
                     "return %0, %1 : {0}, {0} }} }}",
                     x, w);
}

std::string glu(int64_t columns, const std::string& dtype) {
  return fmt::format(
      "module attributes {{cermet.version = 1 : i64}} {{ func.func @glu(%gate: {0}, %up: {0}) -> {0} {{\n"
      "%0 = cermet.glu %gate, %up : {0}\nreturn %0 : {0} }} }}",
      tile(columns, dtype));
}

struct Case {
  int64_t columns;
  std::string dtype;
  int64_t r0, r1;
};

class Simt : public testing::TestWithParam<Case> {
protected:
  Symbols symbols() const { return {{"r0", GetParam().r0}, {"r1", GetParam().r1}}; }
};

TEST_P(Simt, RmsNorm) {
  const std::string text = rmsNorm(GetParam().columns, GetParam().dtype, false);
  const json both = gradient(text, {1, 1});
  check(both["forward"], symbols());
  check(both["backward"], symbols());
}

TEST_P(Simt, AddRmsNorm) {
  const std::string text = rmsNorm(GetParam().columns, GetParam().dtype, true);
  check(text, symbols());
  check(gradient(text, {1, 1, 1})["backward"], symbols());
}

TEST_P(Simt, Glu) {
  const std::string text = glu(GetParam().columns, GetParam().dtype);
  check(text, symbols());
  check(gradient(text, {1, 1})["backward"], symbols());
}

// Widths on both sides of every edge: below one vector, a warp or less a row, several rows a block, a block a row,
// ragged ends, odd widths, rows too long for registers.
INSTANTIATE_TEST_SUITE_P(Widths, Simt,
                         testing::Values(Case{1, "f32", 1, 1}, Case{3, "bf16", 1, 5}, Case{64, "bf16", 3, 7},
                                         Case{128, "f16", 5, 9}, Case{1000, "bf16", 2, 2}, Case{4095, "bf16", 1, 3},
                                         Case{4096, "bf16", 2, 2}, Case{1536, "f32", 2, 2}, Case{70000, "bf16", 1, 2}),
                         [](const auto& info) { return fmt::format("{}{}", info.param.dtype, info.param.columns); });

// A function over tiles of 5 x 7 x columns.
std::string graphOf(const std::string& signature, const std::string& body) {
  return fmt::format("module attributes {{cermet.version = 1 : i64}} {{ func.func @f{} {{\n{}}} }}", signature, body);
}
const Symbols kRows{{"r0", 5}, {"r1", 7}};
std::string rowOf(const std::string& dtype) {
  return tile(1, dtype);
}

TEST(SimtValues, LargestAndSmallest) {
  for (int64_t columns : {3, 100, 1536}) {
    const std::string t = tile(columns, "f32"), r = rowOf("f32");
    check(graphOf(fmt::format("(%x: {0}) -> ({0}, {1})", t, r),
                  fmt::format("%0 = cermet.reduce_max %x : {0} to {1}\n%1 = cermet.reduce_min %x : {0} to {1}\n"
                              "%2 = cermet.broadcast %0 : {1} to {0}\n%3 = cermet.sub %x, %2 : {0}\n"
                              "return %3, %1 : {0}, {1}\n",
                              t, r)),
          kRows);
  }
}

TEST(SimtValues, Softmax) {
  const std::string t = tile(200, "f32"), r = rowOf("f32");
  const std::string text =
      graphOf(fmt::format("(%x: {0}) -> {0}", t),
              fmt::format("%0 = cermet.reduce_max %x : {0} to {1}\n%1 = cermet.broadcast %0 : {1} to {0}\n"
                          "%2 = cermet.sub %x, %1 : {0}\n%3 = cermet.exp %2 : {0}\n"
                          "%4 = cermet.reduce_sum %3 : {0} to {1}\n%5 = cermet.broadcast %4 : {1} to {0}\n"
                          "%6 = cermet.div %3, %5 : {0}\nreturn %6 : {0}\n",
                          t, r));
  check(text, kRows);
  check(gradient(text, {1})["backward"], kRows);
}

TEST(SimtValues, Conditions) {
  const std::string t = tile(48, "bf16"), b = tile(48, "i1");
  check(graphOf(fmt::format("(%x: {0}, %y: {0}, %m: {1}) -> ({0}, {1})", t, b),
                fmt::format("%0 = cermet.compare \"lt\", %x, %y : {0} to {1}\n%1 = cermet.min %0, %m : {1}\n"
                            "%2 = cermet.select %1, %x, %y : {1}, {0}\nreturn %2, %1 : {0}, {1}\n",
                            t, b)),
        kRows);
}

TEST(SimtValues, IntegersOfEveryWidth) {
  for (const char* dtype : {"i64", "i32", "i16", "i8", "ui8"}) {
    SCOPED_TRACE(dtype);
    const std::string t = tile(40, dtype), f = tile(40, "f32");
    check(
        graphOf(fmt::format("(%x: {0}, %y: {0}) -> ({0}, {1})", t, f),
                fmt::format("%0 = cermet.mul %x, %y : {0}\n%1 = cermet.sub %0, %y : {0}\n%2 = cermet.max %1, %x : {0}\n"
                            "%3 = cermet.cast %x : {0} to {1}\nreturn %2, %3 : {0}, {1}\n",
                            t, f)),
        kRows);
  }
}

// Over all their exponents, rounded exactly once, and back.
TEST(SimtValues, FloatsOfEightBits) {
  const std::string f = tile(64, "f32"), a = tile(64, "f8E4M3FN"), b = tile(64, "f8E5M2"), h = tile(64, "bf16");
  const std::string text =
      graphOf(fmt::format("(%x: {0}, %p: {1}, %q: {2}) -> ({0}, {1}, {2}, {3}, {0})", f, a, b, h),
              fmt::format("%0 = cermet.iota 2 : {0}\n%1 = cermet.constant -32.0 : {0}\n%2 = cermet.add %0, %1 : {0}\n"
                          "%3 = cermet.constant 2.0 : {0}\n%4 = cermet.pow %3, %2 : {0}\n%5 = cermet.mul %x, %4 : {0}\n"
                          "%6 = cermet.cast %5 : {0} to {1}\n%7 = cermet.cast %5 : {0} to {2}\n"
                          "%8 = cermet.cast %p : {1} to {3}\n%9 = cermet.cast %q : {2} to {0}\n"
                          "return %5, %6, %7, %8, %9 : {0}, {1}, {2}, {3}, {0}\n",
                          f, a, b, h));
  const Plan plan = planOf(text);
  const PlanKernels kernels(plan);
  const Outcome run = runPlan(plan, kernels, kRows, PlanOptions(), Layout());
  ASSERT_EQ(run.machineError, "");
  const std::vector<double> scaled = run.tensors[3].values();
  for (int output : {4, 5}) {
    const cermet_dtype dtype = run.tensors[output].dtype;
    const std::vector<double> have = run.tensors[output].values();
    for (size_t i = 0; i < scaled.size(); ++i)
      ASSERT_EQ(have[i], tools::fromEightBits(tools::toEightBits(float(scaled[i]), dtype), dtype)) << scaled[i];
  }
  EXPECT_EQ(run.tensors[6].values(), run.tensors[1].values());
  EXPECT_EQ(run.tensors[7].values(), run.tensors[2].values());
}

// Eight bits with a scale for each row, to bf16 and to eight bits with another scale.
TEST(SimtValues, RowsAreQuantisedAgain) {
  for (int64_t columns : {24, 100, 1536}) {
    const std::string f = tile(columns, "f32"), a = tile(columns, "f8E4M3FN"), r = rowOf("f32"),
                      h = tile(columns, "bf16");
    const std::string text =
        graphOf(fmt::format("(%x: {1}, %y: {3}, %s: {2}) -> ({1}, {2}, {3})", f, a, r, h),
                fmt::format("%0 = cermet.cast %x : {1} to {0}\n%1 = cermet.broadcast %s : {2} to {0}\n"
                            "%2 = cermet.mul %0, %1 : {0}\n%3 = cermet.cast %2 : {0} to {3}\n"
                            "%4 = cermet.add %3, %y : {3}\n%5 = cermet.cast %4 : {3} to {0}\n"
                            "%6 = cermet.abs %5 : {0}\n%7 = cermet.reduce_max %6 : {0} to {2}\n"
                            "%8 = cermet.constant 448.0 : {2}\n%9 = cermet.div %7, %8 : {2}\n"
                            "%10 = cermet.broadcast %9 : {2} to {0}\n%11 = cermet.div %5, %10 : {0}\n"
                            "%12 = cermet.cast %11 : {0} to {1}\nreturn %12, %9, %4 : {1}, {2}, {3}\n",
                            f, a, r, h));
    check(text, kRows);
    check(gradient(text, {1, 1, 0})["backward"], kRows);
  }
}

TEST(SimtValues, AStridedOperand) {
  const std::string t = tile(33, "f16");
  for (int64_t step : {1, 2, 5})
    check(graphOf(fmt::format("(%x: {0} {{cermet.strides = array<i64: -1, -1, -1>}}, %y: {0}) -> {0}", t),
                  fmt::format("%0 = cermet.mul %x, %y : {0}\nreturn %0 : {0}\n", t)),
          kRows, step);
}

TEST(SimtValues, AnIndexOperand) {
  const std::string t = tile(16, "f32"), i = tile(16, "i64"), b = tile(16, "i1");
  check(graphOf(fmt::format("(%x: {0}) -> {0}", t),
                fmt::format("%0 = cermet.iota 1 : {1}\n%1 = cermet.iota 2 : {1}\n"
                            "%2 = cermet.compare \"ge\", %0, %1 : {1} to {2}\n%3 = cermet.constant -1.0e4 : {0}\n"
                            "%4 = cermet.select %2, %x, %3 : {2}, {0}\nreturn %4 : {0}\n",
                            t, i, b)),
        kRows);
}

TEST(SimtValues, ViewsAndPartsOfOneTensor) {
  const std::string whole = tile(64, "bf16"), half = tile(32, "bf16");
  check(
      graphOf(fmt::format("(%x: {0}) -> {0}", whole),
              fmt::format("%0 = cermet.slice %x [0, 0, 0] : {0} to {1}\n%1 = cermet.slice %x [0, 0, 32] : {0} to {1}\n"
                          "%2 = cermet.neg %1 : {1}\n%3 = cermet.concat %2, %0 {{dim = 2 : i64}} : {1}, {1} to {0}\n"
                          "return %3 : {0}\n",
                          whole, half)),
      kRows);
}

// Rows of a table by numbers of which some are no row's: elementwise, normed, summed over rows where copies are staged.
TEST(SimtValues, GatheredRows) {
  for (int64_t columns : {3, 64, 1536}) {
    SCOPED_TRACE(columns);
    const std::string t = tile(columns, "bf16"), f = tile(columns, "f32"), b = tile(columns, "i1"),
                      sums = fmt::format("tensor<{}xf32>", columns), w = fmt::format("tensor<{}xbf16>", columns),
                      ids = "tensor<?x?xi8, #cermet.symbols<[\"r0\", \"r1\"]>>",
                      table = fmt::format("tensor<?x{}xbf16, #cermet.symbols<[\"v\"]>>", columns);
    const std::string body =
        fmt::format("%0 = cermet.gather %x, %i : {0}, {1} to {2}\n%1 = cermet.compare \"eq\", %0, %0 : {2} to {3}\n"
                    "%2 = cermet.constant 0.5 : {2}\n%3 = cermet.select %1, %0, %2 : {3}, {2}\n",
                    table, ids, t, b);
    const Symbols symbols{{"r0", 5}, {"r1", 7}, {"v", 40}};
    check(graphOf(fmt::format("(%x: {0}, %i: {1}) -> {2}", table, ids, t), body + fmt::format("return %3 : {}\n", t)),
          symbols);
    check(graphOf(fmt::format("(%x: {0} {{cermet.strides = array<i64: -1, -1>}}, %i: {1}) -> {2}", table, ids, t),
                  body + fmt::format("return %3 : {}\n", t)),
          symbols, 3);
    check(graphOf(
              fmt::format("(%x: {0}, %i: {1}, %w: {2}) -> {3}", table, ids, w, t),
              body + fmt::format("%4 = cermet.rms_norm %3, %w {{eps = 1.0e-6, round_before_weight}} : {0}, {1} to {0}\n"
                                 "return %4 : {0}\n",
                                 t, w)),
          symbols);
    const std::string summed =
        graphOf(fmt::format("(%x: {0}, %i: {1}, %g: {2}) -> {3}", table, ids, f, sums),
                body + fmt::format("%4 = cermet.cast %3 : {0} to {1}\n%5 = cermet.mul %4, %g : {1}\n"
                                   "%6 = cermet.sum_rows %5 : {1} to {2}\nreturn %6 : {2}\n",
                                   t, f, sums));
    check(summed, symbols);
    KernelSpec spec;
    ASSERT_EQ(parse(planOf(summed).steps[0].spec, spec), "");
    EXPECT_EQ(spec.programs[0].schedule.stages > 0, columns > 3);
  }
}

//===--- Programs side by side ------------------------------------------------------------------------------------===//

// Queries of four heads and keys of two by a factor that they share, elementwise or after a norm of their own; a third
// program shares it with them. `s` and `t` are their tokens.
std::string besideGraph(int64_t columns, const std::string& dtype, bool isNormed) {
  const auto of = [&](int heads, const std::string& tokens) {
    const std::string symbol = tokens.empty() ? "" : fmt::format(", \"{}\"", tokens);
    return fmt::format("tensor<?x{}x{}x{}x{}, #cermet.symbols<[\"b\"{}]>>", heads, tokens.empty() ? "1" : "?", columns,
                       dtype, symbol);
  };
  const std::string q = of(4, "s"), k = of(2, "t"), v = of(3, ""), c = of(1, ""),
                    w = fmt::format("tensor<{}x{}>", columns, dtype);
  std::string body;
  for (const auto& [name, type] : {std::pair{"q", q}, {"k", k}, {"v", v}}) {
    if (isNormed)
      body += fmt::format("%n{0} = cermet.rms_norm %{0}, %w {{eps = 1.0e-6, round_before_weight}} : {1}, {2} to {1}\n",
                          name, type, w);
    body += fmt::format("%c{0} = cermet.broadcast %c : {1} to {2}\n%r{0} = cermet.mul %{3}{0}, %c{0} : {2}\n", name, c,
                        type, isNormed ? "n" : "");
  }
  return graphOf(fmt::format("(%q: {0}, %k: {1}, %v: {2}, %c: {3}, %w: {4}) -> ({0}, {1}, {2})", q, k, v, c, w),
                 body + fmt::format("return %rq, %rk, %rv : {}, {}, {}\n", q, k, v));
}

TEST(SimtBeside, ProgramsOfTheirOwnRows) {
  for (bool isNormed : {false, true})
    for (const auto& [columns, dtype] : {std::pair<int64_t, const char*>{64, "bf16"}, {3, "f32"}, {200, "f16"}}) {
      const std::string text = besideGraph(columns, dtype, isNormed);
      SCOPED_TRACE(text);
      const Plan plan = planOf(text);
      ASSERT_EQ(plan.steps.size(), 1u);
      ASSERT_EQ(plan.steps[0].programs.size(), 3u);
      check(text, {{"b", 2}, {"s", 5}, {"t", 7}});
      check(text, {{"b", 2}, {"s", 5}, {"t", 7}}, 1, true);
    }
}

// Rotary position embedding of queries and keys that lie as [tokens, heads]: one launch.
TEST(SimtBeside, QueriesAndKeysAreTurned) {
  const auto of = [](int heads, int64_t columns) {
    return fmt::format("tensor<?x{}x?x{}xbf16, #cermet.symbols<[\"b\", \"s\"]>>", heads, columns);
  };
  const std::string q = of(4, 64), k = of(2, 64), c = of(1, 64);
  std::string body;
  for (const auto& [name, heads] : {std::pair{"q", 4}, {"k", 2}})
    body += fmt::format("%cos{0} = cermet.broadcast %cos : {3} to {1}\n%sin{0} = cermet.broadcast %sin : {3} to {1}\n"
                        "%plain{0} = cermet.mul %{0}, %cos{0} : {1}\n"
                        "%low{0} = cermet.slice %{0} [0, 0, 0, 0] : {1} to {2}\n"
                        "%high{0} = cermet.slice %{0} [0, 0, 0, 32] : {1} to {2}\n"
                        "%negated{0} = cermet.neg %high{0} : {2}\n"
                        "%rotated{0} = cermet.concat %negated{0}, %low{0} {{dim = 3 : i64}} : {2}, {2} to {1}\n"
                        "%turned{0} = cermet.mul %rotated{0}, %sin{0} : {1}\n"
                        "%new{0} = cermet.add %plain{0}, %turned{0} : {1}\n",
                        name, of(heads, 64), of(heads, 32), c);
  const std::string text =
      graphOf(fmt::format("(%q: {0}, %k: {1}, %cos: {2}, %sin: {2}) -> ({0}, {1})", q, k, c),
              body + fmt::format("return %newq, %newk : {}, {}\n", q, k));
  const Plan plan = planOf(text);
  ASSERT_EQ(plan.steps.size(), 1u);
  ASSERT_EQ(plan.steps[0].programs.size(), 2u);
  for (bool isSwapped : {false, true})
    check(text, {{"b", 2}, {"s", 5}}, 1, isSwapped);
}

TEST(SimtBeside, AProgramWithoutRows) {
  for (bool isNormed : {false, true}) {
    const std::string text = besideGraph(64, "bf16", isNormed);
    check(text, {{"b", 2}, {"s", 0}, {"t", 7}});
    check(text, {{"b", 2}, {"s", 5}, {"t", 0}});
    check(text, {{"b", 0}, {"s", 5}, {"t", 7}});
  }
}

// An index goes with its rows when they are walked in another order than the graph's.
TEST(SimtValues, AnIndexOfRowsThatLieInAnotherOrder) {
  const std::string t = "tensor<?x3x?x16xf32, #cermet.symbols<[\"b\", \"s\"]>>",
                    i = "tensor<?x3x?x16xi64, #cermet.symbols<[\"b\", \"s\"]>>";
  for (int dim : {0, 1, 2})
    check(graphOf(fmt::format("(%x: {0}) -> {0}", t),
                  fmt::format("%0 = cermet.iota {0} : {2}\n%1 = cermet.cast %0 : {2} to {1}\n"
                              "%2 = cermet.mul %x, %1 : {1}\nreturn %2 : {1}\n",
                              dim, t, i)),
          {{"b", 2}, {"s", 5}}, 1, true);
}

//===--- Controls -------------------------------------------------------------------------------------------------===//

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  if (at == std::string::npos)
    throw std::runtime_error("the control's text has no " + from);
  return text.replace(at, from.size(), to);
}

TEST(Control, AMissingBarrierIsFound) {
  const std::string text = rmsNorm(4096, "bf16", false);
  const Plan plan = planOf(text);
  const PlanKernels kernels(plan, [](std::string kernel) {
    return replaced(std::move(kernel), "    barrier();\n    const int first", "    const int first");
  });
  bool found = false;
  for (uint64_t seed = 1; seed <= 3 && !found; ++seed) {
    PlanOptions options;
    options.seed = seed;
    const Outcome run = runPlan(plan, kernels, {{"r0", 1}, {"r1", 2}}, options, {});
    found = !run.machineError.empty() || !(distance(run.tensors[2].values(), interpret(text, run, false)[2]) < 1e-2);
  }
  EXPECT_TRUE(found);
}

TEST(Control, AMissingWaitIsFound) {
  const std::string text = gradient(rmsNorm(2048, "bf16", false), {1, 1})["backward"];
  const Plan plan = planOf(text);
  const PlanKernels kernels(
      plan, [](std::string kernel) { return replaced(std::move(kernel), "wait_async<P::kStages - 1>();", ""); });
  ASSERT_GT(kernels.spec(0).programs[0].schedule.stages, 0);
  const Outcome run = runPlan(plan, kernels, {{"r0", 2}, {"r1", 3}}, {}, {});
  bool poisoned = false;
  for (const Tensor& tensor : run.tensors)
    for (double value : tensor.values())
      poisoned |= std::isnan(value);
  EXPECT_TRUE(poisoned);
}

TEST(Control, ADivergentBarrierIsFound) {
  const Plan plan = planOf(rmsNorm(4096, "bf16", false));
  const PlanKernels kernels(plan, [](std::string kernel) {
    return replaced(std::move(kernel), "    barrier();\n    const int first",
                    "    if (thread_index() != 5) barrier();\n    const int first");
  });
  const Outcome run = runPlan(plan, kernels, {{"r0", 1}, {"r1", 2}}, {}, {});
  EXPECT_NE(run.machineError.find("wait at a barrier"), std::string::npos) << run.machineError;
}

TEST(Control, AMisalignedVectorIsFound) {
  const Plan plan = planOf(glu(64, "bf16"));
  const PlanKernels kernels(plan);
  PlanOptions options;
  options.forceVector = true;
  const Outcome run = runPlan(plan, kernels, {{"r0", 1}, {"r1", 1}}, options, {0, 1, 1});
  EXPECT_NE(run.machineError.find("not aligned"), std::string::npos) << run.machineError;
}

TEST(ControlDeathTest, AReadPastTheEndIsFound) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Plan plan = planOf(rmsNorm(64, "bf16", false));
  EXPECT_DEATH(
      {
        const PlanKernels kernels(plan);
        PlanOptions options;
        options.extraRows = 1;
        runPlan(plan, kernels, {{"r0", 1}, {"r1", 3}}, options, {});
      },
      "AddressSanitizer: heap-buffer-overflow");
}

} // namespace
} // namespace cermet::simt
