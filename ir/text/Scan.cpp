#include "ir/text/Scan.h"
#include "frontends/c/cermet.h"
#include "ir/text/Literal.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/ConvertUTF.h"

namespace cermet::ir {
namespace {

std::string at(llvm::StringRef text, size_t offset, const std::string& message) {
  llvm::StringRef before = text.take_front(offset);
  size_t line = before.count('\n') + 1;
  size_t newline = before.rfind('\n');
  size_t column = newline == llvm::StringRef::npos ? offset + 1 : offset - newline;
  return "graph:" + std::to_string(line) + ":" + std::to_string(column) + ": " + message;
}

bool isWordCharacter(char c) {
  return llvm::isAlnum(c) || c == '_' || c == '$' || c == '.';
}

// The bits of the integer type that the word is or, being a shape, ends in; 0 if it is none.
uint64_t integerWidth(llvm::StringRef word) {
  llvm::StringRef before = word.rtrim("0123456789"), digits = word.drop_front(before.size());
  if (digits.empty() || !before.consume_back("i"))
    return 0;
  if (!before.consume_back("s"))
    before.consume_back("u");
  uint64_t width = 0;
  if (!before.empty() &&
      !(before.back() == 'x' && llvm::all_of(before, [](char c) { return llvm::isDigit(c) || c == 'x'; })))
    return 0;
  return digits.getAsInteger(10, width) ? UINT64_MAX : width;
}

class Scan {
public:
  explicit Scan(llvm::StringRef text) : text(text) {}

  std::string run() {
    while (offset < text.size() && error.empty())
      step();
    endDefinition();
    if (error.empty() && expanded > CERMET_MAX_TEXT)
      error = tooLarge(0);
    return std::move(error);
  }

private:
  // What the name of an attribute or type stands for, written out; of one that is defined later, who waits for it.
  struct Alias {
    int depth = 0;
    uint64_t size = 0;
    bool isDefined = false;
    int waitingDepth = 0;
    uint64_t waiting = 0;
  };

  void step() {
    const char c = text[offset];
    const llvm::StringRef rest = text.substr(offset);
    if (rest.starts_with("//")) {
      offset = std::min(text.find('\n', offset), text.size());
    } else if (llvm::isSpace(c)) {
      ++offset;
    } else if (c == '"') {
      literal();
    } else if (rest.starts_with("->")) {
      take(2);
      mayContinue = true;
    } else if (rest.starts_with("{-#")) {
      error = at(text, offset, "resources have no place in a graph");
    } else if (isWordCharacter(c)) {
      word();
    } else if (c == '#' || c == '!') {
      name();
    } else if (c == '%' || c == '@' || c == '^') {
      if (c == '%')
        operationMayBegin();
      take(1);
      mayContinue = takeWord().empty(); // a symbol's name may be a string
    } else {
      const bool closes = c == ')' || c == ']' || c == '}' || c == '>';
      if (closes)
        depth = std::max(depth - 1, 0);
      else if (c == '(' || c == '[' || c == '{' || c == '<')
        reach(++depth, offset, "");
      take(1);
      mayContinue = !closes;
    }
  }

  void literal() {
    const TextLiteral found = readLiteral(text, offset);
    if (!found.problem.empty()) {
      error = at(text, found.at, found.problem);
      return;
    }
    operationMayBegin();
    take(found.end - offset);
  }

  void take(size_t size) {
    offset = std::min(offset + size, text.size());
    grow(size);
    mayContinue = false;
  }

  void grow(uint64_t size) {
    uint64_t& sum = defined ? defined->size : expanded;
    sum = std::min<uint64_t>(sum + size, CERMET_MAX_TEXT + 1);
  }

  llvm::StringRef takeWord() {
    const llvm::StringRef found = text.substr(offset).take_while(isWordCharacter);
    if (found.size() > maximumWordSize)
      error = at(text, offset,
                 "a word of " + std::to_string(found.size()) +
                     " characters, expected numbers, shapes and names of at most " + std::to_string(maximumWordSize));
    take(found.size());
    return found;
  }

