// A look at a graph's bytes before MLIR's parser sees them. That is recursive, so deep nesting would end the process;
// it reads a number's digits into a buffer of a fixed size; it reads a shape's rest again at each `x`; and what it
// makes of aliases is walked as if they were written out. So the limits hold for the text with its aliases written out.
#pragma once
#include "llvm/ADT/StringRef.h"
#include <string>

namespace cermet::ir {

constexpr int maximumTextDepth = 256;
constexpr size_t maximumWordSize = 1024;       // characters of a number, a shape or a name that no quotes surround
constexpr unsigned maximumIntegerWidth = 1024; // bits of an integer type

// "" or what is wrong: empty, longer than CERMET_MAX_TEXT, not UTF-8 (in a literal after its escapes, either), deeper
// than 256 brackets, too large or too deep with its aliases written out, a longer word, a wider integer type, or affine
// expressions (which recurse without brackets) and resources, which no graph needs.
std::string scanText(llvm::StringRef text);

} // namespace cermet::ir
