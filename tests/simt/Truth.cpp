#include "tests/simt/Truth.h"
#include "runtime/abi/CompilerApi.h"
#include "frontends/tools/Numbers.h"
#include "runtime/abi/ElementType.h"
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace cermet::simt {

using nlohmann::json;

//===--- Asking the compiler --------------------------------------------------------------------------------------===//

namespace {

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

} // namespace

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

Tensor::Tensor(const Plan& plan, const PlanValue& value, const Symbols& symbols, const Layout& layout)
    : dtype(value.dtype) {
  for (int dim = 0; dim < value.rank; ++dim) {
    const Dimension& dimension = value.dims[dim];
    shape.push_back(dimension.symbolic() ? symbols.at(plan.symbols[dimension.symbol]) : dimension.size);
  }
  strides.resize(shape.size());
  int64_t span = 1, next = layout.step;
  for (int i = int(shape.size()) - 1; i >= 0; --i) {
    const int last = int(shape.size()) - 1;
    const bool isTurned = layout.isTurned && last > 0;
    const int k = isTurned && i >= last - 1                                          ? 2 * last - 1 - i
                  : layout.isSwapped && !isTurned && last == 3 && (i == 1 || i == 2) ? 3 - i
                                                                                     : i;
    strides[k] = next;
    next = next * shape[k] + layout.pad;
    span += (shape[k] - 1) * strides[k];
    elements *= shape[k];
  }
  span = elements == 0 ? 0 : span;
  const int width = elementBytes(dtype);
  const size_t bytes = size_t(span + layout.shift) * width;
  memory.reset(new char[bytes]);
  std::memset(memory.get(), 0xff, bytes);
  base = memory.get() + layout.shift * width;
}

char* Tensor::at(int64_t index) const {
  int64_t offset = 0;
  for (int k = int(shape.size()) - 1; k >= 0; --k) {
    offset += index % shape[k] * strides[k];
    index /= shape[k];
  }
  return base + offset * elementBytes(dtype);
}

void Tensor::randomise(std::mt19937_64& random, bool positive) {
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < elements; ++i) {
    const float value = normal(random);
    const double number = dtype == CERMET_I1 ? double(random() % 2)
                          : !tools::isFloat(dtype)
                              ? double(random() % 100) - (kElementTypes[dtype].format.isSigned ? 50 : 0)
                          : positive ? 0.5f + std::fabs(value)
                                     : value;
    tools::writeNumber(at(i), dtype, 0, number);
  }
}

std::vector<double> Tensor::values() const {
  std::vector<double> result(elements);
  for (int64_t i = 0; i < elements; ++i)
    result[i] = tools::readNumber(at(i), dtype, 0);
  return result;
}

//===--- Running a plan -------------------------------------------------------------------------------------------===//

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
    own.isTurned &= strided[i];
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

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / std::max(norm, 1e-300));
}

namespace {

std::vector<std::vector<double>> interpret(const std::string& text, const Outcome& run,
                                           std::vector<std::vector<double>> data, bool honourCasts) {
  std::vector<cermet_tensor> tensors;
  for (size_t i = 0; i < data.size(); ++i)
    tensors.push_back({data[i].data(), run.tensors[i].shape.data(), nullptr, int32_t(run.tensors[i].shape.size()),
                       run.tensors[i].dtype});
  cermet_buffer error{};
  if (compiler().interpret(text.data(), text.size(), honourCasts, tensors.data(), int32_t(tensors.size()), &error) !=
      CERMET_OK)
    throw std::runtime_error(std::string(error.data, error.size));
  return data;
}

// How far the results move when inputs do by up to a unit in the last place of f32: closer than about this no arithmetic
// in f32 comes, and it is far where large terms cancel.
std::vector<double> conditions(const std::string& text, const Outcome& run,
                               const std::vector<std::vector<double>>& truth) {
  std::mt19937_64 random(truth.size());
  std::uniform_real_distribution<double> by(-0x1p-23, 0x1p-23);
  std::vector<double> most(truth.size());
  for (int trial = 0; trial < 4; ++trial) {
    std::vector<std::vector<double>> moved;
    for (const Tensor& tensor : run.tensors) {
      moved.push_back(tensor.values());
      for (double& number : moved.back())
        number *= tools::isFloat(tensor.dtype) ? 1 + by(random) : 1;
    }
    moved = interpret(text, run, std::move(moved), false);
    for (size_t i = 0; i < truth.size(); ++i)
      most[i] = std::max(most[i], distance(moved[i], truth[i]));
  }
  return most;
}

} // namespace

std::vector<std::vector<double>> interpret(const std::string& text, const Outcome& run, bool honourCasts) {
  std::vector<std::vector<double>> data;
  for (const Tensor& tensor : run.tensors)
    data.push_back(tensor.values());
  return interpret(text, run, std::move(data), honourCasts);
}

void expectRight(const std::string& text, const Plan& plan, const Outcome& run, const std::string& what) {
  ASSERT_EQ(run.machineError, "") << what;
  const auto truth = interpret(text, run, false), traced = interpret(text, run, true);
  std::vector<double> condition;
  for (size_t i = plan.inputs; i < run.tensors.size(); ++i) {
    const double ours = distance(run.tensors[i].values(), truth[i]), theirs = distance(traced[i], truth[i]);
    double most = tools::isFloat(run.tensors[i].dtype) ? 1.05 * theirs + 1e-6 : 0;
    if (ours > most && most > 0) {
      if (condition.empty())
        condition = conditions(text, run, truth);
      most += 2 * condition[i];
    }
    EXPECT_LE(ours, most) << what << ": output " << plan.values[i].name << ", traced error " << theirs;
  }
}

void check(const std::string& text, const Symbols& symbols, int64_t step, bool isSwapped) {
  check(text, std::vector{symbols}, {{0, 0, step, isSwapped}, {3, 0, step, isSwapped}});
}

void check(const std::string& text, const std::vector<Symbols>& all, const std::vector<Layout>& layouts) {
  const Plan plan = planOf(text);
  const PlanKernels kernels(plan);
  for (const Symbols& symbols : all)
    for (bool scalar : {false, true})
      for (const Layout& layout : layouts) {
        PlanOptions options;
        options.scalar = scalar;
        options.seed = std::random_device{}();
        std::string what = fmt::format("{}, {} entry, pad {}, seed {}", plan.name, scalar ? "scalar" : "vector",
                                       layout.pad, options.seed);
        for (const auto& [name, size] : symbols)
          what += fmt::format(", {} {}", name, size);
        expectRight(text, plan, runPlan(plan, kernels, symbols, options, layout), what);
      }
}

//===--- Graphs ---------------------------------------------------------------------------------------------------===//

std::string tile(int64_t columns, const std::string& dtype) {
  return fmt::format("tensor<?x?x{}x{}, #cermet.symbols<[\"r0\", \"r1\"]>>", columns, dtype);
}

std::string graphOf(const std::string& signature, const std::string& body) {
  return fmt::format("module attributes {{cermet.version = 1 : i64}} {{ func.func @f{} {{\n{}}} }}", signature, body);
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

} // namespace cermet::simt
