#include "compiler/host/Operations.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace mlir::arith;

namespace cermet {

// Whether the result is one of the inputs, or a real with another sign: of their type, it needs no rounding.
static bool keepsNumbers(Opcode opcode, ValueClass of) {
  switch (opcode) {
  case Opcode::Max:
  case Opcode::Min:
  case Opcode::Relu:
  case Opcode::Select:
    return true;
  case Opcode::Neg:
  case Opcode::Abs:
    return of == ValueClass::Real;
  default:
    return false;
  }
}

Value HostOperations::real(Opcode opcode, ArrayRef<Value> inputs) {
  Value a = inputs[0];
  switch (opcode) {
  case Opcode::Add:
    return AddFOp::create(builder, a, inputs[1]);
  case Opcode::Sub:
    return SubFOp::create(builder, a, inputs[1]);
  case Opcode::Mul:
    return MulFOp::create(builder, a, inputs[1]);
  case Opcode::Div:
    return DivFOp::create(builder, a, inputs[1]);
  case Opcode::Neg:
    return NegFOp::create(builder, a);
  case Opcode::Abs:
    return LLVM::FAbsOp::create(builder, a);
  case Opcode::Max:
    return math.maximum(a, inputs[1]);
  case Opcode::Min:
    return math.minimum(a, inputs[1]);
  case Opcode::Relu:
    return math.maximum(a, math.constant(a.getType(), 0));
  case Opcode::Exp:
    return math.exp(a);
  case Opcode::Sqrt:
    return LLVM::SqrtOp::create(builder, a);
  case Opcode::Rsqrt:
    return math.rsqrt(a);
  case Opcode::Sigmoid:
    return math.sigmoid(a);
  case Opcode::Silu:
    return math.silu(a);
  default:
    return HostFunctions::has(opcode) ? functions.call(opcode, inputs) : Value();
  }
}

Value HostOperations::integer(Opcode opcode, ArrayRef<Value> inputs) {
  Value a = inputs[0];
  switch (opcode) {
  case Opcode::Add:
    return AddIOp::create(builder, a, inputs[1]);
  case Opcode::Sub:
    return SubIOp::create(builder, a, inputs[1]);
  case Opcode::Mul:
    return MulIOp::create(builder, a, inputs[1]);
  case Opcode::Neg:
    return SubIOp::create(builder, math.integer(a.getType(), 0), a);
  case Opcode::Abs: {
    Value negated = SubIOp::create(builder, math.integer(a.getType(), 0), a);
    return SelectOp::create(builder, compare(Opcode::Less, ValueClass::Integer, a, math.integer(a.getType(), 0)),
                            negated, a);
  }
  case Opcode::Max:
    return MaxSIOp::create(builder, a, inputs[1]);
  case Opcode::Min:
    return MinSIOp::create(builder, a, inputs[1]);
  case Opcode::RandomKey:
    return math.randomKey(a, inputs[1]);
  case Opcode::RandomBits:
    return math.randomBits(a, inputs[1]);
  default:
    return {};
  }
}

Value HostOperations::compare(Opcode opcode, ValueClass of, Value a, Value b) {
  const int row = opcode == Opcode::Equal ? 0 : opcode == Opcode::NotEqual ? 1 : opcode == Opcode::Less ? 2 : 3;
  constexpr CmpFPredicate reals[] = {CmpFPredicate::OEQ, CmpFPredicate::UNE, CmpFPredicate::OLT, CmpFPredicate::OLE};
  constexpr CmpIPredicate integers[] = {CmpIPredicate::eq, CmpIPredicate::ne, CmpIPredicate::slt, CmpIPredicate::sle};
  constexpr CmpIPredicate bools[] = {CmpIPredicate::eq, CmpIPredicate::ne, CmpIPredicate::ult, CmpIPredicate::ule};
  if (of == ValueClass::Real)
    return CmpFOp::create(builder, reals[row], a, b);
  return CmpIOp::create(builder, (of == ValueClass::Bool ? bools : integers)[row], a, b);
}

Value HostOperations::compute(const Instruction& instruction, ArrayRef<Value> inputs, ArrayRef<DType> types) {
  const ValueClass result = classOf(instruction.type);
  Value value;
  switch (instruction.opcode) {
  case Opcode::Constant:
    return math.number(instruction.type, instruction.constant);
  case Opcode::Cast:
    return math.convert(inputs[0], types[0], instruction.type);
  case Opcode::Equal:
  case Opcode::NotEqual:
  case Opcode::Less:
  case Opcode::LessEqual:
    return compare(instruction.opcode, classOf(types[0]), inputs[0], inputs[1]);
  case Opcode::Select:
    value = SelectOp::create(builder, inputs[0], inputs[1], inputs[2]);
    types = types.drop_front();
    break;
  default:
    if (result == ValueClass::Bool)
      return instruction.opcode == Opcode::Max ? OrIOp::create(builder, inputs[0], inputs[1]).getResult()
                                               : AndIOp::create(builder, inputs[0], inputs[1]).getResult();
    value = result == ValueClass::Real ? real(instruction.opcode, inputs) : integer(instruction.opcode, inputs);
  }
  auto isSame = [&](DType type) { return type == instruction.type; };
  return keepsNumbers(instruction.opcode, result) && llvm::all_of(types, isSame) ? value
                                                                                 : math.round(value, instruction.type);
}

} // namespace cermet
