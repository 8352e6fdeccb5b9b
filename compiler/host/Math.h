// Scalar and vector maths of host kernels, written as MLIR ops. A real is an f32, an integer an i64, a bool an i1;
// every function takes one value or a vector of them and answers in the same shape. Only operations with an exact,
// lane-wise meaning on every x86-64 level are used (no fused multiply-add, no library call), so all levels compute the
// same bits.
#pragma once
#include "compiler/program/RowProgram.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace cermet {

// The type with the same shape as `type` and another element.
mlir::Type withElement(mlir::Type type, mlir::Type element);

class HostMath {
public:
  // `hasF16C`: the level converts f16 in hardware (v3 and up); otherwise integer operations do it.
  HostMath(mlir::ImplicitLocOpBuilder& builder, bool hasF16C) : builder(builder), hasF16C(hasF16C) {}

  mlir::Type stored(DType dtype);                        // in memory: f32 or an integer of the type's size
  mlir::Value constant(mlir::Type shape, float value);   // `shape`: f32 or vector<Nxf32>
  mlir::Value integer(mlir::Type shape, uint64_t value); // `shape`: an integer or a vector of them; the low bits
  mlir::Value number(DType dtype, double value);         // a scalar, rounded once

  // From memory and back. `narrow` rounds reals to nearest even, unless `isExact`, and drops integers' high bits.
  mlir::Value widen(mlir::Value stored, DType dtype);
  mlir::Value narrow(mlir::Value value, DType dtype, bool isExact);
  mlir::Value round(mlir::Value value, DType dtype); // of one class: rounds a real, wraps an integer
  // Between any two types, rounding or wrapping once. Real to integer is toward zero and modulo the type's range at any
  // size; what is not finite becomes 0.
  mlir::Value convert(mlir::Value value, DType from, DType to);

  // The larger and smaller real: NaN if one is NaN; of zeros, b.
  mlir::Value maximum(mlir::Value a, mlir::Value b);
  mlir::Value minimum(mlir::Value a, mlir::Value b);

  mlir::Value exp(mlir::Value x);     // 0.991 ulp
  mlir::Value sigmoid(mlir::Value x); // 3 ulp
  mlir::Value silu(mlir::Value x);    // 3 ulp; where the sigmoid is near 2^-149, and |x| * 2^-149
  mlir::Value rsqrt(mlir::Value x);   // 1.5 ulp

  // Of integers: as runtime/abi/Random.h has them.
  mlir::Value randomKey(mlir::Value seed, mlir::Value row);
  mlir::Value randomBits(mlir::Value key, mlir::Value column);

private:
  // exp(x) = value * 2^rest, where `value` is the rounded mantissa times about the root of exp(x)'s power of two.
  struct Power {
    mlir::Value value, rest; // f32, i32
  };
  Power power(mlir::Value x, float highest);
  mlir::Value powerOfTwo(mlir::Value n); // i32 in [-126, 127] to f32

  mlir::Value shiftedXor(mlir::Value x, uint64_t by); // x ^ (x >> by)
  mlir::Value bits(mlir::Value value);                // f32 to i32, same bits
  mlir::Value real(mlir::Value value);                // i32 to f32, same bits
  mlir::Value isNan(mlir::Value x);
  mlir::Value greater(mlir::Value x, float bound);
  mlir::Value extreme(mlir::arith::CmpFPredicate wins, mlir::Value a, mlir::Value b);
  mlir::Value bfloatBits(mlir::Value value);    // f32 to i32 whose high half is the bf16
  mlir::Value halfBits(mlir::Value value);      // f32 to i32 whose low half is the f16
  mlir::Value halfFromBits(mlir::Value stored); // i32 whose low half is the f16, to f32
  mlir::Value halfToReal(mlir::Value stored);   // i16 to f32
  // f32 to i32 whose low byte is the f8e4m3 or f8e5m2, and i8 to f32.
  mlir::Value eightBits(mlir::Value value, DType dtype);
  mlir::Value eightBitsToReal(mlir::Value stored, DType dtype);
  mlir::Value isNotZero(mlir::Value value, ValueClass from);
  mlir::Value truncated(mlir::Value x, DType to);               // f32 to i64
  mlir::Value rounded(mlir::Value whole, DType from, DType to); // i64 to f32

  mlir::ImplicitLocOpBuilder& builder;
  bool hasF16C;
};

} // namespace cermet
