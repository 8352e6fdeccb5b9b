// The CUDA text of real plans, run on the CPU by the machine of Machine.h under AddressSanitizer and UBSan, against the
// float64 interpreter; and the controls: each kind of mistake, planted, must be found.
#include "compiler/CompilerApi.h"
#include "compiler/EmitCuda.h"
#include "runtime/RowArguments.h"
#include "tests/simt/Library.h"
#include "tests/simt/Machine.h"

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

//===--- Asking the compiler
//------------------------------------------------------------------------------------------//

const cermet_compiler_table& compiler() {
  return *cermet_compiler_table_v1();
}
const cermet_compiler_options kOptions = {"", ""};

json answer(cermet_status status, cermet_buffer& text, cermet_buffer& error) {
  cermet_buffer& used = status == CERMET_OK ? text : error;
  const std::string content(used.data, used.size);
  compiler().release(&used);
  if (status != CERMET_OK)
    throw std::runtime_error(content);
  return json::parse(content);
}

json plan(const std::string& text) {
  cermet_buffer result{}, error{};
  return answer(compiler().compile(text.data(), text.size(), "sm_90", &kOptions, &result, &error), result, error);
}

json gradient(const std::string& text, const std::vector<uint8_t>& wanted) {
  cermet_buffer result{}, error{};
  return answer(compiler().differentiate(text.data(), text.size(), wanted.data(), int32_t(wanted.size()), &kOptions,
                                         &result, &error),
                result, error);
}

//===--- Tensors
//------------------------------------------------------------------------------------------------------//

int bytesOf(const std::string& dtype) {
  return dtype == "f32" ? 4 : 2;
}

