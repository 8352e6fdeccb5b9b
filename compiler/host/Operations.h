// One instruction of a row program, but for those that touch memory or other columns, as MLIR ops.
#pragma once
#include "compiler/host/Functions.h"

namespace cermet {

class HostOperations {
public:
  HostOperations(mlir::ImplicitLocOpBuilder& builder, HostMath& math, mlir::ModuleOp module)
      : builder(builder), math(math), functions(builder, math, module) {}

  // `inputs` are of the given types and of one shape, which is the result's. The result is rounded or wrapped to the
  // instruction's type.
  mlir::Value compute(const Instruction& instruction, llvm::ArrayRef<mlir::Value> inputs, llvm::ArrayRef<DType> types);

private:
  mlir::Value real(Opcode opcode, llvm::ArrayRef<mlir::Value> inputs);
  mlir::Value integer(Opcode opcode, llvm::ArrayRef<mlir::Value> inputs);
  mlir::Value compare(Opcode opcode, ValueClass of, mlir::Value a, mlir::Value b);

  mlir::ImplicitLocOpBuilder& builder;
  HostMath& math;
  HostFunctions functions;
};

} // namespace cermet
