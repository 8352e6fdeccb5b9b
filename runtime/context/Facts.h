// What frontends ask beside a graph, so that none keeps a table of its own (cermet.h, cermet_facts).
#pragma once
#include <string>

namespace cermet {

// The tables of runtime/abi as JSON; the same for the life of the process.
const std::string& factsJson();

} // namespace cermet
