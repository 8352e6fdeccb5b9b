// torch traces fake CUDA tensors anywhere, but its autograd asks two objects of libtorch's about CUDA: the device
// guard, which a build without CUDA lacks and libc10 has an idle one for, and the hooks, which say whether it is there
// and, in a build with CUDA, ask the driver about devices. Neither is in the stable ABI. Both are reached by the names
// of libtorch's own functions and by what these do then, not by layouts of classes: an object's virtual functions are a
// table, and which entry is asked is found by trying each.
#include "frontends/torch/ops/StandIn.h"
#include <array>
#include <cstdint>
#include <dlfcn.h>
#include <utility>

namespace {

constexpr int8_t kCuda = 1;                  // c10::DeviceType::CUDA
constexpr uint16_t kCudaAsOptional = 0x0101; // std::optional of it: there, and which
constexpr uint16_t kHasValue = 0x0100;

using Function = uintptr_t (*)(const void*);
uintptr_t zero(const void*) {
  return 0;
}
uintptr_t one(const void*) {
  return 1;
}

using Table = std::array<Function, 256>; // more than either class has virtual functions
struct Object {
  Function* functions;
};

Table filled() {
  Table table;
  table.fill(zero);
  return table;
}
Table guardFunctions = filled(), hookFunctions = filled();
Object guard{guardFunctions.data()};

template <typename Type> Type* libtorchs(const char* name) {
  return reinterpret_cast<Type*>(dlsym(RTLD_DEFAULT, name));
}

} // namespace

const char* cermet_torch_stand_in_for_cuda() {
  const auto getAccelerator = libtorchs<uint16_t(bool)>("_ZN2at11accelerator14getAcceleratorEb");
  const auto getHooks = libtorchs<Object&()>("_ZN2at6detail12getCUDAHooksEv");
  const auto ensureGuard = libtorchs<void()>("_ZN3c104impl24ensureCUDADeviceGuardSetEv");
  const auto registerGuard =
      libtorchs<void(int8_t, const void*)>("_ZN3c104impl19registerDeviceGuardENS_10DeviceTypeEPKNS0_24"
                                           "DeviceGuardImplInterfaceE");
  if (!getAccelerator || !getHooks || !ensureGuard || !registerGuard)
    return "its libraries have other names for CUDA's device guard and hooks";
  // A build with CUDA has it as its accelerator whether or not there is a device, which its hooks are then asked for.
  if (const uint16_t found = getAccelerator(false); (found & kHasValue) && found != kCudaAsOptional)
    return "it has an accelerator that is not CUDA";
  Object& hooks = getHooks();
  if (hooks.functions == hookFunctions.data())
    return nullptr; // told before
  // Of a guard that counts no devices, which this one does whatever it is asked, libc10 makes its idle one.
  registerGuard(kCuda, &guard);
  ensureGuard();
  Function* const before = std::exchange(hooks.functions, hookFunctions.data());
  for (Function& function : hookFunctions) {
    function = one;
    if (getAccelerator(false) == kCudaAsOptional)
      return nullptr;
    function = zero;
  }
  hooks.functions = before;
  return "its hooks for CUDA do not say whether there is a device";
}