double decode(const char* at, const std::string& dtype) {
  if (dtype == "f32") {
    float value;
    std::memcpy(&value, at, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  if (dtype == "bf16") {
    const uint32_t wide = uint32_t(bits) << 16;
    float value;
    std::memcpy(&value, &wide, 4);
    return value;
  }
  _Float16 value;
  std::memcpy(&value, &bits, 2);
  return double(value);
}

void encode(char* at, const std::string& dtype, float value) {
  if (dtype == "f32") {
    std::memcpy(at, &value, 4);
  } else if (dtype == "bf16") {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    const uint16_t half = uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
    std::memcpy(at, &half, 2);
  } else {
    const _Float16 half = _Float16(value);
    std::memcpy(at, &half, 2);
  }
}

// A tensor in memory of exactly its extent, so that AddressSanitizer sees the byte after it. Rows are `pad` elements
// apart beyond their width at every level, so that no two extents collapse when pad is not 0.
struct Tensor {
  std::string dtype;
  std::vector<int64_t> shape, strides;
  std::unique_ptr<char[]> memory;
  char* base = nullptr;
  int64_t elements = 1;

  Tensor(const json& value, const std::map<std::string, int64_t>& symbols, int64_t pad, int64_t shift)
      : dtype(value["dtype"]) {
    for (const json& dim : value["dims"])
      shape.push_back(dim.is_string() ? symbols.at(dim) : dim.get<int64_t>());
    strides.resize(shape.size());
    int64_t span = 1;
    for (int k = int(shape.size()) - 1; k >= 0; --k) {
      strides[k] = k + 1 == int(shape.size()) ? 1 : strides[k + 1] * shape[k + 1] + pad;
      span += (shape[k] - 1) * strides[k];
      elements *= shape[k];
    }
    const size_t size = size_t(span + shift) * bytesOf(dtype);
    memory.reset(new char[size]);
    base = memory.get() + shift * bytesOf(dtype);
    for (int64_t i = 0; i < span; ++i)
      encode(base + i * bytesOf(dtype), dtype, NAN);
  }
  char* at(int64_t index) const {
    int64_t offset = 0;
    for (int k = int(shape.size()) - 1; k >= 0; --k) {
      offset += index % shape[k] * strides[k];
      index /= shape[k];
    }
    return base + offset * bytesOf(dtype);
  }
  void randomise(std::mt19937_64& random, bool positive) {
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < elements; ++i) {
      const float value = normal(random);
      encode(at(i), dtype, positive ? 0.5f + std::fabs(value) : value);
    }
  }
  std::vector<double> values() const {
    std::vector<double> result(elements);
    for (int64_t i = 0; i < elements; ++i)
      result[i] = decode(at(i), dtype);
    return result;
  }
};

int32_t dtypeCode(const std::string& dtype) {
  return dtype == "f32" ? CERMET_F32 : dtype == "bf16" ? CERMET_BF16 : CERMET_F16;
}

//===--- Running one kernel step
//--------------------------------------------------------------------------------------//

struct Outcome {
  std::vector<Tensor> tensors;
  std::string machineError;
};

struct Options {
  bool scalar = false;
  uint64_t seed = 1;
  int64_t blocks = 2;    // of a persistent kernel
  int64_t pad = 0;       // see Tensor
  int64_t extraRows = 0; // how much larger the outermost extent is in the arguments than in memory
  int64_t shift = 0;     // elements by which every base is off its allocation
};

Outcome runStep(const json& plan, const Library& library, const KernelSpec& spec,
                const std::map<std::string, int64_t>& symbols, const Options& options) {
  const json& step = plan["steps"][0];
  Outcome run;
  std::mt19937_64 random(options.seed);
  const int64_t vector = options.scalar ? 1 : spec.schedule.vector;
  for (const json& value : plan["values"]) {
    run.tensors.emplace_back(value, symbols, options.pad * vector, options.scalar ? 1 : options.shift);
    if (value["kind"] == "input")
      run.tensors.back().randomise(random, value["name"].get<std::string>().rfind("saved", 0) == 0);
  }

  RowArguments arguments{};
  std::vector<int64_t> extents;
  for (const json& operand : step["operands"]) {
    const Tensor& tensor = run.tensors[operand["value"]];
    if (operand["kind"] == "tile")
      extents.assign(tensor.shape.begin(), tensor.shape.end() - 1);
  }
  extents.front() += options.extraRows;
  arguments.rows = 1;
  arguments.rowRank = int64_t(extents.size());
  std::fill(arguments.extent, arguments.extent + 4, 1);
  for (size_t k = 0; k < extents.size(); ++k) {
    arguments.extent[4 - extents.size() + k] = extents[k];
    arguments.rows *= extents[k];
  }
  int index = 0;
  for (const json& operand : step["operands"]) {
    const Tensor& tensor = run.tensors[operand["value"]];
    RowOperand& target = arguments.operand[index++];
    target.base = tensor.base;
    if (operand["kind"] == "tile" || operand["kind"] == "row")
      for (size_t k = 0; k < extents.size(); ++k)
        target.stride[4 - extents.size() + k] = tensor.strides[k];
  }

  const Schedule& schedule = spec.schedule;
  const int64_t groups =
      schedule.skeleton == Skeleton::Flat
          ? (arguments.rows * spec.program.columns / vector + schedule.threads - 1) / schedule.threads
          : (arguments.rows + schedule.threads / schedule.threadsPerRow - 1) /
                (schedule.threads / schedule.threadsPerRow);
  Grid grid{schedule.blocksPerSm ? std::min(groups, options.blocks) : groups, 1, schedule.threads,
            schedule.sharedBytes};
  arguments.partialRows = grid.x;
  const int accumulators = step["accumulators"];
  std::vector<float> partials(size_t(accumulators) * grid.x * spec.program.columns, NAN);
  arguments.partials = partials.data();

  const KernelEntries entries = kernelEntries(spec);
  run.machineError = simt::run(library.kernel(options.scalar ? entries.scalar : entries.vector), library.calls(),
                               &arguments, grid, options.seed);
  if (run.machineError.empty() && accumulators > 0)
    run.machineError = simt::run(library.kernel(entries.fold), library.calls(), &arguments,
                                 {(spec.program.columns + 31) / 32, accumulators, 1024, 0}, options.seed + 1);
  return run;
}

KernelSpec specOf(const json& plan) {
  EXPECT_EQ(plan["steps"].size(), 1u);
  KernelSpec spec;
  const std::string problem = parse(plan["steps"][0]["spec"].get<std::string>(), spec);
  if (!problem.empty())
    throw std::runtime_error(problem);
  return spec;
}

std::vector<std::vector<double>> interpret(const std::string& text, const json& plan, const Outcome& run,
                                           bool honourCasts) {
  std::vector<std::vector<double>> data;
  std::vector<cermet_tensor> tensors;
  for (size_t i = 0; i < run.tensors.size(); ++i)
    data.push_back(run.tensors[i].values());
  for (size_t i = 0; i < run.tensors.size(); ++i)
    tensors.push_back({data[i].data(), run.tensors[i].shape.data(), nullptr, int32_t(run.tensors[i].shape.size()),
                       dtypeCode(run.tensors[i].dtype)});
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

// The kernel may stray from float64 by no more than the traced program itself does, plus f32's own noise.
void expectRight(const std::string& text, const json& plan, const Outcome& run, const std::string& what) {
  ASSERT_EQ(run.machineError, "") << what;
  const auto truth = interpret(text, plan, run, false), traced = interpret(text, plan, run, true);
  for (size_t i = 0; i < run.tensors.size(); ++i) {
    if (plan["values"][i]["kind"] != "output")
      continue;
    const double ours = distance(run.tensors[i].values(), truth[i]), theirs = distance(traced[i], truth[i]);
    EXPECT_LE(ours, 1.05 * theirs + 1e-6)
        << what << ": output " << plan["values"][i]["name"] << ", traced error " << theirs;
  }
}

void check(const std::string& text, const std::map<std::string, int64_t>& symbols) {
  const json compiled = plan(text);
  const KernelSpec spec = specOf(compiled);
  const Library library(emitKernel(spec));
  for (bool scalar : {false, true})
    for (int64_t pad : {0, 3}) {
      Options options;
      options.scalar = scalar;
      options.pad = pad;
      options.seed = std::random_device{}();
      const Outcome run = runStep(compiled, library, spec, symbols, options);
      expectRight(text, compiled, run,
                  fmt::format("{}, {} entry, pad {}, seed {}", spec.program.name, scalar ? "scalar" : "vector", pad,
                              options.seed));
    }
}

//===--- Graphs
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
  std::map<std::string, int64_t> symbols() const { return {{"r0", GetParam().r0}, {"r1", GetParam().r1}}; }
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
                         testing::Values(Case{1, "f32", 2, 3}, Case{3, "bf16", 1, 5}, Case{64, "bf16", 3, 7},
                                         Case{128, "f16", 5, 9}, Case{1000, "bf16", 2, 2}, Case{4095, "bf16", 1, 3},
                                         Case{4096, "bf16", 2, 2}, Case{1536, "f32", 2, 2}, Case{70000, "bf16", 1, 2}),
                         [](const auto& info) { return fmt::format("{}{}", info.param.dtype, info.param.columns); });

//===--- Controls
//-----------------------------------------------------------------------------------------------------//

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  if (at == std::string::npos)
    throw std::runtime_error("the control's text has no " + from);
  return text.replace(at, from.size(), to);
}

