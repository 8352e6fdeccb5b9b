// Files and directories through the system calls, so that every failure has its errno. A Folder is held open: what was
// checked is what is read and written, whatever happens to its path meanwhile.
#pragma once
#include "runtime/support/Status.h"
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <utility>
#include <vector>

namespace cermet {

// The whole of a regular file of at most 1 GiB, read into memory (a mapping would end the process if the file shrank).
// NOT_FOUND where there is none, INTERNAL with the cause for anything else.
Result<std::string> readFile(const std::string& path);

// Why somebody else than this user and root could have put something there, or ""; of what fstat() says.
std::string whyUntrusted(const struct stat& state);

class Descriptor {
public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  int number() const { return number_; }
  bool closeNow();
  void forget() { number_ = -1; } // it is closed, or another's

private:
  int number_;
};

// A regular file for reading, and how many bytes it has; errors as of readFile(), but of any size.
Result<Descriptor> openRegularFile(const std::string& path, uint64_t& size);
// Fills `bytes` from there on.
Status readAt(const Descriptor& file, const std::string& path, uint64_t offset, std::string& bytes);
// A new file, or one in place of what had the name, on the disk when this returns; for everybody whom the umask lets
// read it.
Status publishFile(const std::string& path, std::string_view bytes);

// A directory that only this user or root can change, and whose files are read only if that holds of them too.
// UNSUPPORTED where it does not, NOT_FOUND where there is no such directory or file, INTERNAL for anything else.
class Folder {
public:
  // Links to it are followed: where they lead is what is checked. With `make` it and its parents are made, mode 0700.
  static Result<Folder> open(const std::string& path, bool make);
  // The one of this name in it, which is no link.
  Result<Folder> inner(const char* name, bool make) const;

  // As readFile(); `state` is what fstat() says of it.
  Result<std::string> read(const std::string& name, struct stat* state = nullptr) const;
  // Open for reading and writing, made if it is not there; none where that fails.
  Descriptor openForLocks(const char* name) const;
  // A new file with mode 0600, or one in place of what had the name, on the disk when this returns: it is written under
  // `temporary` first, and its first byte is locked so long. The answers are 0 or an errno.
  int publish(const std::string& temporary, const std::string& name, std::string_view bytes) const;
  int rename(const std::string& from, const std::string& to) const;
  int remove(const std::string& name) const;
  void touch(const std::string& name) const; // written now
  // Whether somebody has locked the first byte of a file; nothing where that cannot be told.
  std::optional<bool> isLocked(const std::string& name) const;

  struct Item {
    std::string name;
    struct stat state; // of a link itself
  };
  std::vector<std::string> names() const; // without "." and ".."
  std::vector<Item> list() const;         // of the same
  const std::string& path() const { return path_; }

private:
  Folder(int descriptor, std::string path) : descriptor_(descriptor), path_(std::move(path)) {}
  static Result<Folder> trusted(int descriptor, const std::string& path, bool make);

  Descriptor descriptor_;
  std::string path_;
};

} // namespace cermet
