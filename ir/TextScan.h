// A look at a graph's bytes before MLIR's parser sees them: it is recursive, so deep nesting would end the process.
#pragma once
#include "llvm/ADT/StringRef.h"
#include <string>

namespace cermet::ir {

constexpr size_t maximumTextSize = size_t(64) << 20;
constexpr int maximumTextDepth = 256;

// "" or what is wrong: empty, too large, not UTF-8 (in a literal after its escapes, either), nested deeper than 256 brackets, or affine expressions (which
// recurse without brackets and which no graph needs).
std::string scanText(llvm::StringRef text);

} // namespace cermet::ir
