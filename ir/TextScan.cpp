#include "ir/TextScan.h"
#include "ir/TextLiteral.h"
#include "llvm/Support/ConvertUTF.h"

namespace cermet::ir {

static std::string at(llvm::StringRef text, size_t offset, const std::string& message) {
  llvm::StringRef before = text.take_front(offset);
  size_t line = before.count('\n') + 1;
  size_t newline = before.rfind('\n');
  size_t column = newline == llvm::StringRef::npos ? offset + 1 : offset - newline;
  return "graph:" + std::to_string(line) + ":" + std::to_string(column) + ": " + message;
}

std::string scanText(llvm::StringRef text) {
  if (text.size() > maximumTextSize)
    return at(text, 0,
              "the text has " + std::to_string(text.size()) + " bytes, expected at most " +
                  std::to_string(maximumTextSize));
  if (text.trim().empty())
    return at(text, 0, "the text is empty, expected a module with one func.func");
  auto* begin = reinterpret_cast<const llvm::UTF8*>(text.data());
  auto* position = begin;
  if (!llvm::isLegalUTF8String(&position, begin + text.size()))
    return at(text, position - begin, "the text is not UTF-8 here");

  int depth = 0;
  for (size_t i = 0; i < text.size();) {
    char c = text[i];
    if (c == '"') {
      TextLiteral literal = readLiteral(text, i);
      if (!literal.problem.empty())
        return at(text, literal.at, literal.problem);
      i = literal.end;
      continue;
    }
    if (c == '/' && text.substr(i).starts_with("//")) {
      i = std::min(text.find('\n', i), text.size());
      continue;
    }
    if (c == '-' && text.substr(i).starts_with("->")) {
      i += 2;
      continue;
    }
    if (c == 'a' && (text.substr(i).starts_with("affine_map") || text.substr(i).starts_with("affine_set")))
      return at(text, i, "affine expressions have no place in a graph");
    if (c == '(' || c == '[' || c == '{' || c == '<') {
      if (++depth > maximumTextDepth)
        return at(text, i, "brackets nest deeper than " + std::to_string(maximumTextDepth));
    } else if (c == ')' || c == ']' || c == '}' || c == '>') {
      depth = std::max(depth - 1, 0);
    }
    ++i;
  }
  return "";
}

} // namespace cermet::ir
