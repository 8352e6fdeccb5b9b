#include "compiler/host/Functions.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace mlir::arith;

namespace cermet {
namespace {

// Maths on vectors of f64. Coefficients are minimax under relative error, highest power first.
class Wide {
public:
  explicit Wide(ImplicitLocOpBuilder& builder)
      : builder(builder), type(VectorType::get(HostFunctions::kLanes, builder.getF64Type())),
        integers(type.clone(builder.getI64Type())) {}

  Value result(Opcode opcode, ValueRange x);

private:
  Value widen(Value x) { return ExtFOp::create(builder, type, x); }
  Value constant(double value) { return ConstantOp::create(builder, DenseElementsAttr::get(type, value)); }
  Value integer(uint64_t value) {
    return ConstantOp::create(builder, DenseElementsAttr::get(integers, APInt(64, value)));
  }
  Value bits(Value x) { return BitcastOp::create(builder, integers, x); }
  Value real(Value x) { return BitcastOp::create(builder, type, x); }
  Value add(Value a, Value b) { return AddFOp::create(builder, a, b); }
  Value subtract(Value a, Value b) { return SubFOp::create(builder, a, b); }
  Value multiply(Value a, Value b) { return MulFOp::create(builder, a, b); }
  Value multiply(Value a, double b) { return multiply(a, constant(b)); }
  Value divide(Value a, Value b) { return DivFOp::create(builder, a, b); }
  Value size(Value x) { return LLVM::FAbsOp::create(builder, x); }
  Value withSign(Value size, Value sign) { return LLVM::CopySignOp::create(builder, size, sign); }
  Value compare(CmpFPredicate predicate, Value a, double b) {
    return CmpFOp::create(builder, predicate, a, constant(b));
  }
  Value isBelow(Value a, double b) { return compare(CmpFPredicate::OLT, a, b); }
  Value equals(Value a, double b) { return compare(CmpFPredicate::OEQ, a, b); }
  Value isWhole(Value x) { return CmpFOp::create(builder, CmpFPredicate::OEQ, x, LLVM::FTruncOp::create(builder, x)); }
  Value select(Value condition, Value a, Value b) { return SelectOp::create(builder, condition, a, b); }
  Value both(Value a, Value b) { return AndIOp::create(builder, a, b); }
  Value either(Value a, Value b) { return OrIOp::create(builder, a, b); }
  Value inverse(Value condition) {
    return XOrIOp::create(
        builder, condition,
        ConstantOp::create(builder, DenseElementsAttr::get(cast<VectorType>(condition.getType()), true)));
  }

  Value polynomial(Value x, ArrayRef<double> coefficients);
  Value exp2(Value x);
  Value log2(Value x);
  Value erfc(Value x, Value exponent);
  Value tanh(Value x);
  Value erf(Value x);
  Value softplus(Value x);
  Value gelu(Value x);
  Value geluTanh(Value x);
  Value pow(Value x, Value y);

