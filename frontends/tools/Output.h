// What a command prints and writes arrives, or the command fails and says why.
#pragma once
#include "runtime/support/Status.h"
#include <string>
#include <string_view>

namespace cermet::tools {

// Whether all that was printed arrived. The last thing a command does.
Status finishOutput();
// What finishOutput says where printing itself failed.
Status outputFailed(int number);
// A line on stderr; there is nobody to tell where that fails.
void complain(std::string_view text);
// A whole file.
Status writeText(const std::string& path, std::string_view text);

} // namespace cermet::tools