  void word() {
    const size_t start = offset;
    operationMayBegin();
    const llvm::StringRef found = takeWord();
    if (found.starts_with("affine_map") || found.starts_with("affine_set"))
      error = at(text, start, "affine expressions have no place in a graph");
    if (error.empty() && integerWidth(found) > maximumIntegerWidth)
      error =
          at(text, start, found.str() + " is an integer type of more bits than " + std::to_string(maximumIntegerWidth));
  }

  void reach(int reached, size_t place, const std::string& where) {
    if (defined)
      defined->depth = std::max(defined->depth, reached);
    if (reached > maximumTextDepth && error.empty())
      error = at(text, place, "brackets nest deeper than " + std::to_string(maximumTextDepth) + where);
  }

  std::string tooLarge(size_t place) const {
    return at(text, place,
              "with its aliases written out the text has more bytes than " + std::to_string(CERMET_MAX_TEXT));
  }

  // An alias, where it is used or defined; or the name of a dialect's attribute or type, which nobody defines.
  void name() {
    const size_t start = offset;
    take(1);
    const llvm::StringRef word = takeWord();
    const llvm::StringRef spelling = text.slice(start, start + 1 + word.size());
    if (word.empty() || word.contains('.') || !error.empty())
      return;
    Alias& alias = aliases[spelling];
    const llvm::StringRef next = text.substr(offset).ltrim();
    if (depth == 0 && next.starts_with("=") && !next.starts_with("==")) {
      endDefinition();
      if (alias.isDefined) // a file of several modules defines it for each
        alias = Alias();
      alias.isDefined = true;
      defined = &alias;
      definedName = spelling;
      return;
    }
    if (!alias.isDefined) { // a location's, which may be defined behind its use
      alias.waitingDepth = std::max(alias.waitingDepth, depth);
      alias.waiting += 1;
      return;
    }
    reach(depth + alias.depth, start, " with " + spelling.str() + " written out");
    grow(alias.size);
    if (error.empty() && (defined ? defined->size : expanded) > CERMET_MAX_TEXT)
      error = tooLarge(start);
  }

  // A token that is no part of an alias's value ends its definition. Behind a word, a string or a bracket that closes,
  // a value goes on with punctuation only.
  void operationMayBegin() {
    if (depth == 0 && !mayContinue)
      endDefinition();
  }

  void endDefinition() {
    if (!defined)
      return;
    const Alias& alias = *std::exchange(defined, nullptr);
    if (alias.waiting == 0)
      return;
    reach(alias.waitingDepth + alias.depth, offset, " with " + definedName.str() + " written out");
    expanded = std::min<uint64_t>(expanded + alias.waiting * alias.size, CERMET_MAX_TEXT + 1);
  }

  llvm::StringRef text;
  size_t offset = 0;
  int depth = 0;
  uint64_t expanded = 0;    // bytes of what stands outside of definitions, aliases written out
  bool mayContinue = false; // behind punctuation, where a value is not yet whole
  llvm::StringMap<Alias> aliases;
  Alias* defined = nullptr; // the one whose value is being read
  llvm::StringRef definedName;
  std::string error;
};

} // namespace

std::string scanText(llvm::StringRef text) {
  if (text.size() > CERMET_MAX_TEXT)
    return at(text, 0,
              "the text has " + std::to_string(text.size()) + " bytes, expected at most " +
                  std::to_string(CERMET_MAX_TEXT));
  if (text.trim().empty())
    return at(text, 0, "the text is empty, expected a module with one func.func");
  auto* begin = reinterpret_cast<const llvm::UTF8*>(text.data());
  auto* position = begin;
  if (!llvm::isLegalUTF8String(&position, begin + text.size()))
    return at(text, position - begin, "the text is not UTF-8 here");
  return Scan(text).run();
}

} // namespace cermet::ir
