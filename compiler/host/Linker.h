// lld as a library: a relocatable object becomes a shared one, all in memory. Safe from several threads (they take
// turns).
#pragma once
#include <string>

namespace cermet {

// The result exports the object's global symbols and needs none. Strips; writes nothing that differs from run to run.
bool linkHostObject(const std::string& object, std::string& image, std::string& error);

} // namespace cermet
