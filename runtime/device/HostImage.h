// HostImage: an ELF shared object from memory, loaded into this process until it is destroyed.
#pragma once
#include "runtime/abi/RowArguments.h"
#include "runtime/support/Status.h"
#include <memory>
#include <string>
#include <string_view>

namespace cermet {

using HostEntry = void (*)(const RowArguments* arguments, int64_t rowBegin, int64_t rowEnd, int64_t partialRow,
                           HostFault* fault);
using HostFold = void (*)(const RowArguments* arguments);

class HostImage {
public:
  static Result<std::shared_ptr<const HostImage>> load(std::string_view image);
  ~HostImage();
  HostImage(const HostImage&) = delete;
  HostImage& operator=(const HostImage&) = delete;

  Result<void*> entry(const std::string& name) const;
  Status has(const std::string& name) const { return entry(name).status(); }

private:
  explicit HostImage(void* library) : library_(library) {}
  void* library_;
};

} // namespace cermet
