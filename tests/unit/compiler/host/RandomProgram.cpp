#include "tests/unit/compiler/host/RandomProgram.h"
#include "runtime/abi/RowArguments.h"
#include "tests/unit/compiler/host/Programs.h"
#include <fmt/format.h>

namespace cermet::test {
namespace {

class Generator {
public:
  Generator(std::mt19937& random, int64_t columns) : random(random), p("random", columns) {}

  void loadInputs();
  int instruction(bool onlyExact);
  int store(int value); // answers the output operand

  std::mt19937& random;
  ProgramBuilder p;

private:
  int below(int count) { return static_cast<int>(random() % count); }
  bool oneIn(int count) { return below(count) == 0; }
  DType typeOf(int value) const { return p.program.instructions[value].type; }
  Space spaceOf(int value) const { return p.program.instructions[value].space; }
  DType anyType(ValueClass of);
  ValueClass anyClass() { return static_cast<ValueClass>(below(3)); }
  int anyValue(ValueClass of);
  int constant();
  int numbers(Opcode opcode, ValueClass of);
  std::string fresh() { return fmt::format("v{}", p.program.operands.size()); }

  std::vector<int> values;
};

DType Generator::anyType(ValueClass of) {
  const std::vector<DType> types = kernelTypes(of);
  return types[below(static_cast<int>(types.size()))];
}

int Generator::anyValue(ValueClass of) {
  std::vector<int> candidates;
  for (int value : values)
    if (classOf(typeOf(value)) == of)
      candidates.push_back(value);
  // Recent ones, so that chains grow.
  size_t from = candidates.size() > 4 && !oneIn(3) ? candidates.size() - 4 : 0;
  return candidates[from + below(static_cast<int>(candidates.size() - from))];
}

void Generator::loadInputs() {
  for (ValueClass of : {ValueClass::Real, ValueClass::Integer, ValueClass::Bool})
    values.push_back(p.load(fresh(), OperandKind::Tile, anyType(of), oneIn(3)));
  for (int more = below(4); more > 0; --more) {
    auto kind = static_cast<OperandKind>(below(6));
    DType type = kind == OperandKind::Index ? DType::I64 : anyType(anyClass());
    if (kind == OperandKind::Gathered) {
      const std::string table = fresh();
      values.push_back(p.gather(table, type, table + "_rows", anyType(ValueClass::Integer), oneIn(3)));
      continue;
    }
    bool isStrided = (kind == OperandKind::Tile || kind == OperandKind::Column) && oneIn(2);
    values.push_back(p.load(fresh(), kind, type, isStrided));
  }
}

int Generator::constant() {
  constexpr double numbers[] = {0,   1,     -1,    0.5,  3.14159,      -127,
                                255, 65504, 1e-40, 1e30, 2147483648.0, 4503599627370497.0};
  return p.constant(numbers[below(std::size(numbers))], anyType(anyClass()));
}

int Generator::numbers(Opcode opcode, ValueClass of) {
  std::vector<int> inputs;
  for (int i = 0; i < inputCount(opcode); ++i)
    inputs.push_back(anyValue(of));
  return p.compute(opcode, anyType(of), inputs);
}

int Generator::instruction(bool onlyExact) {
  Opcode opcode;
  do
    opcode = static_cast<Opcode>(below(static_cast<int>(Opcode::AccumulateRows) + 1));
  while (opcode == Opcode::Load || opcode == Opcode::Store || opcode == Opcode::AccumulateRows ||
         (onlyExact && !isExact(opcode)));
  int result;
  switch (opcode) {
  case Opcode::Constant:
    result = constant();
    break;
  case Opcode::ColumnIndex:
    result = p.columnIndex(anyType(ValueClass::Integer));
    break;
  case Opcode::Cast:
    result = p.compute(Opcode::Cast, anyType(anyClass()), {anyValue(anyClass())});
    if (oneIn(4))
      result = p.spread(values.emplace_back(result), Space::Element);
    break;
  case Opcode::Add:
  case Opcode::Sub:
  case Opcode::Mul:
  case Opcode::Neg:
  case Opcode::Abs:
    result = numbers(opcode, oneIn(2) ? ValueClass::Real : ValueClass::Integer);
    break;
  case Opcode::RandomKey:
  case Opcode::RandomBits:
    result = numbers(opcode, ValueClass::Integer);
    break;
  case Opcode::Max:
  case Opcode::Min:
    result = numbers(opcode, anyClass());
    break;
  case Opcode::Equal:
  case Opcode::NotEqual:
  case Opcode::Less:
  case Opcode::LessEqual: {
    const ValueClass of = anyClass();
    int a = anyValue(of), b = anyValue(of);
    result = p.compute(opcode, DType::I1, {a, b});
    break;
  }
  case Opcode::Select: {
    const ValueClass of = anyClass();
    int condition = anyValue(ValueClass::Bool), a = anyValue(of), b = anyValue(of);
    result = p.compute(opcode, anyType(of), {condition, a, b});
    break;
  }
  case Opcode::ReduceSum:
  case Opcode::ReduceMax:
  case Opcode::ReduceMin: {
    int value = anyValue(ValueClass::Real);
    while (spaceOf(value) != Space::Element)
      value = anyValue(ValueClass::Real);
    result = p.reduce(opcode, value, anyType(ValueClass::Real));
    break;
  }
  case Opcode::Cumsum: {
    const ValueClass of = oneIn(2) ? ValueClass::Real : ValueClass::Integer;
    int value = anyValue(of);
    while (spaceOf(value) != Space::Element)
      value = anyValue(of);
    result = p.cumsum(value, p.program.hasCumsums() ? p.program.runsBackward() : oneIn(2), anyType(of));
    break;
  }
  case Opcode::Pick: {
    int value = anyValue(ValueClass::Real), number = -1;
    while (spaceOf(value) != Space::Element)
      value = anyValue(ValueClass::Real);
    for (int candidate : values)
      if (classOf(typeOf(candidate)) == ValueClass::Integer && p.program.instructions[candidate].stage == 0 &&
          (spaceOf(candidate) == Space::Row || spaceOf(candidate) == Space::Uniform))
        number = candidate;
    if (number < 0)
      number = values.emplace_back(p.constant(below(8) - 1, anyType(ValueClass::Integer)));
    result = p.pick(value, number, anyType(ValueClass::Real));
    break;
  }
  default:
    result = numbers(opcode, ValueClass::Real);
  }
  if (!checkCumsums(p.program).empty()) { // a sum of a sum, or a column of one
    p.program.instructions.pop_back();
    result = constant();
  }
  return values.emplace_back(result);
}

int Generator::store(int value) {
  if (spaceOf(value) == Space::Column)
    value = p.spread(value, Space::Element);
  if (spaceOf(value) == Space::Uniform)
    value = p.spread(value, Space::Row);
  const OperandKind kind = spaceOf(value) == Space::Element ? OperandKind::Tile : OperandKind::Row;
  p.store(fresh(), kind, typeOf(value), value);
  return static_cast<int>(p.program.operands.size()) - 1;
}

} // namespace

bool isExact(Opcode opcode) {
  switch (opcode) {
  case Opcode::Pow:
  case Opcode::Exp:
  case Opcode::Log:
  case Opcode::Rsqrt:
  case Opcode::Tanh:
  case Opcode::Erf:
  case Opcode::Sigmoid:
  case Opcode::Softplus:
  case Opcode::Silu:
  case Opcode::Gelu:
  case Opcode::GeluTanh:
  case Opcode::ReduceSum:
  case Opcode::Cumsum:
  case Opcode::AccumulateRows:
    return false;
  default:
    return true;
  }
}

RandomProgram everyValueStored(std::mt19937& random, int64_t columns) {
  Generator g(random, columns);
  g.loadInputs();
  RandomProgram result;
  auto keep = [&](int value, int operand) {
    result.place.resize(g.p.program.instructions.size(), -1);
    result.place[value] = operand;
  };
  for (size_t i = 0; i < g.p.program.instructions.size(); ++i)
    keep(static_cast<int>(i), g.p.program.instructions[i].operand);
  while (g.p.program.operands.size() < kMaxOperands - 1) { // one instruction can be two values
    const int before = static_cast<int>(g.p.program.instructions.size());
    const int value = g.instruction(false);
    if (value > before)
      keep(before, g.store(before));
    keep(value, g.store(value));
  }
  keep(static_cast<int>(g.p.program.instructions.size()) - 1, -1);
  result.program = g.p.program;
  return result;
}

RowProgram exactProgram(std::mt19937& random, int64_t columns) {
  Generator g(random, columns);
  g.loadInputs();
  for (int count = 0; count < 24; ++count) {
    int value = g.instruction(true);
    if (count >= 15 && g.p.program.operands.size() < kMaxOperands)
      g.store(value);
  }
  return g.p.program;
}

} // namespace cermet::test
