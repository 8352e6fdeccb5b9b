#include "patterns/matching/Raise.h"
#include "ir/dialect/Ops.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "patterns/matching/Dataflow.h"
#include "patterns/matching/Legality.h"
#include "patterns/matching/Names.h"
#include <algorithm>

using namespace mlir;

namespace cermet {
namespace {

class Raising {
public:
  explicit Raising(func::FuncOp function) : function(function), block(function.getBody().front()) {
    int64_t index = 0;
    for (Operation& op : block)
      order[&op] = index++;
  }

  RaiseResult run(llvm::ArrayRef<Finder> finders) {
    for (const Finder& finder : finders)
      if (auto* answer = std::get_if<NamedAnswer>(&finder.answer))
        apply(finder, *answer);
    return finish();
  }

private:
  struct Place {
    NamedRegion region;
    int64_t order; // of the first result
  };
  struct PlacedMiss {
    NearMiss miss;
    const Operation* root; // to compare only: it may be gone
    int64_t order;
  };

  static Operation* rootOf(const Rewrite& rewrite) { return rewrite.results.front().getDefiningOp(); }

  void apply(const Finder& finder, const NamedAnswer& answer) {
    for (Operation* anchor : finder.anchorsIn(function)) {
      if (dead.contains(anchor))
        continue;
      Attempt attempt = answer.match(anchor);
      if (auto* match = std::get_if<Match>(&attempt)) {
        llvm::sort(match->rewrites,
                   [](const Rewrite& a, const Rewrite& b) { return rootOf(a)->isBeforeInBlock(rootOf(b)); });
        if (auto condition = violation(answer, *match)) {
          if (!isPartOfNode(*match))
            miss(finder, rootOf(match->rewrites.front()), *condition);
        } else
          for (const Rewrite& rewrite : match->rewrites)
            apply(finder, answer, rewrite);
      } else if (auto* found = std::get_if<Miss>(&attempt)) {
        miss(finder, found->root, found->condition);
      }
    }
    // Operations that went are erased late, so that no new one takes the address of an anchor that is still to come.
    for (Operation* op : dead)
      op->erase();
    dead.clear();
  }

  // Within one node of the frontend's graph, of what it makes itself: a norm inside of a layer norm.
  static bool isPartOfNode(const Match& match) {
    const Rewrite& rewrite = match.rewrites.front();
    Operation* root = rootOf(rewrite);
    return hasName(root) && llvm::any_of(rewrite.operands, [&](Value operand) {
             Operation* op = operand.getDefiningOp();
             return op && hasName(op) && nameOf(op) == nameOf(root) && !isa<ir::CastOp>(op);
           });
  }

  // Once: anchors of one sequence miss it for the same reason.
  void miss(const Finder& finder, Operation* root, std::string condition) {
    if (llvm::any_of(misses, [&](const PlacedMiss& known) {
          return known.root == root && known.miss.pattern == finder.name && known.miss.condition == condition;
        }))
      return;
    misses.push_back(
        {{finder.name.str(), nameOf(root), std::move(condition), root->getLoc()}, root, order.lookup(root)});
  }

  void apply(const Finder& finder, const NamedAnswer& answer, const Rewrite& rewrite) {
    OpBuilder builder(function.getContext());
    Operation* last = lastMaker(rewrite.operands);
    // Behind its last operand, and behind what was put there before, so that sites keep their order.
    auto place = last ? std::next(last->getIterator()) : block.begin();
    while (made.contains(&*place) && made.lookup(&*place) == last)
      ++place;
    builder.setInsertionPoint(&block, place);

    llvm::StringRef operation = rewrite.operation.empty() ? finder.name : rewrite.operation;
    OperationState state(locationOf(rewrite.results), ("cermet." + operation).str());
    state.addOperands(rewrite.operands);
    state.addAttributes(rewrite.attributes);
    for (Value result : rewrite.results)
      state.addTypes(result.getType());
    Operation* op = builder.create(state);
    made[op] = last;

    Place found{{finder.name, answer.roles(rewrite), op, {}, {}, {}}, order.lookup(rootOf(rewrite))};
    for (Value operand : rewrite.operands)
      found.region.operands.push_back(nameOf(operand));
    for (Value result : op->getResults())
      found.region.results.push_back(nameOf(result));
    order[op] = found.order;

    llvm::SmallVector<Operation*> candidates;
    for (auto [replaced, made] : llvm::zip_equal(rewrite.results, op->getResults())) {
      Value result = replaced;
      result.replaceAllUsesWith(made);
      candidates.push_back(result.getDefiningOp());
    }
    found.region.replaced = retire(candidates);
    places.push_back(std::move(found));
  }

  // Takes operations that nobody reads any longer out of the graph, and what they alone read; their names in block
  // order.
  std::vector<std::string> retire(llvm::SmallVector<Operation*> candidates) {
    llvm::SmallVector<Operation*> retired;
    while (!candidates.empty()) {
      Operation* op = candidates.pop_back_val();
      if (dead.contains(op) || !isOpTriviallyDead(op))
        continue;
      dead.insert(op);
      retired.push_back(op);
      for (Value operand : op->getOperands())
        if (Operation* source = operand.getDefiningOp())
          candidates.push_back(source);
      op->dropAllReferences();
    }
    llvm::sort(retired, [](Operation* a, Operation* b) { return a->isBeforeInBlock(b); });
    std::vector<std::string> names;
    auto add = [&](const std::string& name) {
      if (!llvm::is_contained(names, name))
        names.push_back(name);
    };
    for (Operation* op : retired) {
      if (made.erase(op)) { // a region that this one builds on
        auto built = llvm::find_if(places, [&](const Place& place) { return place.region.op == op; });
        llvm::for_each(built->region.replaced, add);
        places.erase(built);
      } else if (!isa<ir::ConstantOp>(op)) {
        add(nameOf(op));
      }
    }
    return names;
  }

  RaiseResult finish() {
    auto byOrder = [](const auto& a, const auto& b) { return a.order < b.order; };
    std::stable_sort(places.begin(), places.end(), byOrder);
    std::stable_sort(misses.begin(), misses.end(), byOrder);
    RaiseResult result;
    for (Place& place : places)
      result.regions.push_back(std::move(place.region));
    for (PlacedMiss& miss : misses)
      result.nearMisses.push_back(std::move(miss.miss));
    return result;
  }

  func::FuncOp function;
  Block& block;
  llvm::DenseMap<Operation*, int64_t> order;   // of operations in the function as it was; a named one has its root's
  llvm::DenseMap<Operation*, Operation*> made; // named operations, by what they stand behind
  llvm::SmallSetVector<Operation*, 16> dead;
  std::vector<Place> places;
  std::vector<PlacedMiss> misses;
};

} // namespace

llvm::SmallVector<Operation*> Finder::anchorsIn(func::FuncOp function) const {
  llvm::SmallVector<Operation*> result;
  for (Operation& op : function.getBody().front())
    if (llvm::is_contained(anchors, op.getName().getStringRef()))
      result.push_back(&op);
  return result;
}

RaiseResult raise(func::FuncOp function, llvm::ArrayRef<Finder> finders) {
  // Folding does not always converge in one go, and where it stops the function is still what it was.
  (void)applyPatternsGreedily(function, FrozenRewritePatternSet(),
                              GreedyRewriteConfig().setRegionSimplificationLevel(GreedySimplifyRegionLevel::Disabled));
  return Raising(function).run(finders);
}

} // namespace cermet
