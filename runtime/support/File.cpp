#include "runtime/support/File.h"
#include "runtime/support/Interrupted.h"
#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <system_error>
#include <unistd.h>

namespace cermet {

constexpr off_t kLargestFile = off_t(1) << 30;
// O_NONBLOCK: a fifo put in a file's place must not stop the process.
constexpr int kReadFlags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;

namespace {

Status failed(const std::string& path, int number) {
  const cermet_status code = number == ENOENT || number == ENOTDIR ? CERMET_NOT_FOUND : CERMET_INTERNAL;
  return error(code, "'{}': {}", path, std::generic_category().message(number));
}

Status notMade(const std::string& path, int number) {
  const cermet_status code = number == ENOENT ? CERMET_NOT_FOUND : CERMET_INTERNAL; // somebody removed it meanwhile
  return error(code, "'{}' cannot be made: {}", path, std::generic_category().message(number));
}

Status stateOf(const Descriptor& file, const std::string& path, struct stat& state) {
  if (file.number() < 0 || fstat(file.number(), &state) != 0)
    return failed(path, errno);
  if (!S_ISREG(state.st_mode) || state.st_size > kLargestFile)
    return error(CERMET_INTERNAL, "'{}': not a regular file of at most 1 GiB", path);
  return {};
}

Result<std::string> readAll(const Descriptor& file, const std::string& path, size_t size) {
  std::string bytes(size, '\0');
  size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t count =
        uninterrupted([&] { return ::read(file.number(), bytes.data() + filled, bytes.size() - filled); });
    if (count < 0)
      return failed(path, errno);
    if (count == 0)
      break;
    filled += static_cast<size_t>(count);
  }
  bytes.resize(filled);
  return bytes;
}

int writeAll(Descriptor& file, std::string_view bytes) {
  if (file.number() < 0)
    return errno;
  while (!bytes.empty()) {
    const ssize_t count = uninterrupted([&] { return ::write(file.number(), bytes.data(), bytes.size()); });
    if (count < 0)
      return errno;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  if (fsync(file.number()) != 0)
    return errno;
  return file.closeNow() ? 0 : errno;
}

int makeDirectories(const std::string& path) {
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) {
      // A parent that is there but not writable is no obstacle (EROFS, EACCES): the next mkdir says what is.
      struct stat state;
      const int failure = errno;
      if (stat(part.c_str(), &state) != 0 || !S_ISDIR(state.st_mode))
        return failure;
    }
    if (end == std::string::npos)
      return 0;
  }
}

} // namespace

Result<std::string> readFile(const std::string& path) {
  const Descriptor file(open(path.c_str(), kReadFlags));
  struct stat state;
  CERMET_RETURN_IF_ERROR(stateOf(file, path, state));
  return readAll(file, path, static_cast<size_t>(state.st_size));
}

Result<Descriptor> openRegularFile(const std::string& path, uint64_t& size) {
  Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)); // a link is what was named
  struct stat state;
  if (file.number() < 0 || fstat(file.number(), &state) != 0)
    return failed(path, errno);
  if (!S_ISREG(state.st_mode))
    return error(CERMET_INVALID_ARGUMENT, "'{}': not a regular file", path);
  size = static_cast<uint64_t>(state.st_size);
  return file;
}

Status readAt(const Descriptor& file, const std::string& path, uint64_t offset, std::string& bytes) {
  for (size_t filled = 0; filled < bytes.size();) {
    const auto from = static_cast<off_t>(offset + filled);
    const ssize_t count =
        uninterrupted([&] { return pread(file.number(), bytes.data() + filled, bytes.size() - filled, from); });
    if (count < 0)
      return failed(path, errno);
    if (count == 0)
      return error(CERMET_NOT_FOUND, "'{}': it is truncated", path);
    filled += static_cast<size_t>(count);
  }
  return {};
}

Status publishFile(const std::string& path, std::string_view bytes) {
  const std::string temporary = fmt::format("{}.tmp.{}", path, getpid());
  Descriptor file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666));
  int failure = writeAll(file, bytes);
  if (!failure && ::rename(temporary.c_str(), path.c_str()) != 0)
    failure = errno;
  if (!failure)
    return {};
  unlink(temporary.c_str());
  return error(CERMET_INVALID_ARGUMENT, "'{}' cannot be written: {}", path, std::generic_category().message(failure));
}

