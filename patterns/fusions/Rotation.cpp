#include "patterns/fusions/Rotation.h"
#include "ir/transforms/RowViews.h"
#include "patterns/matching/Dataflow.h"
#include "runtime/abi/Limits.h"

using namespace mlir;
using namespace cermet::ir;

namespace cermet {
namespace {

constexpr size_t kMaxOperations = 64;

// What one column of a value is: a sum of columns of x, each times a coefficient (null: 1).
struct Term {
  int64_t sign, column;
  Value coefficient;
};
using Sum = llvm::SmallVector<Term, 2>;

bool isTurning(Operation* op) {
  return isa<SliceOp, ReshapeOp, TransposeOp, ConcatOp, NegOp, CastOp, MulOp, AddOp, SubOp>(op);
}

// What a concat is made of and what is made of it: of what is packed into one tensor, queries are one thing and keys
// another.
llvm::SmallSetVector<Operation*, 32> around(ConcatOp concat) {
  llvm::SmallSetVector<Operation*, 32> near;
  near.insert(concat);
  for (size_t i = 0; i < near.size() && near.size() < kMaxOperations; ++i) // behind it
    for (Operation* user : near[i]->getResult(0).getUsers())
      if (isTurning(user))
        near.insert(user);
  for (size_t i = 0; i < near.size() && near.size() < 2 * kMaxOperations; ++i)
    for (Value operand : near[i]->getOperands())
      if (Operation* op = operand.getDefiningOp(); op && isTurning(op))
        near.insert(op);
  return near;
}

// The rotation of x that a concat is part of.
class RotationSearch {
public:
  // The first `rows` dimensions of x are rows: what is left of it is a head, in one dimension or in pairs.
  // `near` is what lies around the concat.
  RotationSearch(Value x, size_t rows, ConcatOp concat, const llvm::SmallSetVector<Operation*, 32>& near)
      : x(x), concat(concat), rows(rows) {
    cone.insert(x);
    llvm::SmallVector<Value> pending{x};
    while (!pending.empty() && ops.size() < kMaxOperations)
      for (Operation* user : pending.pop_back_val().getUsers())
        if (near.contains(user) && ops.insert(user)) {
          cone.insert(user->getResult(0));
          pending.push_back(user->getResult(0));
        }
  }

  // The first, and what is still one behind it.
  std::optional<Rotation> run() {
    llvm::SmallVector<Operation*> order(ops.begin(), ops.end());
    llvm::sort(order, [](Operation* a, Operation* b) { return a->isBeforeInBlock(b); });
    std::optional<Rotation> found;
    for (Operation* op : order) {
      if (found && !(found->result.hasOneUse() && *found->result.user_begin() == op))
        continue;
      if (std::optional<Rotation> rotation = rotationAt(op->getResult(0)); rotation && rotation->ops.contains(concat))
        found = rotation;
    }
    return found;
  }

private:
  // Null where a column is no such sum.
  std::optional<Sum> sumAt(Value value, int64_t column) {
    if (value == x)
      return Sum{{1, column, {}}};
    if (!cone.contains(value))
      return std::nullopt;
    if (auto known = sums.find({value, column}); known != sums.end())
      return known->second;
    std::optional<Sum> sum = sumOf(value.getDefiningOp(), column);
    sums[{value, column}] = sum;
    return sum;
  }

  std::optional<RowElement> sourceOf(Operation* op, int64_t column) {
    return views.try_emplace(op, op, rows).first->second.source(column);
  }

  std::optional<Sum> sumOf(Operation* op, int64_t column) {
    if (std::optional<RowElement> source = sourceOf(op, column))
      return sumAt(source->value, source->at);
    if (isa<NegOp, CastOp>(op)) {
      std::optional<Sum> sum = sumAt(op->getOperand(0), column);
      if (sum && isa<NegOp>(op))
        for (Term& term : *sum)
          term.sign = -term.sign;
      return sum;
    }
    if (isa<MulOp>(op)) {
      const bool first = cone.contains(op->getOperand(0));
      if (first == cone.contains(op->getOperand(1)))
        return std::nullopt;
      std::optional<Sum> sum = sumAt(op->getOperand(first ? 0 : 1), column);
      if (!sum || sum->size() != 1 || sum->front().coefficient)
        return std::nullopt;
      sum->front().coefficient = op->getOperand(first ? 1 : 0);
      return sum;
    }
    if (!isa<AddOp, SubOp>(op))
      return std::nullopt;
    std::optional<Sum> left = sumAt(op->getOperand(0), column), right = sumAt(op->getOperand(1), column);
    if (!left || !right || left->size() + right->size() > 2)
      return std::nullopt;
    for (Term term : *right) {
      term.sign *= isa<SubOp>(op) ? -1 : 1;
      left->push_back(term);
    }
    return left;
  }

