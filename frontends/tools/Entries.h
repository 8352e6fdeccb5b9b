// An entry of a cache directory or a pack, as the tool prints it.
#pragma once
#include "runtime/cache/Entry.h"
#include <cstdint>
#include <string_view>

namespace cermet::tools {

// One line: its kind, bytes, the beginning of its file's name, and what it is for.
void printLine(const Entry& entry, uint64_t bytes, std::string_view fileName);
// Everything that a person can read of it.
void printWhole(const Entry& entry, uint64_t bytes, std::string_view where);

} // namespace cermet::tools
