#include "compiler/host/Columns.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace cermet {

HostColumns::HostColumns(ImplicitLocOpBuilder& builder, HostMath& math, int64_t columns, bool runsBackward)
    : builder(builder), math(math), columns(columns), runsBackward(runsBackward) {}

Type HostColumns::pointer() const {
  return LLVM::LLVMPointerType::get(builder.getContext());
}

VectorType HostColumns::lanes() const {
  return VectorType::get(kLanes, builder.getF32Type());
}

Value HostColumns::index(int64_t value) {
  return arith::ConstantOp::create(builder, builder.getI64IntegerAttr(value));
}

Value HostColumns::add(Value a, Value b) {
  return arith::AddIOp::create(builder, a, b);
}

Value HostColumns::multiply(Value a, Value b) {
  return arith::MulIOp::create(builder, a, b);
}

Value HostColumns::element(Value base, Value offset, DType dtype) {
  return LLVM::GEPOp::create(builder, pointer(), math.stored(dtype), base, ArrayRef<LLVM::GEPArg>{offset});
}

Value HostColumns::splat(Value scalar) {
  Value empty = LLVM::PoisonOp::create(builder, VectorType::get(kLanes, scalar.getType()));
  Value zero = arith::ConstantOp::create(builder, builder.getI32IntegerAttr(0));
  Value first = LLVM::InsertElementOp::create(builder, empty, scalar, zero);
  return LLVM::ShuffleVectorOp::create(builder, first, first, SmallVector<int32_t>(kLanes, 0));
}

Value HostColumns::zeros() {
  return math.constant(lanes(), 0.0f);
}

Value HostColumns::numbers(const ColumnStep& step, int64_t period) {
  auto first = llvm::to_vector(llvm::seq<int64_t>(0, kLanes));
  auto type = VectorType::get(kLanes, builder.getI64Type());
  Value lanes = arith::ConstantOp::create(builder, DenseElementsAttr::get(type, ArrayRef<int64_t>(first)));
  Value all = add(splat(step.column), lanes);
  return period == 0 ? all : arith::RemUIOp::create(builder, all, splat(index(period))).getResult();
}

Value HostColumns::identity(Opcode fold) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  return math.constant(lanes(), fold == Opcode::ReduceSum ? 0 : fold == Opcode::ReduceMax ? -infinity : infinity);
}

Value HostColumns::combine(Opcode fold, Value a, Value b) {
  if (fold == Opcode::ReduceSum)
    return arith::AddFOp::create(builder, a, b);
  return fold == Opcode::ReduceMax ? math.maximum(a, b) : math.minimum(a, b);
}

// Folds the upper half into the lower until one lane is left.
Value HostColumns::foldLanes(Opcode fold, Value vector) {
  for (int32_t half = kLanes / 2; half > 0; half /= 2) {
    auto low = llvm::to_vector(llvm::seq<int32_t>(0, half)), high = llvm::to_vector(llvm::seq<int32_t>(half, 2 * half));
    Value lower = LLVM::ShuffleVectorOp::create(builder, vector, vector, low);
    Value upper = LLVM::ShuffleVectorOp::create(builder, vector, vector, high);
    vector = combine(fold, lower, upper);
  }
  return LLVM::ExtractElementOp::create(builder, vector, math.integer(builder.getI32Type(), 0));
}

Values HostColumns::loop(Value from, Value to, int64_t step, const Values& initial,
                         llvm::function_ref<Values(Value, const Values&)> body) {
  auto loop = scf::ForOp::create(builder, from, to, index(step), initial);
  {
    OpBuilder::InsertionGuard guard(builder);
    if (initial.empty())
      loop.getBody()->getTerminator()->erase();
    builder.setInsertionPointToEnd(loop.getBody());
    Values results = body(loop.getInductionVar(), Values(loop.getRegionIterArgs()));
    scf::YieldOp::create(builder, results);
  }
  return Values(loop.getResults());
}

// The lanes of the last step that hold columns; null if all do.
Value HostColumns::raggedMask() {
  int64_t rest = columns % kLanes;
  if (rest == 0)
    return {};
  SmallVector<bool> active(kLanes, false);
  std::fill_n(active.begin(), rest, true);
  return arith::ConstantOp::create(
      builder, DenseElementsAttr::get(VectorType::get(kLanes, builder.getI1Type()), ArrayRef<bool>(active)));
}

Values HostColumns::columnLoop(const Values& initial,
                               llvm::function_ref<Values(const ColumnStep&, const Values&)> body) {
  int64_t whole = columns / kLanes * kLanes;
  Values carried = initial;
  const auto rest = [&] {
    if (Value mask = raggedMask())
      carried = body({index(whole), mask}, carried);
  };
  if (runsBackward)
    rest();
  if (whole > 0)
    carried = loop(index(0), index(whole), kLanes, carried, [&](Value column, const Values& current) {
      return body({turned(column, whole - kLanes), {}}, current);
    });
  if (!runsBackward)
    rest();
  return carried;
}

