#include "runtime/HostImage.h"
#include "runtime/Elf.h"
#include "runtime/File.h"
#include <atomic>
#include <cerrno>
#include <dlfcn.h>
#include <fcntl.h>
#include <filesystem>
#include <sys/mman.h>
#include <system_error>
#include <unistd.h>

namespace cermet {

namespace {

// The loader takes a name that it has seen for the library that it knows, and descriptors are used again: so each load
// spells the same path in a way of its own ("/" or "./" for each bit of a serial number).
std::string uniquePath(int descriptor) {
  static std::atomic<uint64_t> next{1};
  std::string path = "/proc/self/fd/";
  for (uint64_t serial = next.fetch_add(1); serial; serial >>= 1)
    path += serial & 1 ? "./" : "/";
  return path + std::to_string(descriptor);
}

bool writeAll(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      return false;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

void* loadFromMemory(const std::string& image) {
  const int descriptor = memfd_create("cermet kernel", MFD_CLOEXEC);
  if (descriptor < 0)
    return nullptr;
  void* library = writeAll(descriptor, image) ? dlopen(uniquePath(descriptor).c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  close(descriptor);
  return library;
}

// Where /proc is not mounted or memory files may not be executed.
Result<void*> loadFromFile(const std::string& image) {
  std::error_code none;
  std::string path = std::filesystem::temp_directory_path(none).string() + "/cermet-kernel-XXXXXX";
  const int descriptor = mkostemp(path.data(), O_CLOEXEC);
  if (descriptor < 0)
    return error(CERMET_INTERNAL, "a host kernel cannot be loaded: '{}': {}", path,
                 std::generic_category().message(errno));
  void* library = writeAll(descriptor, image) ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  const char* cause = library ? nullptr : dlerror();
  close(descriptor);
  unlink(path.c_str());
  if (!library)
    return error(CERMET_INTERNAL, "a host kernel cannot be loaded: {}", cause ? cause : "its file cannot be written");
  return library;
}

} // namespace

Result<std::shared_ptr<const HostImage>> HostImage::load(const std::string& image) {
  if (const Status broken = checkElf(image, kHostMachine); !broken.ok())
    return error(CERMET_INTERNAL, "a host kernel cannot be loaded: {}", broken.message());
  void* library = loadFromMemory(image);
  if (!library) {
    Result<void*> fromFile = loadFromFile(image);
    if (!fromFile.ok())
      return fromFile.status();
    library = *fromFile;
  }
  return std::shared_ptr<const HostImage>(new HostImage(library));
}

HostImage::~HostImage() {
  dlclose(library_);
}

Result<void*> HostImage::entry(const std::string& name) const {
  if (void* found = dlsym(library_, name.c_str()))
    return found;
  return error(CERMET_INTERNAL, "a host kernel's image has no entry '{}'", name);
}

} // namespace cermet
