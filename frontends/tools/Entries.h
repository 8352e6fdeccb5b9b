// An entry of a cache directory or a pack, and a pack as a whole, as the tool prints them.
#pragma once
#include "runtime/cache/Entry.h"
#include "runtime/cache/Pack.h"
#include <cstdint>
#include <string_view>

namespace cermet::tools {

// One line: its kind, bytes, the beginning of its file's name, and what it is for.
void printLine(const Entry& entry, uint64_t bytes, std::string_view fileName);
// Everything that a person can read of it.
void printWhole(const Entry& entry, uint64_t bytes, std::string_view where);

// The pack that was written.
void printWritten(std::string_view path, const PackWriter::Written& written);

} // namespace cermet::tools