  // Adds the operations that the column is made of, which is such a sum.
  void addOps(Value value, int64_t column, llvm::SetVector<Operation*>& made) {
    if (value == x)
      return;
    Operation* op = value.getDefiningOp();
    made.insert(op);
    if (std::optional<RowElement> source = sourceOf(op, column))
      return addOps(source->value, source->at, made);
    for (Value operand : op->getOperands())
      if (cone.contains(operand))
        addOps(operand, column, made);
  }

  std::optional<Rotation> rotationAt(Value value) {
    RankedTensorType type = typeOf(value);
    if (type.getRank() != int64_t(rows) + 1 || type.isDynamicDim(rows) || type.getShape().back() > kMaxHeadColumns ||
        !isa<FloatType>(type.getElementType()))
      return std::nullopt;
    const int64_t columns = type.getShape().back();
    std::vector<Sum> row;
    for (int64_t column = 0; column < columns; ++column) {
      std::optional<Sum> sum = sumAt(value, column);
      if (!sum)
        return std::nullopt;
      row.push_back(std::move(*sum));
    }
    Rotation rotation{x, value, {}, {}};
    if (!rotates(row, rotation.coefficients))
      return std::nullopt;
    for (int64_t column = 0; column < columns; ++column)
      addOps(value, column, rotation.ops);
    return rotation;
  }

  static bool isSame(Value a, Value b) { return a && b && sameValue(a, b); }

  // Which columns turn, [first, end), and whether each meets its partner there once, with opposite signs.
  static bool rotates(llvm::MutableArrayRef<Sum> sums, llvm::SmallVector<Value, 2>& coefficients) {
    int64_t first = 0, end = sums.size();
    auto turns = [&](int64_t column) { return sums[column].size() == 2; };
    while (first < end && !turns(first))
      ++first;
    while (end > first && !turns(end - 1))
      --end;
    const int64_t turning = end - first;
    if (turning < 2 || turning % 2 != 0)
      return false;
    for (int64_t column = 0; column < int64_t(sums.size()); ++column)
      if (const Sum& sum = sums[column]; column < first || column >= end)
        if (sum.size() != 1 || sum[0].coefficient || sum[0].sign != 1)
          return false;
    if (!llvm::all_of(llvm::seq(first, end), turns))
      return false;
    // Each column's own term first: what has the coefficient that the first column's has.
    for (bool isOther : {false, true}) {
      if (isOther)
        std::swap(sums[first][0], sums[first][1]);
      const Value cosine = sums[first][0].coefficient, sine = sums[first][1].coefficient;
      auto fits = [&](const Term& plain, const Term& turned) {
        return plain.sign == 1 && isSame(plain.coefficient, cosine) && isSame(turned.coefficient, sine);
      };
      const bool holds = llvm::all_of(llvm::seq(first, end), [&](int64_t column) {
        Sum& sum = sums[column];
        if (column != first && !fits(sum[0], sum[1]))
          std::swap(sum[0], sum[1]);
        return fits(sum[0], sum[1]);
      });
      if (holds && (meet(sums, first, end, turning / 2) || meet(sums, first, end, 1))) {
        coefficients = {cosine, sine};
        return true;
      }
    }
    return false;
  }

