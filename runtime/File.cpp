#include "runtime/File.h"
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace cermet {

constexpr off_t kLargestFile = off_t(1) << 30;

namespace {

class Descriptor {
public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0)
      close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }
  bool closeNow() { return close(std::exchange(number_, -1)) == 0; }

private:
  int number_;
};

Status failed(const std::string& path, int number) {
  const cermet_status code = number == ENOENT || number == ENOTDIR ? CERMET_NOT_FOUND : CERMET_INTERNAL;
  return error(code, "'{}': {}", path, std::generic_category().message(number));
}

} // namespace

Result<std::string> readFile(const std::string& path) {
  // O_NONBLOCK: a fifo put in a file's place must not stop the process.
  Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file.number() < 0)
    return failed(path, errno);
  struct stat state;
  if (fstat(file.number(), &state) != 0)
    return failed(path, errno);
  if (!S_ISREG(state.st_mode) || state.st_size > kLargestFile)
    return error(CERMET_INTERNAL, "'{}': not a regular file of at most 1 GiB", path);
  std::string bytes(static_cast<size_t>(state.st_size), '\0');
  size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t count = ::read(file.number(), bytes.data() + filled, bytes.size() - filled);
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      return failed(path, errno);
    if (count == 0)
      break;
    filled += static_cast<size_t>(count);
  }
  bytes.resize(filled);
  return bytes;
}

int writeFile(const std::string& path, std::string_view bytes) {
  Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (file.number() < 0)
    return errno;
  while (!bytes.empty()) {
    const ssize_t count = ::write(file.number(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR)
      continue;
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

} // namespace cermet
