#include "tests/fuzz/Oracle.h"
#include "frontends/tools/Numbers.h"
#include "ir/dialect/Formula.h"
#include "ir/text/Text.h"
#include <fmt/format.h>
#include <random>

using namespace mlir;

namespace cermet::fuzz {
namespace {

constexpr int kNoisyRuns = 8;

Type elementOf(mlir::Value value) {
  return llvm::cast<RankedTensorType>(value.getType()).getElementType();
}

double unit(Type element) { // between 1 and the next number
  return isa<Float8E5M2Type>(element)     ? 0x1p-2
         : isa<Float8E4M3FNType>(element) ? 0x1p-3
         : element.isBF16()               ? 0x1p-7
         : element.isF16()                ? 0x1p-10
                                          : 0x1p-23;
}

bool isWhole(double number) {
  return number == std::floor(number);
}

// Moves elements or chooses among them: rounds nothing.
bool isExactOperation(Operation& op) {
  return isa<ir::NegOp, ir::AbsOp, ir::ReluOp, ir::MaxOp, ir::MinOp, ir::SelectOp, ir::BroadcastOp, ir::ReshapeOp,
             ir::TransposeOp, ir::SliceOp, ir::ConcatOp, ir::GatherOp, ir::PickOp, ir::IotaOp, ir::ReduceMaxOp,
             ir::ReduceMinOp>(op);
}

} // namespace

Oracle::Oracle(ModuleOp graph, std::vector<ir::Array> given) : graph(graph), inputs(std::move(given)) {
  if (ir::interpret(graph, inputs, true, tracedOutputs, message))
    ir::interpret(graph, inputs, false, truth, message);
}

bool Oracle::isFinite() const {
  for (const auto* outputs : {&truth, &tracedOutputs})
    for (const ir::Array& output : *outputs)
      for (double number : output.data)
        if (!std::isfinite(number))
          return false;
  return true;
}

Oracle::Distance Oracle::distance(const ir::Array& a, const ir::Array& truth) {
  double difference = 0, norm = 0, largest = 0, size = 0;
  for (size_t i = 0; i < truth.data.size(); ++i) {
    double by = std::fabs(a.data[i] - truth.data[i]);
    if (std::isnan(by))
      return {NAN, NAN};
    difference += by * by;
    norm += truth.data[i] * truth.data[i];
    largest = std::max(largest, by);
    size = std::max(size, std::fabs(truth.data[i]));
  }
  return norm > 0 ? Distance{std::sqrt(difference / norm), largest / size} : Distance{std::sqrt(difference), largest};
}

// Programs that differ from the truth by a random relative amount in every element of every result that is rounded.
// What the interpreter rounds without changing anything (whole numbers) stays as it is.
void Oracle::runNoisy() {
  OwningOpRef<ModuleOp> copy = graph.clone();
  func::FuncOp function = ir::graphFunction(*copy);
  Block& block = function.getBody().front();
  std::vector<Operation*> ops;
  SmallVector<mlir::Value> all;
  for (Operation& op : block.without_terminator())
    if (op.getNumResults() == 1) {
      ops.push_back(&op);
      all.push_back(op.getResult(0));
    }
  SmallVector<mlir::Value> results(block.getTerminator()->getOperands());
  auto setResults = [&](ArrayRef<mlir::Value> values) {
    block.getTerminator()->setOperands(values);
    function.setType(FunctionType::get(copy->getContext(), block.getArgumentTypes(), ValueRange(values).getTypes()));
  };
  setResults(all);
  std::vector<ir::Array> exact, rounded;
  std::string ignored;
  if (!ir::interpret(*copy, inputs, false, exact, ignored) || !ir::interpret(*copy, inputs, true, rounded, ignored))
    return;

  OpBuilder builder(copy->getContext());
  std::vector<std::pair<ir::Array, double>> noises; // shape, amplitude
  auto disturb = [&](mlir::Value value, const ir::Array& array, double amplitude) {
    mlir::Value noise = block.addArgument(value.getType(), builder.getUnknownLoc());
    noises.push_back({{array.shape, {}}, amplitude});
    return ir::MulOp::create(builder, builder.getUnknownLoc(), value.getType(), value, noise).getResult();
  };
  llvm::DenseMap<mlir::Value, size_t> indices; // of what an operation reads, disturbed or not
  for (auto [index, op] : llvm::enumerate(ops)) {
    mlir::Value result = op->getResult(0);
    indices[result] = index;
    if (!isa<FloatType>(elementOf(result)) || isExactOperation(*op))
      continue;
    bool isSum = isa<ir::ReduceSumOp, ir::CumsumOp, ir::SumRowsOp>(op);
    mlir::Value operand = op->getNumOperands() ? op->getOperand(0) : mlir::Value();
    auto argument = llvm::dyn_cast_or_null<BlockArgument>(operand);
    // A kernel computes what gelu_tanh takes the exponential of in f32: far out that is as if its operand were off.
    bool hasArgument = isa<ir::GeluTanhOp>(op);
    const ir::Array* terms = !isSum && !hasArgument ? nullptr
                             : argument             ? &inputs[argument.getArgNumber()]
                                                    : &exact[indices.at(operand)];
    // A sum that happens to be a number of its type is not exact for that: a kernel rounds what it adds up on the way.
    if (exact[index].data == rounded[index].data && (!isSum || llvm::all_of(terms->data, isWhole)))
      continue;
    double off = hasArgument ? 0x1p-23 : 0;
    if (isSum) {
      // A kernel adds in f32: a sum of n terms may be off by n roundings of partial sums, as if each term were off by
      // the root of n.
      double each = isa<ir::CumsumOp>(op) ? double(terms->shape.back())
                                          : double(terms->data.size()) / std::max<size_t>(exact[index].data.size(), 1);
      off = 0x1p-24 * std::sqrt(std::max(each, 1.0));
    }
    if (off > 0) {
      builder.setInsertionPoint(op);
      op->setOperand(0, disturb(operand, *terms, off));
    }
    // Functions of f32 are within a unit in the last place, arithmetic within half of one.
    builder.setInsertionPointAfter(op);
    Type element = elementOf(result);
    mlir::Value disturbed = disturb(result, exact[index], unit(element) / (element.isF32() ? 1 : 2));
    indices[disturbed] = index;
    result.replaceUsesWithIf(disturbed, [&](OpOperand& use) {
      return use.getOwner() != disturbed.getDefiningOp() && use.getOwner() != block.getTerminator();
    });
    for (mlir::Value& returned : results)
      if (returned == result)
        returned = disturbed;
  }
  setResults(results);
  std::mt19937_64 random(inputs.size());
  std::uniform_real_distribution<double> by(-1, 1);
  for (int run = 0; run < kNoisyRuns; ++run) {
    std::vector<ir::Array> arguments = inputs;
    for (auto& [noise, amplitude] : noises) {
      int64_t elements = 1;
      for (int64_t size : noise.shape)
        elements *= size;
      noise.data.resize(elements);
      for (double& number : noise.data)
        number = 1 + amplitude * by(random);
      arguments.push_back(noise);
    }
    if (!ir::interpret(*copy, arguments, false, noisy.emplace_back(), ignored))
      noisy.pop_back();
  }
}

std::string Oracle::compare(const std::vector<ir::Array>& outputs) {
  func::FuncOp function = ir::graphFunction(graph);
  for (size_t i = 0; i < outputs.size(); ++i) {
    Type element = llvm::cast<RankedTensorType>(function.getResultTypes()[i]).getElementType();
    if (!isa<FloatType>(element)) {
      for (size_t at = 0; at < outputs[i].data.size(); ++at)
        if (outputs[i].data[at] != truth[i].data[at])
          return fmt::format("output {}, element {} of {}: {}, expected {}", i, at, outputs[i].data.size(),
                             outputs[i].data[at], truth[i].data[at]);
      continue;
    }
    int64_t longest = 1;
    for (const ir::Array& input : inputs)
      longest = std::max<int64_t>(longest, input.data.size() / std::max<size_t>(1, outputs[i].data.size()));
    for (int64_t size : outputs[i].shape)
      longest = std::max(longest, size);
    Distance ours = distance(outputs[i], truth[i]), traced = distance(tracedOutputs[i], truth[i]);
    double more = unit(element) + 0x1p-24 * std::sqrt(double(longest));
    auto passes = [&] {
      return ours.euclidean <= 2 * traced.euclidean + more && ours.largest <= 2 * traced.largest + more;
    };
    if (passes())
      continue;
    if (noisy.empty())
      runNoisy();
    for (const std::vector<ir::Array>& run : noisy) {
      Distance other = distance(run[i], truth[i]);
      traced = {std::max(traced.euclidean, other.euclidean), std::max(traced.largest, other.largest)};
    }
    if (passes())
      continue;
    size_t worst = 0;
    auto by = [&](size_t at) { return std::fabs(outputs[i].data[at] - truth[i].data[at]); };
    for (size_t at = 0; at < outputs[i].data.size(); ++at)
      if (!(by(at) <= by(worst)))
        worst = at;
    return fmt::format("output {}: relative distance {:.2e} (largest {:.2e}), the traced program's {:.2e} ({:.2e}), "
                       "both may be twice that and {:.2e}; element {} of {} is {}, traced {}, exactly {}",
                       i, ours.euclidean, ours.largest, traced.euclidean, traced.largest, more, worst,
                       outputs[i].data.size(), outputs[i].data[worst], tracedOutputs[i].data[worst],
                       truth[i].data[worst]);
  }
  return "";
}

} // namespace cermet::fuzz
