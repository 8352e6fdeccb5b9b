#include "BuildId.h"
#include "frontends/tools/Commands.h"
#include "frontends/tools/Entries.h"
#include "runtime/cache/Listing.h"
#include "runtime/cache/Pack.h"
#include "runtime/cache/Payload.h"
#include "runtime/support/File.h"
#include <cstdio>

namespace cermet::tools {

namespace {

using PackPointer = std::shared_ptr<const Pack>;

// What cannot be opened can be mended in the command.
Result<PackPointer> openPack(const std::string& path) {
  auto pack = Pack::open(path);
  if (!pack.ok())
    return error(CERMET_INVALID_ARGUMENT, "{}", pack.status().message());
  return pack;
}

Status write(const PackWriter& writer, const std::string& path) {
  if (!path.ends_with(kPackSuffix))
    return error(CERMET_INVALID_ARGUMENT, "--output is '{}', expected a name that ends in {}", path, kPackSuffix);
  printWritten(path, CERMET_TRY(writer.write(path)));
  return {};
}

// Of a cache directory, what this build made.
Status make(const std::string& directory, const std::string& path) {
  const auto files = listDirectory(directory);
  if (!files.ok())
    return error(CERMET_INVALID_ARGUMENT, "{}", files.status().message());
  PackWriter writer;
  size_t others = 0, damaged = 0;
  for (const StoredFile& file : *files) {
    if (file.leftover || !file.timing.empty())
      continue;
    if (!file.problem.empty()) {
      fmt::print("{}: {}\n", file.path, file.problem);
      ++damaged;
    } else if (!file.entry->key.starts_with(CERMET_BUILD_ID "\n")) {
      ++others;
    } else {
      CERMET_RETURN_IF_ERROR(writer.add(CERMET_TRY(readFile(file.path))));
    }
  }
  if (others > 0 || damaged > 0)
    fmt::print("left out: {} entries of other builds, {} that are damaged\n", others, damaged);
  return write(writer, path);
}

Status merge(const std::vector<std::string>& paths, const std::string& output) {
  PackWriter writer;
  for (const std::string& path : paths) {
    const PackPointer pack = CERMET_TRY(openPack(path));
    if (const Status damaged = writer.add(*pack); !damaged.ok())
      return error(CERMET_INVALID_ARGUMENT, "the pack '{}' has a damaged entry: {}; see cermet pack verify", path,
                   damaged.message());
  }
  return write(writer, output);
}

// Every pack is looked at, whatever is wrong with one before.
Status list(const std::vector<std::string>& paths, bool thoroughly) {
  size_t damaged = 0;
  for (const std::string& path : paths) {
    const PackPointer pack = CERMET_TRY(openPack(path));
    size_t bad = 0;
    for (const Pack::Item& item : pack->items()) {
      const Result<Entry> entry = pack->read(item);
      const Status problem = !entry.ok() ? entry.status() : thoroughly ? checkPayloadThoroughly(*entry) : Status();
      if (!problem.ok()) {
        fmt::print("{}/{}: {}\n", name(item.kind), item.fileName(), problem.message());
        ++bad;
      } else if (!thoroughly) {
        printLine(*entry, item.bytes, item.fileName());
      }
    }
    fmt::print("{}: {} entries, {} bytes, {} damaged, digest {}\n", path, pack->items().size(), pack->size(), bad,
               CERMET_TRY(pack->digest()));
    damaged += bad;
  }
  if (damaged > 0)
    return error(CERMET_INTERNAL, "{} entries are damaged; make or copy the pack again", damaged);
  return {};
}

Status show(const std::string& path, const std::string& beginning) {
  const PackPointer pack = CERMET_TRY(openPack(path));
  std::vector<const Pack::Item*> found;
  for (const Pack::Item& item : pack->items())
    if (item.fileName().starts_with(beginning))
      found.push_back(&item);
  if (found.size() != 1)
    return error(CERMET_INVALID_ARGUMENT,
                 "{} entries have names that begin with '{}', expected one; cermet pack ls has their names",
                 found.size(), beginning);
  const Entry entry = CERMET_TRY(pack->read(*found.front()));
  printWhole(entry, found.front()->bytes, fmt::format("{}: {}", path, found.front()->fileName()));
  return {};
}

} // namespace

Status packCommand(const PackOptions& options) {
  switch (options.action) {
  case PackAction::Make:
    return make(options.file, options.output);
  case PackAction::Merge:
    return merge(options.files, options.output);
  case PackAction::Show:
    return show(options.file, options.entry);
  case PackAction::List:
  case PackAction::Verify:
    return list(options.files, options.action == PackAction::Verify);
  }
  return {};
}

} // namespace cermet::tools
