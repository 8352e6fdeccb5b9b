// A string literal of a graph's text. Names of symbols, nodes, functions and attributes are literals; they go into
// JSON, which is UTF-8, and into C, where a zero ends them. So what a literal says once its escapes are read is UTF-8
// without a zero.
#pragma once
#include "llvm/ADT/StringRef.h"
#include <string>

namespace cermet::ir {

struct TextLiteral {
  size_t end;          // the offset behind it
  std::string problem; // "", or what is wrong
  size_t at = 0;       // and where
};

// The literal that opens at `offset`. One that does not end, or has escapes that there are not, is the parser's to
// name.
TextLiteral readLiteral(llvm::StringRef text, size_t offset);

} // namespace cermet::ir
