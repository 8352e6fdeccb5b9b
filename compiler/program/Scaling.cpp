#include "compiler/program/Scaling.h"
#include <algorithm>
#include <ranges>

namespace cermet {
namespace {

// The operand that a value is read from, behind casts that lose nothing of its type.
std::optional<int> source(const RowProgram& program, int value, OperandKind kind) {
  const Instruction* it = &program.instructions[value];
  while (it->opcode == Opcode::Cast && (it->type == DType::F32 || it->type == program.instructions[it->inputs[0]].type))
    it = &program.instructions[it->inputs[0]];
  if (it->opcode != Opcode::Load || program.operands[it->operand].kind != kind ||
      classOf(it->type) != ValueClass::Real || program.operands[it->operand].map.isMapped())
    return std::nullopt;
  return it->operand;
}

} // namespace

std::optional<Scaling> scalingOf(const RowProgram& program) {
  const auto isStore = [](const Instruction& it) { return it.opcode == Opcode::Store; };
  if (program.reduces() || program.accumulates() || std::ranges::count_if(program.instructions, isStore) != 1)
    return std::nullopt;
  const Instruction& store = *std::ranges::find_if(program.instructions, isStore);
  const Operand& output = program.operands[store.operand];
  const Instruction* product = &program.instructions[store.inputs[0]];
  if (product->opcode == Opcode::Cast && product->type == output.dtype)
    product = &program.instructions[product->inputs[0]];
  if (product->opcode != Opcode::Mul || output.kind != OperandKind::Tile)
    return std::nullopt;
  for (const int first : {0, 1}) {
    const auto from = source(program, product->inputs[first], OperandKind::Tile);
    const auto by = source(program, product->inputs[1 - first], OperandKind::Scalar);
    if (from && by && program.operands[*from].dtype == output.dtype && !program.operands[*from].isStrided)
      return Scaling{*from, *by, store.operand};
  }
  return std::nullopt;
}

} // namespace cermet