  ImplicitLocOpBuilder& builder;
  VectorType type, integers;
};

constexpr double kLog2e = 0x1.71547652b82fep+0, kLn2 = 0x1.62e42fefa39efp-1;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Value Wide::polynomial(Value x, ArrayRef<double> coefficients) {
  Value sum = constant(coefficients[0]);
  for (double coefficient : coefficients.drop_front())
    sum = add(multiply(sum, x), constant(coefficient));
  return sum;
}

// 2^x = 2^n * 2^r with n = round(x): within 2^-37, and exact for whole x. The bounds of n are the exponents of 0 and
// infinity, so that is what lies beyond them; NaN passes both comparisons.
Value Wide::exp2(Value x) {
  constexpr double coefficients[] = {0x1.5dd96e493e39ep-20, 0x1.00b26808f7402p-16, 0x1.430cd0a084ae3p-13,
                                     0x1.5d8781e957ddep-10, 0x1.3b2ab5eeddcddp-7,  0x1.c6b08db0a4fe1p-5,
                                     0x1.ebfbdff8203dap-3,  0x1.62e42fef8b621p-1};
  constexpr double roundingShift = 0x1.8p52; // adding it leaves round(x) in the low bits of the sum
  x = select(compare(CmpFPredicate::OGT, x, 1024), constant(1024), x);
  x = select(isBelow(x, -1023), constant(-1023), x);
  Value shifted = add(x, constant(roundingShift));
  Value r = subtract(x, subtract(shifted, constant(roundingShift)));
  Value mantissa = add(multiply(r, polynomial(r, coefficients)), constant(1));
  Value biased = AddIOp::create(builder, bits(shifted), integer(1023));
  return multiply(mantissa, real(ShLIOp::create(builder, biased, integer(52))));
}

// x = m * 2^k with m around 1, and log2(m) = s * g(s^2) with s = (m - 1) / (m + 1), which keeps its accuracy where m is
// close to 1: within 2^-44. For x >= 0 and NaN; f32 subnormals are no f64 subnormals.
Value Wide::log2(Value x) {
  constexpr double coefficients[] = {0x1.21b0ea97e634ap-2, 0x1.47955635813fbp-2, 0x1.a61a2ec9b1b2bp-2,
                                     0x1.2776c2933ecdcp-1, 0x1.ec709dc53c66bp-1, 0x1.71547652b8251p+1};
  constexpr uint64_t one = 0x3ff0000000000000, rootOfHalf = 0x3fe6a09e667f3bcd, exponentBits = 0x7ff0000000000000;
  constexpr uint64_t twoTo52 = 0x4330000000000000;
  // The exponent field of x / sqrt(1/2) in units of 1.0: floored k, biased by 1023.
  Value moved = AddIOp::create(builder, bits(x), integer(one - rootOfHalf));
  Value scale = AndIOp::create(builder, moved, integer(exponentBits));
  Value m = real(AddIOp::create(builder, SubIOp::create(builder, bits(x), scale), integer(one)));
  Value biased = OrIOp::create(builder, ShRUIOp::create(builder, scale, integer(52)), integer(twoTo52));
  Value k = subtract(real(biased), constant(0x1p52 + 1023));
  Value s = divide(subtract(m, constant(1)), add(m, constant(1)));
  Value sum = add(k, multiply(s, polynomial(multiply(s, s), coefficients)));
  return select(isBelow(x, kInfinity), select(equals(x, 0), constant(-kInfinity), sum), x);
}

// erfc(x) for x >= 0 within 2^-36: 2^exponent * t * p(t) with t = 1 / (1 + 0.3 x), fitted up to x = 10.25, behind
// which even its product with an x of 14.5 is below every f32. `exponent` is -x^2 * log2(e), which callers know better.
Value Wide::erfc(Value x, Value exponent) {
  constexpr double coefficients[] = {
      -0x1.8c7ef7c6286f2p-6, 0x1.7b82f0aa9b5fbp-3,  -0x1.2abfc972cfd1bp-1, 0x1.f580ded972559p-1, -0x1.0a450ee32fbcbp+0,
      0x1.b3cb9fa969a6ap-1,  -0x1.7cc20077492d3p-2, 0x1.18a42a57e5d0dp-2,  0x1.2fa77c7a19332p-4, 0x1.40b016517f2e8p-3,
      0x1.483bffcea2fc6p-3,  0x1.5add2acafbee2p-3,  0x1.5aa13e3e6e1cfp-3};
  Value t = divide(constant(1), add(constant(1), multiply(x, 0.3)));
  return multiply(exp2(exponent), multiply(t, polynomial(t, coefficients)));
}

// (1 - e) / (1 + e) with e = exp(-2 |x|), and where that cancels, Taylor's x - x^3 / 3 + 2 x^5 / 15.
Value Wide::tanh(Value x) {
  Value e = exp2(multiply(size(x), -2 * kLog2e));
  Value large = withSign(divide(subtract(constant(1), e), add(constant(1), e)), x);
  Value small = multiply(x, polynomial(multiply(x, x), {2.0 / 15, -1.0 / 3, 1}));
  return select(isBelow(size(x), 0x1p-6), small, large);
}

// 1 - erfc(|x|), and where that cancels, x * p(x^2) within 2^-39.
Value Wide::erf(Value x) {
  constexpr double coefficients[] = {0x1.4db9612c8fb23p-8, -0x1.b80ec8063e78cp-6, 0x1.ce2ef6a995e83p-4,
                                     -0x1.8127469ab98e4p-2, 0x1.20dd750427fddp+0};
  Value square = multiply(x, x);
  Value large = withSign(subtract(constant(1), erfc(size(x), multiply(square, -kLog2e))), x);
  return select(isBelow(size(x), 0.25), multiply(x, polynomial(square, coefficients)), large);
}

// max(x, 0) + log(1 + e) with e = exp(-|x|), and where that sum loses e, Taylor's e - e^2 / 2 + e^3 / 3.
Value Wide::softplus(Value x) {
  Value e = exp2(multiply(size(x), -kLog2e));
  Value large = multiply(log2(add(e, constant(1))), kLn2);
  Value small = multiply(e, polynomial(e, {1.0 / 3, -0.5, 1}));
  return add(select(isBelow(x, 0), constant(0), x), select(isBelow(e, 0x1p-12), small, large));
}

// x * erfc(-x / sqrt 2) / 2, of which nothing cancels: below 0 it is this product, above, x * (1 - erfc(x / sqrt 2) /
// 2).
Value Wide::gelu(Value x) {
  Value exponent = multiply(multiply(x, x), -0.5 * kLog2e);
  Value half = multiply(erfc(multiply(size(x), 0x1.6a09e667f3bcdp-1), exponent), 0.5);
  return multiply(x, select(isBelow(x, 0), half, subtract(constant(1), half)));
}

// x / 2 * (1 + tanh u) is x / (1 + exp(-2u)), of which nothing cancels; u = sqrt(2 / pi) * (x + 0.044715 x^3).
Value Wide::geluTanh(Value x) {
  constexpr double slope = -2 * kLog2e * 0x1.9884533d43651p-1;
  Value exponent = multiply(x, polynomial(multiply(x, x), {0.044715 * slope, slope}));
  return divide(x, add(constant(1), exp2(exponent)));
}

// 2^(y log2 |x|) with C's special cases.
Value Wide::pow(Value x, Value y) {
  Value power = exp2(multiply(y, log2(size(x))));
  Value isOdd = both(isWhole(y), inverse(isWhole(multiply(y, 0.5))));
  power = select(isOdd, withSign(power, x), power);
  Value isNegative = both(isBelow(x, 0), inverse(equals(x, -kInfinity)));
  power = select(both(isNegative, inverse(isWhole(y))), constant(kNan), power);
  // NaN in a base or exponent reached the result, but for these.
  Value isOne = either(equals(y, 0), equals(x, 1));
  isOne = either(isOne, both(equals(x, -1), equals(size(y), kInfinity)));
  return select(isOne, constant(1), power);
}

Value Wide::result(Opcode opcode, ValueRange inputs) {
  Value x = widen(inputs[0]);
  switch (opcode) {
  case Opcode::Log:
    return select(isBelow(x, 0), constant(kNan), multiply(log2(x), kLn2));
  case Opcode::Tanh:
    return tanh(x);
  case Opcode::Erf:
    return erf(x);
  case Opcode::Softplus:
    return softplus(x);
  case Opcode::Gelu:
    return gelu(x);
  case Opcode::GeluTanh:
    return geluTanh(x);
  default:
    return pow(x, widen(inputs[1]));
  }
}

} // namespace

bool HostFunctions::has(Opcode opcode) {
  switch (opcode) {
  case Opcode::Log:
  case Opcode::Tanh:
  case Opcode::Erf:
  case Opcode::Softplus:
  case Opcode::Gelu:
  case Opcode::GeluTanh:
  case Opcode::Pow:
    return true;
  default:
    return false;
  }
}

Value HostFunctions::callLanes(Opcode opcode, ArrayRef<Value> inputs) {
  auto type = VectorType::get(kLanes, builder.getF32Type());
  auto function = module.lookupSymbol<LLVM::LLVMFuncOp>(name(opcode));
  if (!function) {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToEnd(module.getBody());
    auto signature = LLVM::LLVMFunctionType::get(type, SmallVector<Type>(inputs.size(), type));
    function = LLVM::LLVMFuncOp::create(builder, name(opcode), signature, LLVM::Linkage::Internal);
    function.setNoInline(true);
    Block* entry = function.addEntryBlock(builder);
    builder.setInsertionPointToStart(entry);
    Value wide = Wide(builder).result(opcode, entry->getArguments());
    LLVM::ReturnOp::create(builder, TruncFOp::create(builder, type, wide).getResult());
  }
  return LLVM::CallOp::create(builder, function, inputs).getResult();
}

Value HostFunctions::call(Opcode opcode, ArrayRef<Value> inputs) {
  auto slice = [&](Value value, ArrayRef<int32_t> lanes) -> Value {
    return LLVM::ShuffleVectorOp::create(builder, value, value, lanes);
  };
  if (isa<VectorType>(inputs[0].getType())) {
    auto low = llvm::to_vector(llvm::seq<int32_t>(0, kLanes)),
         high = llvm::to_vector(llvm::seq<int32_t>(kLanes, 2 * kLanes));
    SmallVector<Value> lower, upper;
    for (Value input : inputs) {
      lower.push_back(slice(input, low));
      upper.push_back(slice(input, high));
    }
    auto all = llvm::to_vector(llvm::seq<int32_t>(0, 2 * kLanes));
    Value first = callLanes(opcode, lower), second = callLanes(opcode, upper);
    return LLVM::ShuffleVectorOp::create(builder, first, second, all);
  }
  // One number fills all lanes: an idle lane could be slower.
  auto lanes = VectorType::get(kLanes, builder.getF32Type());
  Value zero = math.integer(builder.getI32Type(), 0);
  SmallVector<Value> filled;
  for (Value input : inputs) {
    Value first = LLVM::InsertElementOp::create(builder, LLVM::PoisonOp::create(builder, lanes), input, zero);
    filled.push_back(slice(first, SmallVector<int32_t>(kLanes, 0)));
  }
  return LLVM::ExtractElementOp::create(builder, callLanes(opcode, filled), zero);
}

} // namespace cermet