std::string whyUntrusted(const struct stat& state) {
  if (state.st_uid != geteuid() && state.st_uid != 0)
    return fmt::format("it belongs to user {}, expected {} or root", state.st_uid, geteuid());
  if (state.st_mode & (S_IWGRP | S_IWOTH))
    return fmt::format("its mode is {:04o}, so that others may write it; chmod go-w", state.st_mode & 07777);
  return "";
}

Descriptor::~Descriptor() {
  if (number_ >= 0)
    close(number_);
}

bool Descriptor::closeNow() {
  return close(std::exchange(number_, -1)) == 0;
}

Result<Folder> Folder::trusted(int descriptor, const std::string& path, bool make) {
  if (descriptor < 0)
    return make ? notMade(path, errno) : failed(path, errno);
  Folder folder(descriptor, path);
  struct stat state;
  if (fstat(descriptor, &state) != 0)
    return failed(path, errno);
  if (const std::string why = whyUntrusted(state); !why.empty())
    return error(CERMET_UNSUPPORTED, "'{}' is not a directory that only this user can write: {}", path, why);
  return folder;
}

Result<Folder> Folder::open(const std::string& path, bool make) {
  if (const int failure = make ? makeDirectories(path) : 0)
    return notMade(path, failure);
  return trusted(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC), path, make);
}

Result<Folder> Folder::inner(const char* name, bool make) const {
  const std::string path = fmt::format("{}/{}", path_, name);
  if (make && mkdirat(descriptor_.number(), name, 0700) != 0 && errno != EEXIST)
    return notMade(path, errno);
  return trusted(openat(descriptor_.number(), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), path, make);
}

Result<std::string> Folder::read(const std::string& name, struct stat* seen) const {
  const std::string path = fmt::format("{}/{}", path_, name);
  const Descriptor file(openat(descriptor_.number(), name.c_str(), kReadFlags));
  struct stat state;
  CERMET_RETURN_IF_ERROR(stateOf(file, path, state));
  if (seen)
    *seen = state;
  if (const std::string why = whyUntrusted(state); !why.empty())
    return error(CERMET_UNSUPPORTED, "'{}' is not a file that only this user can write: {}", path, why);
  return readAll(file, path, static_cast<size_t>(state.st_size));
}

Descriptor Folder::openForLocks(const char* name) const {
  return Descriptor(
      openat(descriptor_.number(), name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, S_IRUSR | S_IWUSR));
}

static struct flock firstByte() {
  struct flock range {};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  range.l_len = 1;
  return range;
}

std::optional<bool> Folder::isLocked(const std::string& name) const {
  const Descriptor file(openat(descriptor_.number(), name.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct flock range = firstByte();
  if (file.number() < 0 || fcntl(file.number(), F_OFD_GETLK, &range) != 0)
    return std::nullopt;
  return range.l_type != F_UNLCK;
}

int Folder::publish(const std::string& temporary, const std::string& name, std::string_view bytes) const {
  Descriptor file(
      openat(descriptor_.number(), temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  struct flock range = firstByte(); // says that the writer lives; where it cannot, its file is left until it is old
  if (file.number() >= 0)
    fcntl(file.number(), F_OFD_SETLK, &range);
  int failure = writeAll(file, bytes);
  if (!failure)
    failure = rename(temporary, name);
  if (failure)
    remove(temporary);
  return failure;
}

int Folder::rename(const std::string& from, const std::string& to) const {
  return renameat(descriptor_.number(), from.c_str(), descriptor_.number(), to.c_str()) == 0 ? 0 : errno;
}

int Folder::remove(const std::string& name) const {
  return unlinkat(descriptor_.number(), name.c_str(), 0) == 0 ? 0 : errno;
}

void Folder::touch(const std::string& name) const {
  utimensat(descriptor_.number(), name.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
}

std::vector<std::string> Folder::names() const {
  std::vector<std::string> names;
  // Of its own, since reading moves a descriptor's position.
  Descriptor own(openat(descriptor_.number(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(own.number() < 0 ? nullptr : fdopendir(own.number()), closedir);
  if (directory)
    own.forget(); // closedir() closes it
  while (const dirent* entry = directory ? readdir(directory.get()) : nullptr)
    if (const std::string_view name = entry->d_name; name != "." && name != "..")
      names.emplace_back(name);
  return names;
}

std::vector<Folder::Item> Folder::list() const {
  std::vector<Item> items;
  for (std::string& name : names()) {
    Item item{std::move(name), {}};
    if (fstatat(descriptor_.number(), item.name.c_str(), &item.state, AT_SYMLINK_NOFOLLOW) == 0)
      items.push_back(std::move(item));
  }
  return items;
}

} // namespace cermet