// Of a loop that begins with `last` where columns are walked backward: the column of its iteration.
Value HostColumns::turned(Value column, int64_t last) {
  return runsBackward ? arith::SubIOp::create(builder, index(last), column).getResult() : column;
}

Values HostColumns::columnFolds(ArrayRef<Opcode> folds, Values& carried,
                                llvm::function_ref<Values(const ColumnStep&)> body) {
  const size_t count = folds.size();
  Values sums;
  for (int64_t turn = 0; turn < kSums; ++turn)
    for (Opcode fold : folds)
      sums.push_back(identity(fold));
  auto grow = [&](int64_t turn, const ColumnStep& step) {
    for (auto [i, value] : llvm::enumerate(body(step))) {
      Value& sum = sums[turn * count + i];
      Value grown = combine(folds[i], sum, value);
      sum = step.mask ? arith::SelectOp::create(builder, step.mask, grown, sum).getResult() : grown;
    }
  };
  constexpr int64_t span = kSums * kLanes;
  int64_t whole = columns / kLanes * kLanes, turns = columns / span * span;
  const auto inTurn = [&](int64_t count, llvm::function_ref<void(int64_t)> each) {
    for (int64_t i = 0; i < count; ++i)
      each(runsBackward ? count - 1 - i : i);
  };
  const auto loops = [&] {
    if (turns == 0)
      return;
    Values state = sums;
    llvm::append_range(state, carried);
    const auto take = [&](const Values& current) {
      sums.assign(current.begin(), current.begin() + sums.size());
      carried.assign(current.begin() + sums.size(), current.end());
    };
    take(loop(index(0), index(turns), span, state, [&](Value column, const Values& current) {
      take(current);
      Value first = turned(column, turns - span);
      inTurn(kSums, [&](int64_t turn) { grow(turn, {add(first, index(turn * kLanes)), {}}); });
      Values next = sums;
      llvm::append_range(next, carried);
      return next;
    }));
  };
  // What is left of whole steps, and the lanes behind these.
  const int64_t left = (whole - turns) / kLanes;
  const auto rest = [&] {
    inTurn(left + 1, [&](int64_t turn) {
      Value mask = turn == left ? raggedMask() : Value();
      if (turn < left || mask)
        grow(turn, {index(turns + turn * kLanes), mask});
    });
  };
  if (runsBackward)
    rest();
  loops();
  if (!runsBackward)
    rest();
  for (int64_t half = kSums / 2; half > 0; half /= 2)
    for (size_t i = 0; i < half * count; ++i)
      sums[i] = combine(folds[i % count], sums[i], sums[i + half * count]);
  sums.resize(count);
  for (auto [fold, sum] : llvm::zip(folds, sums))
    sum = foldLanes(fold, sum);
  return sums;
}

Value HostColumns::cumulate(Value terms, const ColumnStep& step, Value& carry) {
  auto type = cast<VectorType>(terms.getType());
  const bool isReal = isa<FloatType>(type.getElementType());
  auto wide = VectorType::get(kLanes, carry.getType());
  if (wide != type)
    terms = arith::ExtFOp::create(builder, wide, terms);
  Value zeros = LLVM::ZeroOp::create(builder, wide);
  if (step.mask)
    terms = arith::SelectOp::create(builder, step.mask, terms, zeros);
  const auto sum = [&](Value a, Value b) -> Value {
    return isReal ? arith::AddFOp::create(builder, a, b).getResult() : arith::AddIOp::create(builder, a, b).getResult();
  };
  // Each lane's and those `by` before it, twice as many in each round.
  for (int32_t by = 1; by < kLanes; by *= 2) {
    SmallVector<int32_t> from;
    for (int32_t lane = 0; lane < kLanes; ++lane) {
      const int32_t other = runsBackward ? lane + by : lane - by;
      from.push_back(other >= 0 && other < kLanes ? other : int32_t(kLanes)); // a zero
    }
    terms = sum(terms, LLVM::ShuffleVectorOp::create(builder, terms, zeros, from));
  }
  terms = sum(terms, splat(carry));
  carry =
      LLVM::ExtractElementOp::create(builder, terms, math.integer(builder.getI32Type(), runsBackward ? 0 : kLanes - 1));
  return wide == type ? terms : arith::TruncFOp::create(builder, type, terms).getResult();
}

int64_t HostColumns::width(const ColumnStep& step) const {
  return step.mask ? columns % kLanes : kLanes;
}

Value HostColumns::missing(DType dtype) {
  return splat(classOf(dtype) == ValueClass::Real
                   ? math.constant(builder.getF32Type(), std::numeric_limits<float>::quiet_NaN())
                   : math.number(dtype, 0));
}

