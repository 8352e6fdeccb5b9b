// Packs: those that a context asks before its directory, in their order. Thread-safe.
#pragma once
#include "runtime/cache/Pack.h"
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cermet {

class Packs {
public:
  Packs() = default;
  // Paths with ':' between them, as CERMET_PACKS has them; one may end in '#' and the digest that is demanded of it.
  // The first that cannot be used is the error.
  static Result<Packs> open(std::string_view list);

  // The entry with exactly this kind and key, of the first pack that has a whole one. Of a kernel that NVRTC made it is
  // this process's version if that pack has it, else its newest. `damaged` is told of what cannot be used.
  struct Packed {
    Bytes payload;
    int nvrtcVersion;
  };
  std::optional<Packed> read(EntryKind kind, const std::string& key, const std::function<int()>& nvrtcVersion,
                             const std::function<void(const std::string& what)>& damaged) const;

  bool empty() const { return packs_.empty(); }
  std::string names() const; // for a message
  // Those of which no entry is this build's, for a message; "" where there is none. Reads them until it finds one.
  std::string foreign() const;

private:
  std::vector<std::shared_ptr<const Pack>> packs_;
};

} // namespace cermet
