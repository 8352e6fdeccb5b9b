#include "compiler/host/Math.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace mlir::arith;

namespace cermet {

Type withElement(Type type, Type element) {
  if (auto vector = dyn_cast<VectorType>(type))
    return vector.clone(element);
  return element;
}

static Value spread(ImplicitLocOpBuilder& builder, Type shape, TypedAttr element) {
  if (auto vector = dyn_cast<VectorType>(shape))
    return ConstantOp::create(builder, DenseElementsAttr::get(vector, Attribute(element)));
  return ConstantOp::create(builder, element);
}

Value HostMath::constant(Type shape, float value) {
  return spread(builder, shape, builder.getF32FloatAttr(value));
}

Value HostMath::integer(Type shape, uint64_t value) {
  Type element = getElementTypeOrSelf(shape);
  return spread(builder, shape, IntegerAttr::get(element, APInt(64, value).trunc(element.getIntOrFloatBitWidth())));
}

Value HostMath::bits(Value value) {
  return BitcastOp::create(builder, withElement(value.getType(), builder.getI32Type()), value);
}

Value HostMath::real(Value value) {
  return BitcastOp::create(builder, withElement(value.getType(), builder.getF32Type()), value);
}

Value HostMath::isNan(Value x) {
  return CmpFOp::create(builder, CmpFPredicate::UNO, x, x);
}

Value HostMath::greater(Value x, float bound) {
  return CmpFOp::create(builder, CmpFPredicate::OGT, x, constant(x.getType(), bound));
}

Value HostMath::extreme(CmpFPredicate wins, Value a, Value b) {
  return SelectOp::create(builder, isNan(a), a, SelectOp::create(builder, CmpFOp::create(builder, wins, a, b), a, b));
}

Value HostMath::maximum(Value a, Value b) {
  return extreme(CmpFPredicate::OGT, a, b);
}

Value HostMath::minimum(Value a, Value b) {
  return extreme(CmpFPredicate::OLT, a, b);
}

// exp(x) = 2^n * exp(r) with n = round(x / ln 2) and |r| <= ln(2) / 2, and exp(r) = 1 + r + r^2 q(r), where q is the
// minimax polynomial of degree 4 under relative error (3.1e-9, 0.05 ulp; tried on every f32, exp is off by 0.991 ulp at
// most). ln 2 is split so that n * ln2High is exact.
HostMath::Power HostMath::power(Value x, float highest) {
  constexpr float log2e = 0x1.715476p+0f, ln2High = 0.693359375f, ln2Low = -2.12194440e-4f;
  constexpr float coefficients[] = {0x1.6a4cb4p-10f, 0x1.123986p-7f, 0x1.5558b0p-5f, 0x1.555492p-3f, 0x1.fffffcp-2f};
  constexpr float roundingShift = 0x1.8p23f; // adding it leaves round(value) in the low bits of the sum
  constexpr float lowest = -104.0f;          // below it exp is 0; NaN passes both comparisons

  Type type = x.getType();
  auto real32 = [&](float value) { return constant(type, value); };
  auto multiply = [&](Value a, Value b) -> Value { return MulFOp::create(builder, a, b); };
  auto add = [&](Value a, Value b) -> Value { return AddFOp::create(builder, a, b); };
  auto subtract = [&](Value a, Value b) -> Value { return SubFOp::create(builder, a, b); };

  x = SelectOp::create(builder, greater(x, highest), real32(highest), x);
  Value tooLow = CmpFOp::create(builder, CmpFPredicate::OLT, x, real32(lowest));
  x = SelectOp::create(builder, tooLow, real32(lowest), x);

  Value shifted = add(multiply(x, real32(log2e)), real32(roundingShift));
  Value n = subtract(shifted, real32(roundingShift));
  Value r = subtract(subtract(x, multiply(n, real32(ln2High))), multiply(n, real32(ln2Low)));
  Value q = real32(coefficients[0]);
  for (float coefficient : llvm::ArrayRef(coefficients).drop_front())
    q = add(multiply(q, r), real32(coefficient));
  Value mantissa = add(add(multiply(multiply(r, r), q), r), real32(1.0f));

  Value exponent = bits(shifted);
  Type integers = exponent.getType();
  exponent = SubIOp::create(builder, exponent, integer(integers, 0x4b400000)); // roundingShift's bits
  Value first = ShRSIOp::create(builder, exponent, integer(integers, 1));
  return {multiply(mantissa, powerOfTwo(first)), SubIOp::create(builder, exponent, first)};
}

Value HostMath::powerOfTwo(Value n) {
  Value biased = AddIOp::create(builder, n, integer(n.getType(), 127));
  return real(ShLIOp::create(builder, biased, integer(n.getType(), 23)));
}

// 2^n is applied in two halves, so that results below 2^-126 round once and results above 2^128 become infinite.
Value HostMath::exp(Value x) {
  Power e = power(x, 89.0f); // from there on exp is infinity
  return MulFOp::create(builder, e.value, powerOfTwo(e.rest));
}

// exp of a negative number never overflows, so both tails keep their accuracy: z = exp(-|x|), and the answer is
// 1 / (1 + z) for x >= 0 and z / (1 + z) below.
Value HostMath::sigmoid(Value x) {
  Type type = x.getType();
  Value size = LLVM::FAbsOp::create(builder, x);
  Value z = exp(NegFOp::create(builder, size));
  Value one = constant(type, 1.0f);
  Value isNegative = CmpFOp::create(builder, CmpFPredicate::OLT, x, constant(type, 0.0f));
  Value numerator = SelectOp::create(builder, isNegative, z, one);
  return DivFOp::create(builder, numerator, AddFOp::create(builder, one, z));
}

// x / (1 + e) with e = exp(-x). Where 1 is nothing beside e, x / e instead, e's power of two in two halves again, so
// that no x below overflows e; and where that is below every f32, zero.
Value HostMath::silu(Value x) {
  constexpr float tail = -64.0f, zero = -110.0f;
  Type type = x.getType();
  Power e = power(NegFOp::create(builder, x), -zero);
  auto below = [&](float bound) -> Value {
    return CmpFOp::create(builder, CmpFPredicate::OLT, x, constant(type, bound));
  };
  Value whole = MulFOp::create(builder, e.value, powerOfTwo(e.rest));
  Value sum = AddFOp::create(builder, constant(type, 1.0f), whole);
  Value quotient = DivFOp::create(builder, x, SelectOp::create(builder, below(tail), e.value, sum));
  Value rest = powerOfTwo(SubIOp::create(builder, integer(e.rest.getType(), 0), e.rest));
  rest = SelectOp::create(builder, below(zero), constant(type, 0.0f), rest);
  Value small = MulFOp::create(builder, quotient, rest);
  return SelectOp::create(builder, below(tail), small, quotient);
}

Value HostMath::rsqrt(Value x) {
  return DivFOp::create(builder, constant(x.getType(), 1.0f), LLVM::SqrtOp::create(builder, x));
}

Value HostMath::shiftedXor(Value x, uint64_t by) {
  return XOrIOp::create(builder, x, ShRUIOp::create(builder, x, integer(x.getType(), by)));
}

Value HostMath::randomKey(Value seed, Value row) {
  auto number = [&](uint64_t value) { return integer(seed.getType(), value); };
  auto multiply = [&](Value a, uint64_t by) -> Value { return MulIOp::create(builder, a, number(by)); };
  Value next = AddIOp::create(builder, row, number(1));
  Value x = AddIOp::create(builder, seed, multiply(next, 0x9e3779b97f4a7c15u));
  x = multiply(shiftedXor(x, 30), 0xbf58476d1ce4e5b9u);
  x = multiply(shiftedXor(x, 27), 0x94d049bb133111ebu);
  return shiftedXor(x, 31);
}

Value HostMath::randomBits(Value key, Value column) {
  Type narrow = withElement(key.getType(), builder.getI32Type());
  auto low = [&](Value value) -> Value { return TruncIOp::create(builder, narrow, value); };
  auto multiply = [&](Value a, uint64_t by) -> Value { return MulIOp::create(builder, a, integer(narrow, by)); };
  Value high = low(ShRUIOp::create(builder, key, integer(key.getType(), 32)));
  Value x = AddIOp::create(builder, low(column), low(key));
  x = multiply(shiftedXor(x, 16), 0x7feb352du);
  x = multiply(XOrIOp::create(builder, shiftedXor(x, 15), high), 0x846ca68bu);
  return ExtUIOp::create(builder, key.getType(), shiftedXor(x, 16));
}

} // namespace cermet