// The input's column that stands for the program's.
Value HostColumns::mapped(const ColumnMap& map, Value column) {
  Value result;
  for (const ColumnMap::Piece& piece : map.pieces) {
    Value own = column;
    if (piece.step == ColumnMap::Step::Pairs)
      own = arith::XOrIOp::create(builder, column, index(1));
    if (piece.step == ColumnMap::Step::Half)
      own = arith::ShRUIOp::create(builder, column, index(1));
    own = add(own, index(piece.shift));
    if (result) {
      Value begun = arith::CmpIOp::create(builder, arith::CmpIPredicate::sge, column, index(piece.begin));
      own = arith::SelectOp::create(builder, begun, own, result);
    }
    result = own;
  }
  return result;
}

// Lane by lane, in the type that memory has.
Value HostColumns::loadLanes(const Place& place, const ColumnStep& step) {
  Type stored = math.stored(place.dtype);
  Value vector = LLVM::ZeroOp::create(builder, VectorType::get(kLanes, stored));
  for (int64_t lane = 0; lane < width(step); ++lane) {
    Value column = mapped(*place.map, add(step.column, index(lane)));
    Value one = LLVM::LoadOp::create(builder, stored, element(place.base, column, place.dtype), byteSize(place.dtype));
    vector = LLVM::InsertElementOp::create(builder, vector, one, math.integer(builder.getI32Type(), lane));
  }
  return vector;
}

Value HostColumns::load(const Place& place, const ColumnStep* step) {
  if (place.exists) {
    Value none = missing(place.dtype);
    auto choice = scf::IfOp::create(builder, TypeRange(none.getType()), place.exists, /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(choice.thenBlock());
    scf::YieldOp::create(builder, load({place.base, place.dtype, place.distance, {}}, step));
    builder.setInsertionPointToStart(choice.elseBlock());
    scf::YieldOp::create(builder, none);
    return choice.getResult(0);
  }
  Type stored = math.stored(place.dtype);
  const unsigned alignment = byteSize(place.dtype);
  if (!step)
    return math.widen(LLVM::LoadOp::create(builder, stored, place.base, alignment), place.dtype);
  auto type = VectorType::get(kLanes, stored);
  Value at = element(place.base, place.distance ? multiply(step->column, place.distance) : step->column, place.dtype);
  if (place.map)
    return math.widen(loadLanes(place, *step), place.dtype);
  if (place.distance) {
    Value vector = LLVM::ZeroOp::create(builder, type);
    for (int64_t lane = 0; lane < width(*step); ++lane) {
      Value one = LLVM::LoadOp::create(builder, stored, at, alignment);
      vector = LLVM::InsertElementOp::create(builder, vector, one, math.integer(builder.getI32Type(), lane));
      at = element(at, place.distance, place.dtype);
    }
    return math.widen(vector, place.dtype);
  }
  if (!step->mask)
    return math.widen(LLVM::LoadOp::create(builder, type, at, alignment), place.dtype);
  Value zeros = LLVM::ZeroOp::create(builder, type);
  return math.widen(LLVM::MaskedLoadOp::create(builder, type, at, step->mask, zeros, alignment), place.dtype);
}

Value HostColumns::loadAt(const Place& place, Value column) {
  if (place.map)
    column = mapped(*place.map, column);
  Value offset = place.distance ? multiply(column, place.distance) : column;
  Place one{element(place.base, offset, place.dtype), place.dtype, {}};
  if (!place.exists)
    return load(one, nullptr);
  Value none = classOf(place.dtype) == ValueClass::Real
                   ? math.constant(builder.getF32Type(), std::numeric_limits<float>::quiet_NaN())
                   : math.number(place.dtype, 0);
  auto choice = scf::IfOp::create(builder, TypeRange(none.getType()), place.exists, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(choice.thenBlock());
  scf::YieldOp::create(builder, load(one, nullptr));
  builder.setInsertionPointToStart(choice.elseBlock());
  scf::YieldOp::create(builder, none);
  return choice.getResult(0);
}

void HostColumns::store(Value value, const Place& place, bool isExact, const ColumnStep* step) {
  value = math.narrow(value, place.dtype, isExact);
  const unsigned alignment = byteSize(place.dtype);
  if (!step) {
    LLVM::StoreOp::create(builder, value, place.base, alignment);
    return;
  }
  // LLVM 22 turns a masked store of one truncated lane (of 16 bits, at least) into a store of all that was truncated:
  // lane by lane it cannot.
  const bool isTruncated = place.dtype != DType::F32 && place.dtype != DType::I64;
  if (step->mask && isTruncated) {
    storeLanes(value, place, *step);
    return;
  }
  Value at = element(place.base, step->column, place.dtype);
  if (step->mask)
    LLVM::MaskedStoreOp::create(builder, value, at, step->mask, alignment);
  else
    LLVM::StoreOp::create(builder, value, at, alignment);
}

void HostColumns::storeLanes(Value vector, const Place& place, const ColumnStep& step) {
  for (int64_t lane = 0; lane < width(step); ++lane) {
    Value one = LLVM::ExtractElementOp::create(builder, vector, math.integer(builder.getI32Type(), lane));
    Value at = element(place.base, add(step.column, index(lane)), place.dtype);
    LLVM::StoreOp::create(builder, one, at, byteSize(place.dtype));
  }
}

} // namespace cermet