  // Whether every column, `half` from its partner or beside it, has its partner's own column of x, with the opposite
  // sign; x may have the pairs elsewhere, such as neighbours that become halves.
  static bool meet(llvm::ArrayRef<Sum> sums, int64_t first, int64_t end, int64_t half) {
    llvm::SmallDenseSet<int64_t, 64> columns;
    return llvm::all_of(llvm::seq(first, end), [&](int64_t column) {
      const int64_t at = column - first;
      const Sum &sum = sums[column], &other = sums[first + (half == 1 ? at ^ 1 : (at + half) % (end - first))];
      return columns.insert(sum[0].column).second && sum[1].column == other[0].column && sum[1].sign == -other[1].sign;
    });
  }

  Value x;
  ConcatOp concat;
  size_t rows;
  llvm::SmallSetVector<Operation*, 16> ops;
  llvm::DenseSet<Value> cone;
  llvm::DenseMap<Operation*, RowView> views;
  llvm::DenseMap<std::pair<Value, int64_t>, std::optional<Sum>> sums; // that were asked for
};

// Whose columns a concat brings together: what its parts are slices of.
llvm::SmallSetVector<Value, 4> slicedFor(ConcatOp concat) {
  const size_t rank = typeOf(concat).getRank();
  llvm::SmallSetVector<Value, 4> sources;
  llvm::SmallSetVector<Value, 16> pending;
  pending.insert(concat.getOperands().begin(), concat.getOperands().end());
  for (size_t i = 0; i < pending.size() && i < kMaxOperations; ++i) {
    Operation* op = pending[i].getDefiningOp();
    if (!op || !isTurning(op))
      continue;
    if (auto slice = dyn_cast<SliceOp>(op)) {
      Value source = slice.getOperand();
      if (typeOf(source).getRank() == int64_t(rank))
        sources.insert(source);
      // A split of the last dimension: the row as it was.
      while (auto reshape = source.getDefiningOp<ReshapeOp>()) {
        auto from = dimensions(typeOf(reshape.getOperand())), to = dimensions(typeOf(reshape));
        if (from.empty() || to.size() <= from.size() ||
            ArrayRef(from).drop_back() != ArrayRef(to).take_front(from.size() - 1))
          break;
        source = reshape.getOperand();
      }
      if (typeOf(source).getRank() <= int64_t(rank))
        sources.insert(source);
      pending.insert(source);
      continue;
    }
    pending.insert(op->operand_begin(), op->operand_end());
  }
  return sources;
}

} // namespace

std::optional<Rotation> rotationOf(ConcatOp concat) {
  if (concat.getDim() + 1 != uint64_t(typeOf(concat).getRank()))
    return std::nullopt;
  const auto sources = slicedFor(concat);
  const auto near = around(concat);
  // Of a whole head rather than of a wider tensor, such as queries, keys and values in one; and of all its columns
  // rather than of pairs: in a product of complex numbers either factor is rotated by the other.
  std::optional<Rotation> best;
  std::pair<bool, int64_t> bestRank;
  auto consider = [&](Value source, size_t rows) {
    std::optional<Rotation> found = RotationSearch(source, rows, concat, near).run();
    if (!found)
      return;
    const int64_t columns = typeOf(found->result).getShape().back();
    const std::pair<bool, int64_t> rank{rowSize(source, rows) == columns, columns};
    if (!best || rank > bestRank) {
      best = std::move(found);
      bestRank = rank;
    }
  };
  for (Value source : llvm::reverse(sources)) { // the widest first
    const size_t rank = typeOf(source).getRank();
    if (rank > 0)
      consider(source, rank - 1);
    if (rank > 2 && source.getDefiningOp<ReshapeOp>()) // pairs of other rows than before, such as one more head
      consider(source, rank - 2);
  }
  return best;
}

bool endsRope(Operation* op) {
  // A concat lies at most a product, casts and reshapes before it.
  for (Value value : op->getOperands())
    for (Operation* before = value.getDefiningOp(); before && isTurning(before);
         before = before->getOperand(0).getDefiningOp()) {
      if (auto concat = dyn_cast<ConcatOp>(before)) {
        std::optional<Rotation> found = rotationOf(concat);
        return found && found->result == op->getResult(0);
      }
      if (isa<MulOp>(before) && before->getOperand(1).getDefiningOp<ConcatOp>())
        if (std::optional<Rotation> found = rotationOf(before->getOperand(1).getDefiningOp<ConcatOp>()))
          return found->result == op->getResult(0);
    }
  return false;
}

} // namespace cermet
