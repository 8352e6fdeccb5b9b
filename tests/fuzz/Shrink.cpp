#include "tests/fuzz/Shrink.h"
#include "ir/dialect/Ops.h"
#include "ir/text/Text.h"
#include <chrono>
#include <mlir/IR/MLIRContext.h>
#include <regex>
#include <set>

using namespace mlir;

namespace cermet::fuzz {
namespace {

// A graph that may be cut: every change leaves a function that is complete, if not always one that verifies.
class Cut {
public:
  explicit Cut(const std::string& text) {
    ir::registerDialects(context);
    std::string error;
    graph = ir::parseGraph(text, context, error);
    function = ir::graphFunction(*graph);
    block = &function.getBody().front();
  }

  int results() { return static_cast<int>(block->getTerminator()->getNumOperands()); }
  int operations() { return static_cast<int>(block->getOperations().size()) - 1; }

  void dropResult(int index) { block->getTerminator()->eraseOperand(index); }

  // Only this result is left, or also what an operation in the middle computes.
  void returnOnly(mlir::Value value) { block->getTerminator()->setOperands(value); }

  Operation* operation(int index) { return &*std::next(block->begin(), index); }

  // Values of the operation's type that its readers could read instead: its operands, then earlier ones.
  std::vector<mlir::Value> replacements(Operation* op) {
    std::vector<mlir::Value> found;
    auto consider = [&](mlir::Value value) {
      if (value.getType() == op->getResult(0).getType() && found.size() < 3 && !llvm::is_contained(found, value))
        found.push_back(value);
    };
    for (mlir::Value operand : op->getOperands())
      consider(operand);
    for (BlockArgument argument : block->getArguments())
      consider(argument);
    for (Operation& other : *block) {
      if (&other == op)
        break;
      for (mlir::Value result : other.getResults())
        consider(result);
    }
    return found;
  }

  mlir::Value newInput(Operation* op) {
    auto location = NameLoc::get(StringAttr::get(&context, "in" + std::to_string(block->getNumArguments())));
    return block->addArgument(op->getResult(0).getType(), location);
  }

  void replace(Operation* op, mlir::Value by) { op->getResult(0).replaceAllUsesWith(by); }

  std::string text() {
    SmallVector<Operation*> ops;
    for (Operation& op : block->without_terminator())
      ops.push_back(&op);
    for (Operation* op : llvm::reverse(ops))
      if (op->use_empty())
        op->erase();
    std::vector<Attribute> strides;
    for (unsigned i = 0; i < block->getNumArguments(); ++i)
      strides.push_back(i < function.getNumArguments() ? function.getArgAttr(i, "cermet.strides") : Attribute());
    function.setAllArgAttrs(ArrayRef<DictionaryAttr>());
    for (unsigned i = block->getNumArguments(); i-- > 0;)
      if (block->getArgument(i).use_empty()) {
        block->eraseArgument(i);
        strides.erase(strides.begin() + i);
      }
    function.setType(FunctionType::get(&context, block->getArgumentTypes(), block->getTerminator()->getOperandTypes()));
    for (unsigned i = 0; i < strides.size(); ++i)
      if (strides[i])
        function.setArgAttr(i, "cermet.strides", strides[i]);
    return ir::printGraph(*graph, false);
  }

private:
  MLIRContext context{MLIRContext::Threading::DISABLED};
  OwningOpRef<ModuleOp> graph;
  func::FuncOp function;
  Block* block;
};

bool isGraph(const std::string& text) {
  MLIRContext context(MLIRContext::Threading::DISABLED);
  ir::registerDialects(context);
  std::string error;
  return bool(ir::parseGraph(text, context, error));
}

class Shrinker {
public:
  Shrinker(Case failing, Failure& failure, const Checked& check, const ShrinkLimits& limits)
      : best(std::move(failing)), failure(failure), check(check), trials(limits.trials),
        end(Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(limits.seconds))) {
  }

