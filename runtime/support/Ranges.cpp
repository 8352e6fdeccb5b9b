#include "runtime/support/Ranges.h"
#include <cstdint>
#include <nvtx3/nvToolsExt.h>
#include <utility>

namespace cermet {

// Null without a profiler.
static nvtxDomainHandle_t domainOfThisProcess() {
  static const nvtxDomainHandle_t domain = [] {
    const nvtxDomainHandle_t made = nvtxDomainCreateA("cermet");
    if (made)
      for (auto [kind, name] : {std::pair(RangeKind::Launch, "launch"),
                                {RangeKind::Compile, "compile"},
                                {RangeKind::Load, "load"},
                                {RangeKind::Wait, "wait"}})
        nvtxDomainNameCategoryA(made, static_cast<uint32_t>(kind), name);
    return made;
  }();
  return domain;
}

Ranges::Ranges(bool areWanted) : domain_(areWanted ? domainOfThisProcess() : nullptr) {}

void Range::begin(RangeKind kind, const std::string& name) const {
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.category = static_cast<uint32_t>(kind);
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = name.c_str();
  nvtxDomainRangePushEx(domain_, &attributes);
}

void Range::end() const {
  nvtxDomainRangePop(domain_);
}

} // namespace cermet
