// Pack: many entries in one file that nobody changes (docs/cache-format.md): the same bytes for the same entries,
// wherever it is made. What opens is whole in everything but the entries, each of which is checked when it is read. A
// file that nobody can change is mapped, so that its entries lie in memory once for all processes (Bytes.h); another
// stays open and is read. Whoever names a pack trusts it, whoever owns it, or demands its digest.
#pragma once
#include "runtime/cache/Entry.h"
#include "runtime/support/Bytes.h"
#include "runtime/support/File.h"
#include "runtime/support/Status.h"
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

namespace cermet {

constexpr std::string_view kPackSuffix = ".cpack";

class Pack {
public:
  // NOT_FOUND where there is no such file, INVALID_ARGUMENT where it is no whole pack or has another digest than is
  // demanded. One whose digest is demanded is kept in memory, mapped or read, so that what was checked is what is used.
  static Result<std::shared_ptr<const Pack>> open(const std::string& path, const std::string& demanded = "");

  struct Item {
    EntryKind kind;
    std::string hash; // of the key: XXH3-128, canonical
    int nvrtcVersion; // as the entry has it
    uint64_t offset, bytes;
    std::string fileName() const; // that it would have in a directory
  };
  const std::vector<Item>& items() const { return items_; } // by kind, hash and version
  // Those of a key, which differ in their version: the newest first.
  std::vector<const Item*> find(EntryKind kind, const std::string& key) const;
  // Of an item of this pack. NOT_FOUND says what is wrong with the bytes.
  Result<Entry> read(const Item& item) const;
  // The same without its own copy of the payload, where the pack is in memory.
  struct Content {
    std::string key;
    Bytes payload;
  };
  Result<Content> content(const Item& item) const;
  Result<std::string> bytes(const Item& item) const;

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }
  // SHA-256 of the file, as sha256sum prints it.
  Result<std::string> digest() const;

private:
  Pack(std::string path, Descriptor file, uint64_t size)
      : path_(std::move(path)), file_(std::move(file)), size_(size) {}
  Result<Bytes> range(uint64_t offset, uint64_t bytes) const;
  Result<EntryView> view(const Item& item, std::string_view bytes) const;
  Status readIndex();

  const std::string path_;
  const Descriptor file_;
  const uint64_t size_;
  Bytes whole_; // null where entries are read one by one
  std::vector<Item> items_;
};

// A pack in the making. Of entries with one key and version the first stays.
class PackWriter {
public:
  void add(const Entry& entry);
  Status add(const Pack& pack); // NOT_FOUND where an entry is damaged
  // The bytes of an entry, as encode() made them.
  Status add(std::string bytes);

  struct Written {
    size_t entries = 0;
    uint64_t bytes = 0;
    std::string digest;
  };
  // A new file in place of what had the name.
  Result<Written> write(const std::string& path) const;

private:
  std::map<std::tuple<EntryKind, std::string, int>, std::string> entries_;
};

} // namespace cermet
