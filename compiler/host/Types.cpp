// The types of a row program: in memory, in registers, and from one to another.
#include "compiler/host/Math.h"
#include "runtime/abi/Rounding.h"
#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace mlir::arith;

namespace cermet {

Type HostMath::stored(DType dtype) {
  return dtype == DType::F32 ? Type(builder.getF32Type()) : Type(builder.getIntegerType(8 * byteSize(dtype)));
}

// A double modulo the type's range, as roundTo has it.
static uint64_t wholeNumber(double value, DType dtype) {
  if (!std::isfinite(value))
    return 0;
  const double size = std::fmod(std::trunc(std::fabs(value)), std::ldexp(1.0, 8 * byteSize(dtype)));
  const uint64_t whole = static_cast<uint64_t>(size);
  return value < 0 ? 0 - whole : whole;
}

Value HostMath::number(DType dtype, double value) {
  switch (classOf(dtype)) {
  case ValueClass::Real:
    return constant(builder.getF32Type(), static_cast<float>(roundTo(codeOf(dtype), value)));
  case ValueClass::Integer:
    return round(integer(builder.getI64Type(), wholeNumber(value, dtype)), dtype);
  case ValueClass::Bool:
    return integer(builder.getI1Type(), value != 0);
  }
  return {};
}

// Whether memory has it as registers do.
static bool isKept(DType dtype) {
  return dtype == DType::F32 || dtype == DType::I64;
}

// Of reals there are these: f32, f16, bf16, and the two of eight bits.
static_assert(std::count_if(std::begin(kElementTypes), std::end(kElementTypes), [](const ElementType& type) {
                return type.isInKernels && type.format.valueClass == ValueClass::Real;
              }) == 5);

//===--- Memory -----------------------------------------------------------------------------------------------------//

Value HostMath::widen(Value stored, DType dtype) {
  auto like = [&](Type element) { return withElement(stored.getType(), element); };
  const NumberFormat& format = traitsOf(dtype).format;
  if (isKept(dtype))
    return stored;
  if (format.valueClass == ValueClass::Bool)
    return CmpIOp::create(builder, CmpIPredicate::ne, stored, integer(stored.getType(), 0));
  if (format.valueClass == ValueClass::Integer && format.isSigned)
    return ExtSIOp::create(builder, like(builder.getI64Type()), stored);
  if (format.valueClass == ValueClass::Integer)
    return ExtUIOp::create(builder, like(builder.getI64Type()), stored);
  if (dtype == DType::F16)
    return halfToReal(stored);
  if (byteSize(dtype) == 1)
    return eightBitsToReal(stored, dtype);
  Value wide = ExtUIOp::create(builder, like(builder.getI32Type()), stored);
  return real(ShLIOp::create(builder, wide, integer(wide.getType(), 16)));
}

Value HostMath::narrow(Value value, DType dtype, bool isExact) {
  if (isKept(dtype))
    return value;
  Type stored = withElement(value.getType(), this->stored(dtype));
  if (classOf(dtype) == ValueClass::Integer)
    return TruncIOp::create(builder, stored, value);
  if (dtype == DType::I1)
    return ExtUIOp::create(builder, stored, value);
  if (dtype == DType::F16 && hasF16C) {
    Value half = TruncFOp::create(builder, withElement(value.getType(), builder.getF16Type()), value);
    return BitcastOp::create(builder, stored, half);
  }
  if (dtype == DType::F16)
    return TruncIOp::create(builder, stored, halfBits(value));
  if (byteSize(dtype) == 1)
    return TruncIOp::create(builder, stored, eightBits(value, dtype));
  Value rounded = isExact ? bits(value) : bfloatBits(value);
  Value high = ShRUIOp::create(builder, rounded, integer(rounded.getType(), 16));
  return TruncIOp::create(builder, stored, high);
}

Value HostMath::round(Value value, DType dtype) {
  if (isKept(dtype) || dtype == DType::I1)
    return value;
  if (dtype != DType::BF16)
    return widen(narrow(value, dtype, false), dtype);
  Value rounded = bfloatBits(value);
  return real(AndIOp::create(builder, rounded, integer(rounded.getType(), 0xffff0000u)));
}

//===--- Between types ----------------------------------------------------------------------------------------------//

Value HostMath::convert(Value value, DType from, DType to) {
  const ValueClass given = classOf(from), wanted = classOf(to);
  if (from == to)
    return value;
  if (wanted == ValueClass::Bool)
    return isNotZero(value, given);
  if (given == ValueClass::Bool) {
    Type bools = value.getType();
    if (wanted == ValueClass::Integer)
      return ExtUIOp::create(builder, withElement(bools, builder.getI64Type()), value);
    Type reals = withElement(bools, builder.getF32Type());
    return SelectOp::create(builder, value, constant(reals, 1.0f), constant(reals, 0.0f));
  }
  if (given == wanted)
    return round(value, to);
  return given == ValueClass::Real ? truncated(value, to) : rounded(value, from, to);
}

Value HostMath::isNotZero(Value value, ValueClass from) {
  if (from == ValueClass::Real)
    return CmpFOp::create(builder, CmpFPredicate::UNE, value, constant(value.getType(), 0.0f));
  return CmpIOp::create(builder, CmpIPredicate::ne, value, integer(value.getType(), 0));
}

// x is (-1)^sign * mantissa * 2^exponent, so its whole part is the mantissa shifted, and bits that leave on the left
// are multiples of the type's range. Infinity and NaN look like 2^128 and more: all bits leave. The processor's
// conversion would have to be kept from numbers beyond its range.
Value HostMath::truncated(Value x, DType to) {
  Value source = bits(x);
  Type narrow = source.getType(), wide = withElement(narrow, builder.getI64Type());
  Value biased = AndIOp::create(builder, ShRUIOp::create(builder, source, integer(narrow, 23)), integer(narrow, 0xff));
  Value exponent = SubIOp::create(builder, biased, integer(narrow, 127 + 23));
  Value mantissa =
      OrIOp::create(builder, AndIOp::create(builder, source, integer(narrow, 0x007fffff)), integer(narrow, 0x00800000));
  Value zero = integer(narrow, 0);
  Value isNegative = CmpIOp::create(builder, CmpIPredicate::slt, source, zero);
  const uint64_t width = byteSize(to) == 8 ? 64 : 32;
  auto atMost = [&](Value shift, uint64_t most) -> Value {
    return MinSIOp::create(builder, MaxSIOp::create(builder, shift, zero), integer(narrow, most));
  };
  Value whole = ShRUIOp::create(builder, mantissa, atMost(SubIOp::create(builder, zero, exponent), 31));
  Value left = atMost(exponent, width - 1);
  Value leaves = CmpIOp::create(builder, CmpIPredicate::sge, exponent, integer(narrow, width));
  if (width == 64) {
    whole = ExtUIOp::create(builder, wide, whole);
    left = ExtUIOp::create(builder, wide, left);
  }
  Value none = integer(whole.getType(), 0);
  whole = SelectOp::create(builder, leaves, none, ShLIOp::create(builder, whole, left));
  whole = SelectOp::create(builder, isNegative, SubIOp::create(builder, none, whole), whole);
  return round(width == 64 ? whole : ExtSIOp::create(builder, wide, whole), to);
}

// Up to 24 bits an f32 holds what it is given, and f16 and the types of eight bits have no larger number. A bf16 has,
// and rounding to f32 first would round twice: an f64 (exact up to 53 bits) whose last bits are one sticky bit rounds
// to bf16 as it would itself.
Value HostMath::rounded(Value whole, DType from, DType to) {
  Type reals = withElement(whole.getType(), builder.getF32Type());
  if (byteSize(from) < 4 || (byteSize(from) == 4 && traitsOf(from).format.isSigned))
    whole = TruncIOp::create(builder, withElement(reals, builder.getI32Type()), whole);
  if (to != DType::BF16 || byteSize(from) < 4)
    return round(SIToFPOp::create(builder, reals, whole), to);
  Type wide = withElement(reals, builder.getF64Type()), integers = withElement(reals, builder.getI64Type());
  constexpr uint64_t dropped = (uint64_t(1) << 29) - 1; // fraction bits that an f32 lacks
  Value source = BitcastOp::create(builder, integers, SIToFPOp::create(builder, wide, whole));
  Value rest = AndIOp::create(builder, source, integer(integers, dropped));
  Value carry = AndIOp::create(builder, AddIOp::create(builder, rest, integer(integers, dropped)),
                               integer(integers, dropped + 1)); // 1 behind what is kept, if there is a rest
  Value kept = AndIOp::create(builder, source, integer(integers, ~dropped));
  Value odd = BitcastOp::create(builder, wide, OrIOp::create(builder, kept, carry));
  return round(TruncFOp::create(builder, reals, odd), to);
}

//===--- Sixteen-bit floats ------------------------------------------------------------------------------------------//

// Adding half a unit of the last kept place, less one if that place is even, carries into the exponent where it must
// (to infinity, too). A NaN would carry into the sign, so it only gets its quiet bit.
Value HostMath::bfloatBits(Value value) {
  Value source = bits(value);
  Type type = source.getType();
  Value even = AndIOp::create(builder, ShRUIOp::create(builder, source, integer(type, 16)), integer(type, 1));
  Value bias = AddIOp::create(builder, even, integer(type, 0x7fff));
  Value rounded = AddIOp::create(builder, source, bias);
  Value quiet = OrIOp::create(builder, source, integer(type, 0x00400000));
  return SelectOp::create(builder, isNan(value), quiet, rounded);
}

Value HostMath::halfBits(Value value) {
  Value source = bits(value);
  Type type = source.getType();
  Value sign = AndIOp::create(builder, source, integer(type, 0x80000000u));
  Value size = XOrIOp::create(builder, source, sign);

  // Normal: move the exponent's bias from 127 to 15 and round off 13 bits.
  Value odd = AndIOp::create(builder, ShRUIOp::create(builder, size, integer(type, 13)), integer(type, 1));
  Value rebased = AddIOp::create(builder, size, integer(type, (static_cast<uint32_t>(15 - 127) << 23) + 0xfff));
  Value normal = ShRUIOp::create(builder, AddIOp::create(builder, rebased, odd), integer(type, 13));

  // Subnormal: adding 0.5, whose last place is 2^-24, makes the f32 adder round to f16's grid.
  Value half = integer(type, 0x3f000000);
  Value shifted = AddFOp::create(builder, real(size), real(half));
  Value subnormal = SubIOp::create(builder, bits(shifted), half);

  auto below = [&](uint32_t bound) -> Value {
    return CmpIOp::create(builder, CmpIPredicate::ult, size, integer(type, bound));
  };
  Value finite = SelectOp::create(builder, below(113u << 23), subnormal, normal);
  Value special = SelectOp::create(builder, isNan(value), integer(type, 0x7e00), integer(type, 0x7c00));
  Value result = SelectOp::create(builder, below(143u << 23), finite, special); // 2^16 and up overflow
  return OrIOp::create(builder, result, ShRUIOp::create(builder, sign, integer(type, 16)));
}

// Seen as an f32, the shifted f16 is too small by exactly 2^112; multiplying by that also normalises subnormals.
Value HostMath::halfFromBits(Value stored) {
  Type type = stored.getType();
  Value size = AndIOp::create(builder, stored, integer(type, 0x7fff));
  Value shifted = ShLIOp::create(builder, size, integer(type, 13));
  Value scaled = bits(MulFOp::create(builder, real(shifted), real(integer(type, (127u + 112u) << 23))));
  Value isSpecial = CmpIOp::create(builder, CmpIPredicate::uge, size, integer(type, 0x7c00));
  Value special = OrIOp::create(builder, shifted, integer(type, 0x7f800000));
  Value sign = ShLIOp::create(builder, AndIOp::create(builder, stored, integer(type, 0x8000)), integer(type, 16));
  return real(OrIOp::create(builder, SelectOp::create(builder, isSpecial, special, scaled), sign));
}

Value HostMath::halfToReal(Value stored) {
  Type reals = withElement(stored.getType(), builder.getF32Type());
  if (!hasF16C)
    return halfFromBits(ExtUIOp::create(builder, withElement(reals, builder.getI32Type()), stored));
  Value half = BitcastOp::create(builder, withElement(reals, builder.getF16Type()), stored);
  return ExtFOp::create(builder, reals, half);
}

//===--- Eight-bit floats --------------------------------------------------------------------------------------------//

// As halfBits does it. What rounds beyond the largest number is larger than its bits, infinity's included: the smaller
// of both saturates, which for f8e5m2 is at infinity.
Value HostMath::eightBits(Value value, DType dtype) {
  const bool isE4M3 = dtype == DType::F8E4M3;
  const unsigned dropped = isE4M3 ? 20 : 21;
  const uint32_t bias = isE4M3 ? 7 : 15, most = isE4M3 ? 0x7e : 0x7c;
  const uint32_t unit = (isE4M3 ? 127u + 14 : 127u + 7) << 23; // its last place is the smallest subnormal
  Value source = bits(value);
  Type type = source.getType();
  Value sign = AndIOp::create(builder, source, integer(type, 0x80000000u));
  Value size = XOrIOp::create(builder, source, sign);

  Value odd = AndIOp::create(builder, ShRUIOp::create(builder, size, integer(type, dropped)), integer(type, 1));
  const uint32_t half = (1u << (dropped - 1)) - 1;
  Value rebased = AddIOp::create(builder, size, integer(type, half - ((127 - bias) << 23)));
  Value normal = ShRUIOp::create(builder, AddIOp::create(builder, rebased, odd), integer(type, dropped));
  normal = MinUIOp::create(builder, normal, integer(type, most));

  Value shifted = AddFOp::create(builder, real(size), real(integer(type, unit)));
  Value subnormal = SubIOp::create(builder, bits(shifted), integer(type, unit));
  Value isNormal = CmpIOp::create(builder, CmpIPredicate::uge, size, integer(type, (128 - bias) << 23));
  Value result = SelectOp::create(builder, isNormal, normal, subnormal);
  result = SelectOp::create(builder, isNan(value), integer(type, 0x7f), result);
  return OrIOp::create(builder, result, ShRUIOp::create(builder, sign, integer(type, 24)));
}

// An f8e5m2 is the upper half of an f16; the f16 of an f8e4m3 has exponents that are biased by 8 more.
Value HostMath::eightBitsToReal(Value stored, DType dtype) {
  Value wide = ExtUIOp::create(builder, withElement(stored.getType(), builder.getI16Type()), stored);
  Type type = wide.getType();
  if (dtype == DType::F8E5M2)
    return halfToReal(ShLIOp::create(builder, wide, integer(type, 8)));
  Value size = AndIOp::create(builder, wide, integer(type, 0x7f));
  Value sign = ShLIOp::create(builder, XOrIOp::create(builder, wide, size), integer(type, 8));
  Value half = OrIOp::create(builder, sign, ShLIOp::create(builder, size, integer(type, 7)));
  Value small = halfToReal(half);
  Value value = MulFOp::create(builder, small, constant(small.getType(), 256.0f));
  Value isNumber = CmpIOp::create(builder, CmpIPredicate::ne, size, integer(type, 0x7f));
  return SelectOp::create(builder, isNumber, value, constant(small.getType(), NAN));
}

} // namespace cermet
