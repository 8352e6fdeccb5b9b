// Scalar and vector maths of host kernels, written as MLIR ops on f32 (or vector<Nxf32>) values. Every function takes
// either shape and answers in the same. Only operations with an exact, lane-wise meaning on every x86-64 level are used
// (no fused multiply-add, no library call), so all levels compute the same bits.
#pragma once
#include "compiler/RowProgram.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace cermet {

class HostMath {
public:
  // `hasF16C`: the level converts f16 in hardware (v3 and up); otherwise integer operations do it.
  HostMath(mlir::ImplicitLocOpBuilder& builder, bool hasF16C) : builder(builder), hasF16C(hasF16C) {}

  mlir::Value constant(mlir::Type shape, float value); // `shape`: f32 or vector<Nxf32>

  // Memory representation (f32, or i16 holding bf16 or f16 bits) to f32 and back. `narrow` rounds to nearest even.
  mlir::Value widen(mlir::Value stored, DType dtype);
  mlir::Value narrow(mlir::Value value, DType dtype, bool isExact);
  mlir::Value round(mlir::Value value, DType dtype); // narrow, then widen

  mlir::Value exp(mlir::Value x);
  mlir::Value sigmoid(mlir::Value x);
  mlir::Value silu(mlir::Value x);
  mlir::Value rsqrt(mlir::Value x);

private:
  // exp(x) = value * 2^rest, where `value` is the rounded mantissa times about the root of exp(x)'s power of two.
  struct Power {
    mlir::Value value, rest; // f32, i32
  };
  Power power(mlir::Value x, float highest);
  mlir::Value powerOfTwo(mlir::Value n); // i32 in [-126, 127] to f32

  mlir::Value bits(mlir::Value value);                   // f32 to i32, same bits
  mlir::Value real(mlir::Value value);                   // i32 to f32, same bits
  mlir::Value integer(mlir::Type shape, uint32_t value); // `shape`: i32 or vector<Nxi32>
  mlir::Value isNan(mlir::Value x);
  mlir::Value greater(mlir::Value x, float bound);
  mlir::Value bfloatBits(mlir::Value value);    // f32 to i32 whose high half is the bf16
  mlir::Value halfBits(mlir::Value value);      // f32 to i32 whose low half is the f16
  mlir::Value halfFromBits(mlir::Value stored); // i32 whose low half is the f16, to f32

  mlir::ImplicitLocOpBuilder& builder;
  bool hasF16C;
};

} // namespace cermet
