#include "compiler/plan/LowerOperations.h"
#include "compiler/plan/Lower.h"
#include "ir/dialect/ElementTypes.h"
#include "ir/dialect/Ops.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/ADT/TypeSwitch.h"

using mlir::Operation;

namespace cermet {

std::optional<DType> dtypeOf(mlir::Type type) {
  return kernelType(ir::elementTypeOf(type));
}

std::optional<Opcode> elementwise(Operation& op) {
  using Result = std::optional<Opcode>;
  return llvm::TypeSwitch<Operation*, Result>(&op)
      .Case<ir::AddOp>([](auto) { return Opcode::Add; })
      .Case<ir::SubOp>([](auto) { return Opcode::Sub; })
      .Case<ir::MulOp>([](auto) { return Opcode::Mul; })
      .Case<ir::DivOp>([](auto) { return Opcode::Div; })
      .Case<ir::PowOp>([](auto) { return Opcode::Pow; })
      .Case<ir::MaxOp>([](auto) { return Opcode::Max; })
      .Case<ir::MinOp>([](auto) { return Opcode::Min; })
      .Case<ir::NegOp>([](auto) { return Opcode::Neg; })
      .Case<ir::AbsOp>([](auto) { return Opcode::Abs; })
      .Case<ir::ExpOp>([](auto) { return Opcode::Exp; })
      .Case<ir::LogOp>([](auto) { return Opcode::Log; })
      .Case<ir::SqrtOp>([](auto) { return Opcode::Sqrt; })
      .Case<ir::RsqrtOp>([](auto) { return Opcode::Rsqrt; })
      .Case<ir::TanhOp>([](auto) { return Opcode::Tanh; })
      .Case<ir::ErfOp>([](auto) { return Opcode::Erf; })
      .Case<ir::ReluOp>([](auto) { return Opcode::Relu; })
      .Case<ir::SigmoidOp>([](auto) { return Opcode::Sigmoid; })
      .Case<ir::SoftplusOp>([](auto) { return Opcode::Softplus; })
      .Case<ir::SiluOp>([](auto) { return Opcode::Silu; })
      .Case<ir::GeluOp>([](auto) { return Opcode::Gelu; })
      .Case<ir::GeluTanhOp>([](auto) { return Opcode::GeluTanh; })
      .Case<ir::SelectOp>([](auto) { return Opcode::Select; })
      .Case<ir::CastOp>([](auto) { return Opcode::Cast; })
      .Case<ir::CompareOp>([](ir::CompareOp compare) {
        return llvm::StringSwitch<Result>(compare.getPredicate())
            .Case("eq", Opcode::Equal)
            .Case("ne", Opcode::NotEqual)
            .Cases({"lt", "gt"}, Opcode::Less)
            .Cases({"le", "ge"}, Opcode::LessEqual)
            .Default(std::nullopt);
      })
      .Default([](auto) { return std::nullopt; });
}

std::optional<Opcode> reduction(Operation& op) {
  if (llvm::isa<ir::ReduceSumOp>(op))
    return Opcode::ReduceSum;
  if (llvm::isa<ir::ReduceMaxOp>(op))
    return Opcode::ReduceMax;
  if (llvm::isa<ir::ReduceMinOp>(op))
    return Opcode::ReduceMin;
  return std::nullopt;
}

bool hasKernelTypes(Operation* op) {
  return llvm::all_of(op->getOperandTypes(), hasKernelType) && llvm::all_of(op->getResultTypes(), hasKernelType);
}

bool hasKernelType(mlir::Type type) {
  return dtypeOf(type).has_value();
}

} // namespace cermet
