// The canonical text of a row program, and its inverse.
#include "compiler/program/RowProgram.h"
#include "compiler/program/TextLines.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cermet {
namespace {

bool isIdentifier(std::string_view text) {
  auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !text.empty() && letter(text[0]) &&
         std::all_of(text.begin(), text.end(), [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

// Behind its values, where it is not 0.
bool takesNumber(Opcode op) {
  return op == Opcode::ColumnIndex || op == Opcode::Cumsum || op == Opcode::Pick;
}

bool findKind(std::string_view text, OperandKind& kind) {
  const std::optional<OperandKind> found = operandKind(text);
  kind = found.value_or(kind);
  return found.has_value();
}

bool findDType(std::string_view text, DType& dtype) {
  const std::optional<DType> found = kernelType(elementType(text));
  dtype = found.value_or(dtype);
  return found.has_value();
}

// The enumerator up to `last` that has this name.
template <typename Enum> bool findNamed(std::string_view text, Enum last, Enum& value) {
  for (int each = 0; each <= static_cast<int>(last); ++each)
    if (name(static_cast<Enum>(each)) == text) {
      value = static_cast<Enum>(each);
      return true;
    }
  return false;
}

// Which rows a gathered operand reads.
std::string rowsText(const RowProgram& program, const Operand& operand) {
  const auto called = [&](int index) -> const std::string& { return program.operands.at(index).name; };
  if (operand.rowsFrom < 0)
    return "";
  std::string text = " rows " + called(operand.rowsFrom);
  if (operand.from >= 0)
    text += fmt::format(" from {} to {}", called(operand.from), called(operand.to));
  if (operand.sums >= 0)
    text += " sums " + called(operand.sums);
  return text + (operand.isWide ? " wide" : "");
}

} // namespace

std::string print(const RowProgram& program) {
  std::string text = fmt::format("program {} {}\n", program.name, program.columns);
  for (const Operand& operand : program.operands)
    text += fmt::format("{} {} {} {}{}{}{}\n", operand.isOutput ? "out" : "in", operand.name, name(operand.kind),
                        name(operand.dtype), operand.isStrided ? " strided" : "", rowsText(program, operand),
                        operand.map.text() + (operand.of < 0 ? "" : " of " + program.operands.at(operand.of).name));
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& op = program.instructions[i];
    text += fmt::format("%{} = {}", i, name(op.opcode));
    for (int k = 0; k < inputCount(op.opcode); ++k)
      text += fmt::format(" %{}", op.inputs[k]);
    if (usesOperand(op.opcode))
      text += " " + program.operands.at(op.operand).name;
    if (op.opcode == Opcode::Constant || (takesNumber(op.opcode) && op.constant != 0))
      text += " " + exactText(op.constant);
    text += fmt::format(" : {} {} {}\n", name(op.type), name(op.space), op.stage);
  }
  return text;
}

std::string parse(const std::string& text, RowProgram& program) {
  TextLines lines(text);
  RowProgram result;
  auto failed = [&](std::string_view what) { return fmt::format("line {}: {}", lines.number(), what); };
  if (!lines.next() || lines.count() != 3 || lines.word(0) != "program" || !isIdentifier(lines.word(1)) ||
      !lines.integer(2, result.columns))
    return failed("expected `program <name> <columns>`");
  result.name = lines.word(1);
  struct Reference {
    size_t operand;
    int Operand::*place;
    std::string name; // of another operand
  };
  constexpr std::pair<std::string_view, int Operand::*> kReferences[] = {
      {"rows", &Operand::rowsFrom}, {"from", &Operand::from}, {"to", &Operand::to}, {"sums", &Operand::sums}};
  std::vector<Reference> references;
  std::vector<std::string> same; // by operand: the name of the one that has the same tensor
  bool more = lines.next();
  for (; more && (lines.word(0) == "in" || lines.word(0) == "out"); more = lines.next()) {
    Operand operand;
    same.emplace_back();
    operand.isOutput = lines.word(0) == "out";
    operand.name = lines.word(1);
    operand.isStrided = lines.word(4) == "strided";
    size_t end = 4 + size_t(operand.isStrided);
    const bool isMapped = lines.word(end) == "columns";
    for (auto [word, place] : kReferences)
      if (lines.word(end) == word) {
        references.push_back({result.operands.size(), place, std::string(lines.word(end + 1))});
        end += 2;
      }
    operand.isWide = lines.word(end) == "wide";
    end += size_t(operand.isWide);
    if ((!isMapped && lines.count() != end) || !isIdentifier(operand.name) || !findKind(lines.word(2), operand.kind) ||
        !findDType(lines.word(3), operand.dtype))
      return failed(fmt::format("expected `in|out <name> {} <type> [strided] [rows <name> [from <name> to <name> [sums "
                                "<name>] [wide]]]` or `in <name> tile|column <type> columns ...`",
                                fmt::join(kOperandKinds, "|")));
    if (isMapped) {
      std::vector<std::string_view> words;
      for (size_t i = end + 1; i < lines.count(); ++i)
        words.push_back(lines.word(i));
      if (words.size() > 2 && words[words.size() - 2] == "of") {
        same.back() = words.back();
        words.resize(words.size() - 2);
      }
      if (std::string reason = parseColumnMap(words, result.columns, operand.map); !reason.empty())
        return failed(reason);
    }
    result.operands.push_back(operand);
  }
  auto operandCalled = [&](std::string_view name) {
    auto found = std::ranges::find(result.operands, name, &Operand::name);
    return found == result.operands.end() ? -1 : static_cast<int>(found - result.operands.begin());
  };
  for (const auto& [operand, place, called] : references)
    if ((result.operands[operand].*place = operandCalled(called)) < 0)
      return fmt::format("the rows of {}: no operand is called `{}`", result.operands[operand].name, called);
  for (size_t i = 0; i < same.size(); ++i)
    if (!same[i].empty() && (result.operands[i].of = operandCalled(same[i])) < 0)
      return fmt::format("the columns of {}: no operand is called `{}`", result.operands[i].name, same[i]);
  for (; more; more = lines.next()) {
    Instruction op;
    int64_t number = 0;
    if (!lines.reference(0, number) || number != static_cast<int64_t>(result.instructions.size()) ||
        lines.word(1) != "=" || !findNamed(lines.word(2), Opcode::AccumulateRows, op.opcode))
      return failed(fmt::format("expected `%{} = <opcode> ...`", result.instructions.size()));
    size_t at = 3;
    for (int k = 0; k < inputCount(op.opcode); ++k, ++at) {
      if (!lines.reference(at, number) || number > INT32_MAX)
        return failed(fmt::format("{} takes {} values", name(op.opcode), inputCount(op.opcode)));
      op.inputs[k] = static_cast<int>(number);
    }
    if (usesOperand(op.opcode)) {
      op.operand = operandCalled(lines.word(at));
      if (op.operand < 0)
        return failed(fmt::format("no operand is called `{}`", lines.word(at)));
      ++at;
    }
    const bool hasNumber = op.opcode == Opcode::Constant || (takesNumber(op.opcode) && lines.word(at) != ":");
    if (hasNumber && !lines.real(at++, op.constant))
      return failed("expected a number");
    int64_t stage = 0;
    if (lines.count() != at + 4 || lines.word(at) != ":" || !findDType(lines.word(at + 1), op.type) ||
        !findNamed(lines.word(at + 2), Space::Uniform, op.space) || !lines.integer(at + 3, stage) || stage > INT32_MAX)
      return failed("expected `: <type> <space> <stage>` at the end");
    op.stage = static_cast<int>(stage);
    result.instructions.push_back(op);
  }
  if (std::string reason = check(result); !reason.empty())
    return fmt::format("program {}: {}", result.name, reason);
  program = std::move(result);
  return "";
}

} // namespace cermet