  Case run() {
    fewerRuns();
    for (bool changed = true; changed && trials > 0;) {
      changed = fewerResults();
      changed |= fewerOperations();
      changed |= smallerSizes();
    }
    return std::move(best);
  }

private:
  using Clock = std::chrono::steady_clock;

  bool fails(const Case& candidate) {
    if (Clock::now() >= end)
      trials = 0;
    if (trials-- <= 0)
      return false;
    Failure other = check(candidate);
    if (!other.isLike(failure))
      return false;
    failure = other;
    best = candidate;
    return true;
  }

  bool failsAs(const std::string& text) {
    if (text.size() >= best.text.size() + 200 || text == best.text || !isGraph(text))
      return false;
    Case candidate = best;
    candidate.text = text;
    return fails(candidate);
  }

  void fewerRuns() {
    const Case all = best;
    for (size_t run = 0; run < all.sizes.size() && all.sizes.size() > 1; ++run) {
      Case one = all;
      one.sizes = {all.sizes[run]};
      one.seed += run; // which makes the same numbers
      if (fails(one))
        return;
    }
  }

  bool fewerResults() {
    bool changed = false;
    int count = Cut(best.text).results();
    for (int keep = 0; keep < count && count > 1; ++keep) { // one is often enough
      Cut cut(best.text);
      for (int i = count; i-- > 0;)
        if (i != keep)
          cut.dropResult(i);
      if (failsAs(cut.text()))
        return true;
    }
    for (int i = count; i-- > 0 && Cut(best.text).results() > 1;) {
      Cut cut(best.text);
      cut.dropResult(i);
      changed |= failsAs(cut.text());
    }
    return changed;
  }

  bool fewerOperations() {
    bool changed = false;
    for (int i = 0; i < Cut(best.text).operations() && trials > 0; ++i) { // ends here
      Cut cut(best.text);
      if (cut.results() != 1)
        break;
      cut.returnOnly(cut.operation(i)->getResult(0));
      if (failsAs(cut.text())) {
        changed = true;
        break;
      }
    }
    for (int i = Cut(best.text).operations(); i-- > 0 && trials > 0;) {
      if (i >= Cut(best.text).operations())
        continue;
      for (size_t which = 0;; ++which) {
        Cut cut(best.text);
        Operation* op = cut.operation(i);
        auto instead = cut.replacements(op);
        if (which > instead.size())
          break;
        cut.replace(op, which == instead.size() ? cut.newInput(op) : instead[which]);
        if (failsAs(cut.text())) {
          changed = true;
          break;
        }
      }
    }
    return changed;
  }

  bool smallerSizes() {
    bool changed = false;
    for (const auto& [symbol, size] : Sizes(best.sizes[0]))
      for (int64_t smaller : {1, 2, 3})
        if (smaller < size) {
          Case candidate = best;
          candidate.sizes[0][symbol] = smaller;
          if (fails(candidate)) {
            changed = true;
            break;
          }
        }
    static const std::regex kSize("(<|x)([0-9]+)(?=x)");
    std::set<int64_t> sizes;
    for (std::sregex_iterator it(best.text.begin(), best.text.end(), kSize), end; it != end; ++it)
      sizes.insert(std::stoll((*it)[2]));
    for (int64_t size : sizes)
      for (int64_t smaller : {int64_t(1), int64_t(2), int64_t(3), int64_t(4), size / 2})
        if (smaller < size && smaller > 0) {
          std::regex all("(<|x)" + std::to_string(size) + "(?=x)");
          if (failsAs(std::regex_replace(best.text, all, "$01" + std::to_string(smaller)))) {
            changed = true;
            break;
          }
        }
    return changed;
  }

  Case best;
  Failure& failure;
  const Checked& check;
  int trials;
  const Clock::time_point end;
};

} // namespace

Case shrink(Case failing, Failure& failure, const Checked& check, const ShrinkLimits& limits) {
  return Shrinker(std::move(failing), failure, check, limits).run();
}

int operationCount(const std::string& text) {
  return Cut(text).operations();
}

} // namespace cermet::fuzz
