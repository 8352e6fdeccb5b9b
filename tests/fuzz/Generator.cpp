#include "tests/fuzz/Generator.h"
#include "ir/text/Text.h"
#include "mlir/IR/Verifier.h"
#include "tests/fuzz/Steps.h"
#include <fmt/format.h>

using namespace mlir;

namespace cermet::fuzz {
namespace {

constexpr int64_t kMaxElements = 1 << 13; // of a tile
constexpr int kRuns = 2;

class Generator {
public:
  Generator(uint64_t seed, const GeneratorOptions& options) : random(seed), options(options), builder(&context) {
    ir::registerDialects(context);
  }

  RandomGraph run() {
    graph = ir::createGraph(context);
    builder.setInsertionPointToEnd(graph->getBody());
    function = func::FuncOp::create(builder, builder.getUnknownLoc(), "random", builder.getFunctionType({}, {}));
    block = function.addEntryBlock();
    builder.setInsertionPointToStart(block);
    chooseSpace();
    std::map<std::string, int64_t> largest;
    for (const Sizes& sizes : result.sizes)
      for (const auto& [symbol, size] : sizes)
        largest[symbol] = std::max(largest[symbol], size);
    steps = std::make_unique<Steps>(builder, random, options.differentiable, largest);
    input(space, steps->floatType());
    for (int i = 0, count = steps->pick(6); i < count; ++i)
      input(someShape(), someType());
    int wanted = 3 + steps->pick(options.mostOperations - 2);
    for (int attempt = 0; attempt < 8 * wanted && operations() < wanted; ++attempt)
      try {
        steps->step();
      } catch (Untame) {
      }
    finish();
    result.text = ir::printGraph(*graph, false);
    return std::move(result);
  }

private:
  int pick(int count) { return static_cast<int>(random() % count); }

  // Up to four row dimensions by some columns; the first symbols' sizes differ from run to run.
  void chooseSpace() {
    static constexpr int kColumns[] = {1, 2, 3, 4, 7, 8, 16, 24, 33, 64, 100, 127, 128, 255, 256};
    static constexpr int kRows[] = {1, 2, 3, 7, 17};
    int64_t columns = kColumns[pick(std::size(kColumns))];
    int rank = pick(12) ? 1 + pick(4) : 0;
    std::vector<bool> isSymbol(rank);
    std::vector<int64_t> sizes(rank);
    for (int i = 0; i < rank; ++i)
      isSymbol[i] = pick(5) < 3;
    result.sizes.resize(kRuns);
    for (int run = 0; run < kRuns; ++run) {
      int64_t elements = columns;
      for (int i = 0; i < rank; ++i) {
        if (run == 0 || isSymbol[i])
          sizes[i] = isSymbol[i] && pick(16) == 0 ? 0 : kRows[pick(std::size(kRows))];
        if (elements * sizes[i] > kMaxElements && (run == 0 || isSymbol[i]))
          sizes[i] = 1;
        elements *= sizes[i];
        if (isSymbol[i])
          result.sizes[run][fmt::format("r{}", i)] = sizes[i];
      }
    }
    for (int i = 0; i < rank; ++i) {
      ir::Dimension& dimension = space.emplace_back();
      dimension.size = isSymbol[i] ? ShapedType::kDynamic : sizes[i];
      if (isSymbol[i])
        dimension.symbol = builder.getStringAttr(fmt::format("r{}", i));
    }
    space.emplace_back().size = columns;
  }

  // The tile, a row, a column, a number, or some dimensions of the tile.
  ir::Dimensions someShape() {
    ir::Dimensions shape = space;
    switch (pick(6)) {
    case 0:
    case 1:
      return shape;
    case 2:
      shape.back() = ir::Dimension();
      return shape;
    case 3:
      return {space.back()};
    case 4:
      shape.assign(pick(2), ir::Dimension());
      return shape;
    }
    for (ir::Dimension& dimension : shape)
      if (pick(2))
        dimension = ir::Dimension();
    if (pick(2))
      while (shape.size() > 1 && shape.front().isOne())
        shape.erase(shape.begin());
    return shape;
  }

