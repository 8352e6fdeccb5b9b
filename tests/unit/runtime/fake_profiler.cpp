#include "tests/unit/runtime/fake_profiler.h"
#include <cstdint>
#include <map>
#include <nvtx3/nvToolsExt.h>

namespace {

FakeProfiler profiler;
std::map<uint32_t, std::string> categories;

nvtxDomainHandle_t domainCreate(const char* name) {
  const std::lock_guard lock(profiler.mutex);
  profiler.domains.emplace_back(name);
  return reinterpret_cast<nvtxDomainHandle_t>(profiler.domains.size()); // never followed
}
void nameCategory(nvtxDomainHandle_t, uint32_t category, const char* name) {
  const std::lock_guard lock(profiler.mutex);
  categories[category] = name;
}
int rangePush(nvtxDomainHandle_t, const nvtxEventAttributes_t* attributes) {
  const std::lock_guard lock(profiler.mutex);
  profiler.seen.push_back(categories[attributes->category] + " " + attributes->message.ascii);
  return 0;
}
int rangePop(nvtxDomainHandle_t) {
  const std::lock_guard lock(profiler.mutex);
  profiler.seen.emplace_back(".");
  return 0;
}

template <typename Function> void take(NvtxFunctionTable table, NvtxCallbackIdCore2 id, Function* function) {
  *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
}

} // namespace

extern "C" {

FakeProfiler* fakeProfiler() {
  return &profiler;
}

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t getExportTable) {
  const auto* tables = static_cast<const NvtxExportTableCallbacks*>(getExportTable(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (!tables || !tables->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) ||
      size <= NVTX_CBID_CORE2_DomainNameCategoryA)
    return 0;
  take(table, NVTX_CBID_CORE2_DomainCreateA, domainCreate);
  take(table, NVTX_CBID_CORE2_DomainNameCategoryA, nameCategory);
  take(table, NVTX_CBID_CORE2_DomainRangePushEx, rangePush);
  take(table, NVTX_CBID_CORE2_DomainRangePop, rangePop);
  return 1;
}
}
