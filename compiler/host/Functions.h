// Functions of host kernels that are computed in f64 and rounded once to f32: log, tanh, erf, softplus, gelu,
// gelu_tanh and pow.
// Each is a private function of the kernel's module, compiled once however often the kernel calls it. As in HostMath,
// every operation is exact and lane-wise, so all levels compute the same bits.
#pragma once
#include "compiler/host/Math.h"
#include "mlir/IR/BuiltinOps.h"

namespace cermet {

class HostFunctions {
public:
  static constexpr int64_t kLanes = 8; // of the functions' vectors, half of a column step

  HostFunctions(mlir::ImplicitLocOpBuilder& builder, HostMath& math, mlir::ModuleOp module)
      : builder(builder), math(math), module(module) {}

  static bool has(Opcode opcode);

  // `inputs`: all f32, or all vector<16xf32>; so is the result. The f64 in front of the rounding is within 2^-34 of the
  // truth (relative), which makes the f32 wrong by at most 0.501 ulp, subnormals included. NaN, infinities and zeros
  // give what C's functions do (gelu and gelu_tanh of -infinity: NaN, as -infinity times 0).
  mlir::Value call(Opcode opcode, llvm::ArrayRef<mlir::Value> inputs);

private:
  mlir::Value callLanes(Opcode opcode, llvm::ArrayRef<mlir::Value> inputs);

  mlir::ImplicitLocOpBuilder& builder;
  HostMath& math;
  mlir::ModuleOp module;
};

} // namespace cermet
