// Whole files, read and written through the system calls, so that every failure has its errno.
#pragma once
#include "runtime/Status.h"
#include <string>
#include <string_view>

namespace cermet {

// The whole of a regular file of at most 1 GiB, read into memory (a mapping would end the process if the file shrank).
// NOT_FOUND where there is none, INTERNAL with the cause for anything else.
Result<std::string> readFile(const std::string& path);
// A new file with mode 0600, on the disk when this returns. The answer is 0 or an errno; a partial file may be left.
int writeFile(const std::string& path, std::string_view bytes);
// The directory and its parents, new ones with mode 0700. The answer is 0 or an errno.
int makeDirectories(const std::string& path);

} // namespace cermet