  Type someType() {
    switch (pick(8)) {
    case 0:
      return builder.getI1Type();
    case 1:
    case 2:
      return steps->integerType();
    }
    return steps->floatType();
  }

  void input(const ir::Dimensions& shape, Type element) {
    unsigned index = block->getNumArguments();
    bool isFloat = llvm::isa<FloatType>(element), isWhole = !isFloat || pick(3) == 0;
    std::string name = fmt::format("{}{}", isWhole && isFloat ? "whole" : "x", index);
    auto argument = block->addArgument(ir::tensorType(shape, element), NameLoc::get(builder.getStringAttr(name)));
    bool isUnsigned = element.isUnsignedInteger();
    double largest = isFloat && !isWhole ? kLargestInput : isFloat ? kLargestWhole : kLargestInteger;
    steps->add(argument, isUnsigned ? 0 : -largest, isUnsigned ? 2 * largest : largest, true, isWhole);
    // Some are of any strides, which a kernel reads one element at a time.
    isStrided.push_back(!shape.empty() && pick(8) == 0);
  }

  int operations() {
    int count = 0;
    for (Operation& op : *block)
      count += !op.use_empty() || isLeaf(op);
    return count;
  }

  // Unused, and not only for being left over by a step that failed: a constant or a broadcast alone is worth nothing.
  static bool isLeaf(Operation& op) { return op.use_empty() && !isa<ir::ConstantOp, ir::BroadcastOp, ir::IotaOp>(op); }

  void finish() {
    SmallVector<mlir::Value> results, inner;
    for (Operation& op : *block)
      (isLeaf(op) && results.size() < 4 ? results : inner).push_back(op.getResult(0));
    while (!inner.empty() && (results.empty() || pick(3) == 0))
      results.push_back(inner[pick(static_cast<int>(inner.size()))]);
    if (results.empty() || pick(16) == 0)
      results.push_back(block->getArgument(0));
    func::ReturnOp::create(builder, builder.getUnknownLoc(), results);
    SmallVector<Operation*> ops;
    for (Operation& op : block->without_terminator())
      ops.push_back(&op);
    for (Operation* op : llvm::reverse(ops))
      if (op->use_empty())
        op->erase();
    for (unsigned i = block->getNumArguments(); i-- > 1;) // the first has every symbol
      if (block->getArgument(i).use_empty()) {
        block->eraseArgument(i);
        isStrided.erase(isStrided.begin() + i);
      }
    function.setType(builder.getFunctionType(block->getArgumentTypes(), block->getTerminator()->getOperandTypes()));
    for (unsigned i = 0; i < block->getNumArguments(); ++i)
      if (isStrided[i]) {
        SmallVector<int64_t> strides(cast<RankedTensorType>(block->getArgument(i).getType()).getRank(), -1);
        function.setArgAttr(i, "cermet.strides", builder.getDenseI64ArrayAttr(strides));
      }
  }

  std::mt19937_64 random;
  const GeneratorOptions& options;
  MLIRContext context{MLIRContext::Threading::DISABLED};
  OpBuilder builder;
  OwningOpRef<ModuleOp> graph;
  func::FuncOp function;
  Block* block = nullptr;
  ir::Dimensions space;
  std::unique_ptr<Steps> steps;
  std::vector<bool> isStrided; // by argument
  RandomGraph result;
};

} // namespace

RandomGraph randomGraph(uint64_t seed, const GeneratorOptions& options) {
  return Generator(seed, options).run();
}

bool isWholeInput(const std::string& argument) {
  return argument.starts_with("whole");
}

bool isLabelInput(const std::string& argument) {
  return argument.starts_with("label");
}

} // namespace cermet::fuzz
