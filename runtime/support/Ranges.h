// Ranges: what a context does, on the time line of a profiler that understands NVTX (Nsight Systems, and others that
// say so in NVTX_INJECTION64_PATH). They are of the domain "cermet", and their category says what is done. Where nobody
// asked for them, or no profiler is there, a range is one comparison. Ranges of a thread nest, and any thread may have
// some.
#pragma once
#include <concepts>
#include <string>

struct nvtxDomainRegistration_st;

namespace cermet {

enum class RangeKind { Launch = 1, Compile, Load, Wait };

class Ranges {
public:
  // Finds the profiler where they are asked for; that happens once in a process.
  explicit Ranges(bool areWanted = false);

private:
  friend class Range;
  nvtxDomainRegistration_st* domain_ = nullptr;
};

// From its construction to its end on the same thread.
class Range {
public:
  Range(const Ranges& ranges, RangeKind kind, const std::string& name) : domain_(ranges.domain_) {
    if (domain_) [[unlikely]]
      begin(kind, name);
  }
  // The name of one that takes work to name.
  template <std::invocable Name>
  Range(const Ranges& ranges, RangeKind kind, const Name& name) : domain_(ranges.domain_) {
    if (domain_) [[unlikely]]
      begin(kind, name());
  }
  ~Range() {
    if (domain_) [[unlikely]]
      end();
  }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

private:
  void begin(RangeKind kind, const std::string& name) const;
  void end() const;

  nvtxDomainRegistration_st* domain_;
};

} // namespace cermet