TEST(Control, AMissingBarrierIsFound) {
  const std::string text = rmsNorm(4096, "bf16", false);
  const json compiled = plan(text);
  const KernelSpec spec = specOf(compiled);
  const Library library(replaced(emitKernel(spec), "    barrier();\n    const int first", "    const int first"));
  bool found = false;
  for (uint64_t seed = 1; seed <= 3 && !found; ++seed) {
    Options options;
    options.seed = seed;
    const Outcome run = runStep(compiled, library, spec, {{"r0", 1}, {"r1", 2}}, options);
    found = !run.machineError.empty() ||
            !(distance(run.tensors[2].values(), interpret(text, compiled, run, false)[2]) < 1e-2);
  }
  EXPECT_TRUE(found);
}

TEST(Control, AMissingWaitIsFound) {
  const std::string text = gradient(rmsNorm(2048, "bf16", false), {1, 1})["backward"];
  const json compiled = plan(text);
  const KernelSpec spec = specOf(compiled);
  ASSERT_GT(spec.schedule.stages, 0);
  const Library library(replaced(emitKernel(spec), "wait_async<P::kStages - 1>();", ""));
  const Outcome run = runStep(compiled, library, spec, {{"r0", 2}, {"r1", 3}}, {});
  bool poisoned = false;
  for (const Tensor& tensor : run.tensors)
    for (double value : tensor.values())
      poisoned |= std::isnan(value);
  EXPECT_TRUE(poisoned);
}

TEST(Control, ADivergentBarrierIsFound) {
  const std::string text = rmsNorm(4096, "bf16", false);
  const json compiled = plan(text);
  const KernelSpec spec = specOf(compiled);
  const Library library(replaced(emitKernel(spec), "    barrier();\n    const int first",
                                 "    if (thread_index() != 5) barrier();\n    const int first"));
  const Outcome run = runStep(compiled, library, spec, {{"r0", 1}, {"r1", 2}}, {});
  EXPECT_NE(run.machineError.find("wait at a barrier"), std::string::npos) << run.machineError;
}

TEST(Control, AMisalignedVectorIsFound) {
  const std::string text = glu(64, "bf16");
  const json compiled = plan(text);
  const KernelSpec spec = specOf(compiled);
  const Library library(emitKernel(spec));
  Options options;
  options.shift = 1;
  const Outcome run = runStep(compiled, library, spec, {{"r0", 1}, {"r1", 1}}, options);
  EXPECT_NE(run.machineError.find("not aligned"), std::string::npos) << run.machineError;
}

TEST(ControlDeathTest, AReadPastTheEndIsFound) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::string text = rmsNorm(64, "bf16", false);
  const json compiled = plan(text);
  const KernelSpec spec = specOf(compiled);
  EXPECT_DEATH(
      {
        const Library library(emitKernel(spec));
        Options options;
        options.extraRows = 1;
        runStep(compiled, library, spec, {{"r0", 1}, {"r1", 3}}, options);
      },
      "AddressSanitizer: heap-buffer-overflow");
}

} // namespace
} // namespace cermet::simt
