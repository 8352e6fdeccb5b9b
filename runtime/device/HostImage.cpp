#include "runtime/device/HostImage.h"
#include "runtime/device/Elf.h"
#include "runtime/support/File.h"
#include "runtime/support/Fork.h"
#include "runtime/support/Interrupted.h"
#include <atomic>
#include <cerrno>
#include <dlfcn.h>
#include <fcntl.h>
#include <filesystem>
#include <sys/mman.h>
#include <sys/stat.h>
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
    const ssize_t count = uninterrupted([&] { return ::write(descriptor, bytes.data(), bytes.size()); });
    if (count < 0)
      return false;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

void* loadFromMemory(std::string_view image, std::string& cause) {
  const int descriptor = memfd_create("cermet kernel", MFD_CLOEXEC);
  if (descriptor < 0 || !writeAll(descriptor, image))
    cause = std::generic_category().message(errno);
  void* library = cause.empty() ? dlopen(uniquePath(descriptor).c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (const char* refused = library || !cause.empty() ? nullptr : dlerror())
    cause = refused;
  if (descriptor >= 0)
    close(descriptor);
  return library;
}

// A path's file is opened again by the loader: nobody else may be able to put another in its place, so every directory
// on the way is this user's or root's, and who else may write there may not replace what is not his own (as in /tmp).
std::string whyReplaceable(const std::string& directory) {
  for (std::filesystem::path part = directory;; part = part.parent_path()) {
    struct stat state;
    if (lstat(part.c_str(), &state) != 0)
      return fmt::format("'{}': {}", part.string(), std::generic_category().message(errno));
    if (S_ISDIR(state.st_mode) && (state.st_mode & S_ISVTX))
      state.st_mode &= ~mode_t(S_IWGRP | S_IWOTH);
    if (const std::string why = whyUntrusted(state); !why.empty())
      return fmt::format("'{}' is not a directory that only this user can write: {}", part.string(), why);
    if (part == part.parent_path())
      return "";
  }
}

// Where /proc is not mounted or memory files may not be executed.
Result<void*> loadFromFile(std::string_view image, const std::string& notFromMemory) {
  std::error_code none;
  const std::string directory = std::filesystem::canonical(std::filesystem::temp_directory_path(none), none).string();
  if (const std::string why = whyReplaceable(directory); !why.empty())
    return error(CERMET_INTERNAL,
                 "a host kernel cannot be loaded from memory: {}; nor from a temporary file: {}; set TMPDIR to a "
                 "directory of this user's own",
                 notFromMemory, why);
  std::string path = directory + "/cermet-kernel-XXXXXX";
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

Result<std::shared_ptr<const HostImage>> HostImage::load(std::string_view image) {
  if (const Status broken = checkElf(image, kHostMachine); !broken.ok())
    return error(CERMET_INTERNAL, "a host kernel cannot be loaded: {}", broken.message());
  std::string cause;
  void* library = loadFromMemory(image, cause);
  if (!library) {
    library = CERMET_TRY(loadFromFile(image, cause));
  }
  return std::shared_ptr<const HostImage>(new HostImage(library));
}

HostImage::~HostImage() {
  const ForkSection section; // a child would find the loader's lists half changed, and the loader end it
  dlclose(library_);
}

Result<void*> HostImage::entry(const std::string& name) const {
  if (void* found = dlsym(library_, name.c_str()))
    return found;
  return error(CERMET_INTERNAL, "a host kernel's image has no entry '{}'", name);
}

} // namespace cermet
