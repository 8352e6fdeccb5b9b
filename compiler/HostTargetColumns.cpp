#include "compiler/HostTargetColumns.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace cermet {

HostColumns::HostColumns(ImplicitLocOpBuilder& builder, HostMath& math, int64_t columns)
    : builder(builder), math(math), columns(columns) {}

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
  Type type = dtype == DType::F32 ? real() : builder.getI16Type();
  return LLVM::GEPOp::create(builder, pointer(), type, base, ArrayRef<LLVM::GEPArg>{offset});
}

Value HostColumns::splat(Value scalar) {
  Value empty = LLVM::PoisonOp::create(builder, lanes());
  Value zero = arith::ConstantOp::create(builder, builder.getI32IntegerAttr(0));
  Value first = LLVM::InsertElementOp::create(builder, empty, scalar, zero);
  return LLVM::ShuffleVectorOp::create(builder, first, first, SmallVector<int32_t>(kLanes, 0));
}

Value HostColumns::zeros() {
  return math.constant(lanes(), 0.0f);
}

// Adds the upper half to the lower until one lane is left.
Value HostColumns::sumOfLanes(Value vector) {
  for (int32_t half = kLanes / 2; half > 0; half /= 2) {
    SmallVector<int32_t> low, high;
    for (int32_t lane = 0; lane < half; ++lane) {
      low.push_back(lane);
      high.push_back(lane + half);
    }
    Value lower = LLVM::ShuffleVectorOp::create(builder, vector, vector, low);
    Value upper = LLVM::ShuffleVectorOp::create(builder, vector, vector, high);
    vector = arith::AddFOp::create(builder, lower, upper);
  }
  Value zero = arith::ConstantOp::create(builder, builder.getI32IntegerAttr(0));
  return LLVM::ExtractElementOp::create(builder, vector, zero);
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
  if (whole > 0)
    carried = loop(index(0), index(whole), kLanes, initial, [&](Value column, const Values& current) {
      return body({column, {}}, current);
    });
  if (Value mask = raggedMask())
    carried = body({index(whole), mask}, carried);
  return carried;
}

Values HostColumns::columnSums(size_t count, llvm::function_ref<Values(const ColumnStep&)> body) {
  Values sums(kSums * count, zeros());
  auto grow = [&](int64_t turn, const ColumnStep& step) {
    for (auto [i, value] : llvm::enumerate(body(step))) {
      Value& sum = sums[turn * count + i];
      Value grown = arith::AddFOp::create(builder, sum, value);
      sum = step.mask ? arith::SelectOp::create(builder, step.mask, grown, sum).getResult() : grown;
    }
  };
  constexpr int64_t span = kSums * kLanes;
  int64_t whole = columns / kLanes * kLanes, turns = columns / span * span;
  if (turns > 0)
    sums = loop(index(0), index(turns), span, sums, [&](Value column, const Values& current) {
      sums = current;
      for (int64_t turn = 0; turn < kSums; ++turn)
        grow(turn, {add(column, index(turn * kLanes)), {}});
      return sums;
    });
  for (int64_t column = turns; column < whole; column += kLanes)
    grow((column - turns) / kLanes, {index(column), {}});
  if (Value mask = raggedMask())
    grow((whole - turns) / kLanes, {index(whole), mask});
  for (int64_t half = kSums / 2; half > 0; half /= 2)
    for (size_t i = 0; i < half * count; ++i)
      sums[i] = arith::AddFOp::create(builder, sums[i], sums[i + half * count]);
  sums.resize(count);
  return sums;
}

Value HostColumns::load(Value base, DType dtype, const ColumnStep* step) {
  Type stored = dtype == DType::F32 ? real() : builder.getI16Type();
  if (!step)
    return math.widen(LLVM::LoadOp::create(builder, stored, base, byteSize(dtype)), dtype);
  Value at = element(base, step->column, dtype);
  auto type = VectorType::get(kLanes, stored);
  if (!step->mask)
    return math.widen(LLVM::LoadOp::create(builder, type, at, byteSize(dtype)), dtype);
  Value zeros = LLVM::ZeroOp::create(builder, type);
  return math.widen(LLVM::MaskedLoadOp::create(builder, type, at, step->mask, zeros, byteSize(dtype)), dtype);
}

void HostColumns::store(Value value, Value base, DType dtype, bool isExact, const ColumnStep* step) {
  value = math.narrow(value, dtype, isExact);
  Value at = step ? element(base, step->column, dtype) : base;
  if (!step || !step->mask) {
    LLVM::StoreOp::create(builder, value, at, byteSize(dtype));
    return;
  }
  if (dtype == DType::F32) {
    LLVM::MaskedStoreOp::create(builder, value, at, step->mask, byteSize(dtype));
    return;
  }
  // LLVM 22 turns a masked store of one truncated 16-bit lane into a store of 32 bits: lane by lane it cannot.
  const int64_t whole = columns / kLanes * kLanes;
  for (int64_t lane = 0; whole + lane < columns; ++lane) {
    Value position = LLVM::ConstantOp::create(builder, builder.getI32Type(), builder.getI32IntegerAttr(int32_t(lane)));
    LLVM::StoreOp::create(builder, LLVM::ExtractElementOp::create(builder, value, position),
                          element(base, index(whole + lane), dtype), byteSize(dtype));
  }
}

} // namespace cermet
