// The whole of this room as one call: graph text in, the JSON of docs/plan-format.md, "A match", out.
#pragma once
#include "llvm/ADT/StringRef.h"
#include <string>

namespace cermet {

// False with `error` filled ("graph:LINE:COLUMN: ...") where the text is not a graph. Safe from several threads at
// once.
bool match(llvm::StringRef graphText, std::string& json, std::string& error);

} // namespace cermet
