// Packs: the same bytes for the same entries, every damage found, and asked before the directory.
#include "BuildId.h"
#include "runtime/cache/Packs.h"
#include "runtime/cache/Store.h"
#include "runtime/support/Sha256.h"
#include "tests/unit/runtime/CommandOutput.h"
#include "tests/unit/runtime/TestDirectory.h"
#include "tests/unit/runtime/Trial.h"
#include "tests/unit/runtime/cache/SomeEntries.h"
#include "tests/unit/runtime/cache/StoredEntry.h"
#include <algorithm>
#include <csignal>
#include <fcntl.h>
#include <linux/magic.h>
#include <random>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace cermet {
namespace {

struct PackTest : testing::Test {
  TestDirectory directory;
  const std::string path = directory / "a.cpack";
  Log log{LogLevel::Warn};
  Counters counters;

  // Whether all of it is as it was made.
  static bool isWhole(const std::string& path) {
    const auto pack = Pack::open(path);
    return pack.ok() && std::all_of((*pack)->items().begin(), (*pack)->items().end(),
                                    [&](const Pack::Item& item) { return (*pack)->read(item).ok(); });
  }
  // In place: what is emptied first is flushed to the disk when it is closed, which takes a hundred times as long.
  void overwrite(const std::string& bytes) const {
    std::fstream(path, std::ios::binary | std::ios::in | std::ios::out) << bytes;
    std::filesystem::resize_file(path, bytes.size());
  }
  Result<Store::Payload> ask(Store& store, const Entry& entry, const std::string& made = "made") {
    return store.get(entry.kind, entry.key,
                     {counters.kernelsCompiled, counters.kernelsFromMemory, counters.kernelsFromPacks,
                      counters.kernelsFromDirectory},
                     [&](Entry& mine) -> Status {
                       mine.payload = made;
                       return {};
                     });
  }
};

TEST_F(PackTest, ComesBackAsItWent) {
  const std::vector<Entry> entries = someEntries();
  const PackWriter::Written written = writePack(path, entries);
  EXPECT_EQ(written.entries, 6u);
  const auto pack = Pack::open(path);
  ASSERT_TRUE(pack.ok()) << pack.status().message();
  EXPECT_EQ((*pack)->items().size(), 6u);
  EXPECT_EQ((*pack)->size(), written.bytes);
  for (const Entry& entry : entries) {
    const auto found = (*pack)->find(entry.kind, entry.key);
    ASSERT_EQ(found.size(), entry.nvrtcVersion > 0 ? 2u : 1u);
    const auto* item = *std::find_if(found.begin(), found.end(),
                                     [&](const auto* item) { return item->nvrtcVersion == entry.nvrtcVersion; });
    const Result<Entry> back = (*pack)->read(*item);
    ASSERT_TRUE(back.ok()) << back.status().message();
    EXPECT_EQ(back->payload, entry.payload);
    EXPECT_EQ(item->fileName(), entryFileName(entry.key, entry.nvrtcVersion));
    if (entry.nvrtcVersion > 0) {
      EXPECT_EQ(found.front()->nvrtcVersion, 13000) << "the newest first";
    }
  }
  EXPECT_TRUE((*pack)->find(EntryKind::Plan, "another").empty());
  EXPECT_EQ(writePack(directory / "empty.cpack", {}).entries, 0u);
  EXPECT_TRUE(isWhole(directory / "empty.cpack"));
}

TEST_F(PackTest, EqualEntriesAreEqualBytes) {
  std::vector<Entry> entries = someEntries();
  const PackWriter::Written one = writePack(path, entries);
  std::mt19937 random(1);
  for (int turn = 0; turn < 10; ++turn) {
    std::shuffle(entries.begin(), entries.end(), random);
    const PackWriter::Written other = writePack(directory / "b.cpack", entries);
    EXPECT_EQ(other.digest, one.digest);
    EXPECT_EQ(*readFile(directory / "b.cpack"), *readFile(path));
  }
  entries[0].payload += " ";
  EXPECT_NE(writePack(directory / "b.cpack", entries).digest, one.digest);
}

TEST_F(PackTest, TheDigestIsThatOfTheSystemsTool) {
  for (size_t size : {0, 1, 55, 56, 63, 64, 65, 119, 120, 128, 1000, 65537}) {
    std::string bytes(size, '\0');
    std::mt19937 random(static_cast<unsigned>(size));
    for (char& byte : bytes)
      byte = static_cast<char>(random());
    std::ofstream(directory / "file", std::ios::binary) << bytes;
    const CommandOutput theirs = runCommand("sha256sum " + (directory / "file"));
    if (theirs.code != 0)
      GTEST_SKIP() << "no sha256sum";
    EXPECT_EQ(theirs.text.substr(0, 64), sha256(bytes)) << size;
  }
}

TEST_F(PackTest, EveryTruncationIsFound) {
  writePack(path, someEntries());
  const std::string bytes = *readFile(path);
  ASSERT_TRUE(isWhole(path)) << "the control";
  std::ofstream(path, std::ios::binary) << bytes + "x";
  EXPECT_FALSE(Pack::open(path).ok());
  for (size_t size = bytes.size(); size-- > 0;) {
    ASSERT_EQ(truncate(path.c_str(), static_cast<off_t>(size)), 0);
    ASSERT_FALSE(Pack::open(path).ok()) << size << " of " << bytes.size();
  }
}

TEST_F(PackTest, EveryFlippedBitIsFound) {
  writePack(path, someEntries());
  std::string bytes = *readFile(path);
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    overwrite(bytes);
    ASSERT_FALSE(isWhole(path)) << "bit " << bit;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
  }
}

// Bytes of an index that has the right checksum and still is none.
TEST_F(PackTest, AnIndexThatLiesIsFound) {
  writePack(path, someEntries());
  const std::string bytes = *readFile(path);
  constexpr size_t kRecords = 24, kRecord = 40;
  const size_t index = kRecords + 6 * kRecord;
  std::mt19937_64 random(7);
  for (int turn = 0; turn < 20'000; ++turn) {
    std::string changed = bytes;
    const size_t at = 12 + random() % (index - 12); // behind magic and version
    for (size_t byte = 0; byte < 1 + random() % 8 && at + byte < index; ++byte)
      changed[at + byte] = static_cast<char>(random() % 4 == 0 ? 0xff : random());
    if (changed == bytes)
      continue;
    const Checksum sum = checksum(std::string_view(changed).substr(0, index));
    std::memcpy(changed.data() + index, &sum, sizeof(sum));
    overwrite(changed);
    ASSERT_FALSE(isWhole(path)) << "at " << at;
  }
}

TEST_F(PackTest, DamageIsFound) {
  const long damages = wanted("TRIAL_DAMAGES", 5000);
  saw("damages", damages);
  writePack(path, someEntries());
  const std::string whole = *readFile(path);
  std::mt19937_64 random(13);
  for (long turn = 0; turn < damages; ++turn) {
    std::string bytes = whole;
    const size_t at = random() % bytes.size();
    if (turn % 3 == 0)
      bytes.resize(at);
    else if (turn % 3 == 1)
      bytes[at] = static_cast<char>(bytes[at] ^ 1 << random() % 8);
    else
      bytes.replace(at, 1 + random() % 64, bytes.substr(random() % bytes.size(), 1 + random() % 64));
    if (bytes == whole)
      continue;
    overwrite(bytes);
    ASSERT_FALSE(isWhole(path)) << "damage " << turn;
  }
}

// Whoever writes a pack is killed at any moment: the name has the old pack or the new one, whole.
TEST_F(PackTest, AKilledWriterLeavesTheOldOrTheNew) {
  std::vector<Entry> entries = someEntries();
  entries[3].payload.assign(2'000'000, 'x');
  const auto damaged = [&](long kills, bool inPlace) {
    long damaged = 0;
    for (long round = 0; round < kills; ++round) {
      writePack(path, {entries[3]});
      int ends[2];
      EXPECT_EQ(pipe(ends), 0);
      const pid_t writer = fork();
      if (writer == 0) {
        const std::string whole = *readFile(path);
        for (size_t number = 0;; ++number) {
          PackWriter pack;
          pack.add(entries[3]);
          pack.add(entries[number % 3]);
          if (inPlace)
            std::ofstream(path, std::ios::binary) << whole;
          else if (!pack.write(path).ok())
            _exit(1);
          if (number == 1 && ::write(ends[1], "", 1) != 1) // it is at it
            _exit(1);
        }
      }
      close(ends[1]);
      char begun = 0;
      EXPECT_EQ(read(ends[0], &begun, 1), 1);
      close(ends[0]);
      std::this_thread::sleep_for(std::chrono::milliseconds(round % 15));
      kill(writer, SIGKILL);
      int status = 0;
      waitpid(writer, &status, 0);
      EXPECT_TRUE(WIFSIGNALED(status));
      damaged += !isWhole(path);
    }
    return damaged;
  };
  const long kills = wanted("TRIAL_PACK_KILLS", 20), found = damaged(kills, false), control = damaged(20, true);
  saw("kills", kills);
  saw("damaged", found);
  saw("damaged by the control", control);
  EXPECT_EQ(found, 0);
  EXPECT_GT(control, 0) << "the control, which writes in place";
}

TEST_F(PackTest, WhatIsNoPackIsRefusedByName) {
  EXPECT_EQ(Packs::open(directory / "none.cpack").status().code(), CERMET_NOT_FOUND);
  EXPECT_NE(Packs::open(directory / "none.cpack").status().message().find("No such file or directory"),
            std::string::npos);
  std::ofstream(path) << std::string(100, 'x');
  EXPECT_EQ(Packs::open(path).status().message(),
            fmt::format("the pack '{}' is not used: it is no pack; make or copy it again", path));
  EXPECT_NE(Packs::open(directory.path()).status().message().find("not a regular file"), std::string::npos);
}

TEST_F(PackTest, ADigestCanBeDemanded) {
  const std::string digest = writePack(path, someEntries()).digest;
  EXPECT_TRUE(Packs::open(path + "#" + digest).ok());
  std::string bytes = *readFile(path);
  bytes.back() ^= 1; // which nothing but the digest sees before the entry is read
  std::ofstream(path, std::ios::binary) << bytes;
  EXPECT_TRUE(Packs::open(path).ok());
  const Status failure = Packs::open(path + "#" + digest).status();
  EXPECT_EQ(failure.code(), CERMET_INVALID_ARGUMENT);
  EXPECT_NE(failure.message().find(fmt::format("has digest {}, expected {}", sha256(bytes), digest)), std::string::npos)
      << failure.message();
}

TEST_F(PackTest, IsAskedBeforeTheDirectoryAndInOrder) {
  std::vector<Entry> entries = someEntries();
  writePack(path, {entries[4]});
  writePack(directory / "b.cpack", {entries[4], entries[5], entries[3]});
  const auto settings = [&](int version) {
    return StoreSettings{.nvrtcVersion = [version] { return version; },
                         .packs = *Packs::open(path + ":" + (directory / "b.cpack"))};
  };
  Store store(directory / "cache", log, counters, settings(13000));
  EXPECT_EQ(**ask(store, entries[5]), "by 12.8") << "of the first pack that has one";
  EXPECT_EQ(**ask(store, entries[3]), "an image");
  EXPECT_EQ(counters.kernelsFromPacks, 2u);
  EXPECT_EQ(counters.cacheMisses, 0u);
  EXPECT_FALSE(std::filesystem::exists(directory / "cache")) << "nothing is written";
  Store other("", log, counters, {.nvrtcVersion = [] { return 12080; }, .packs = *Packs::open(directory / "b.cpack")});
  EXPECT_EQ(**ask(other, entries[5]), "by 12.8") << "of one pack's this process's version";
  Store unknown("", log, counters, {.packs = *Packs::open(directory / "b.cpack")});
  EXPECT_EQ(**ask(unknown, entries[5]), "by 13.0") << "or the newest";
  Entry more = entries[3];
  more.key += "more";
  EXPECT_EQ(**ask(store, more), "made");
  EXPECT_EQ(counters.cacheMisses, 1u);
}

TEST_F(PackTest, ADamagedEntryIsAMissOfThatPackAlone) {
  std::vector<Entry> entries = someEntries();
  writePack(path, entries);
  writePack(directory / "b.cpack", {entries[3]});
  const auto pack = *Pack::open(path);
  std::string bytes = *readFile(path);
  for (const Pack::Item& item : pack->items())
    if (item.kind != EntryKind::Plan)
      bytes[item.offset + 40] ^= 1;
  std::ofstream(path, std::ios::binary) << bytes;
  testing::internal::CaptureStderr();
  Store store("", log, counters, {.packs = *Packs::open(path + ":" + (directory / "b.cpack"))});
  EXPECT_EQ(**ask(store, entries[0]), entries[0].payload);
  EXPECT_EQ(**ask(store, entries[3]), "an image") << "of the next pack";
  EXPECT_EQ(**ask(store, entries[1]), "made");
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find(fmt::format("of the pack '{}' is not used: its checksum is wrong", path)), std::string::npos)
      << text;
  EXPECT_EQ(counters.cacheFailures, 2u);
}

TEST_F(PackTest, APackOfAnotherBuildIsNamed) {
  Entry entry = someEntries()[3];
  entry.key.replace(0, entry.key.find('\n'), "another");
  writePack(path, {entry});
  testing::internal::CaptureStderr();
  Store store("", log, counters, {.packs = *Packs::open(path)});
  EXPECT_EQ(**ask(store, someEntries()[3]), "made");
  EXPECT_NE(testing::internal::GetCapturedStderr().find(fmt::format(
                "the pack '{}' is of build another, this is build " CERMET_BUILD_ID "; it serves nothing", path)),
            std::string::npos);
}

// The line of this process's mappings that has an address.
std::string mappingWith(const char* address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    char* end = nullptr;
    const uintptr_t first = std::strtoull(line.c_str(), &end, 16), last = std::strtoull(end + 1, nullptr, 16);
    if (reinterpret_cast<uintptr_t>(address) >= first && reinterpret_cast<uintptr_t>(address) < last)
      return line;
  }
  return "";
}

// A file in memory with these bytes, of which nobody can change one.
std::string sealed(Descriptor& file, const std::string& bytes) {
  EXPECT_EQ(::write(file.number(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  EXPECT_EQ(fcntl(file.number(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE), 0);
  return fmt::format("/proc/self/fd/{}", file.number());
}

TEST_F(PackTest, AFileThatNobodyCanChangeIsMappedAsLongAsItIsUsed) {
  const std::vector<Entry> entries = someEntries();
  const std::string digest = writePack(path, entries).digest;
  Descriptor file(memfd_create("a pack that is mapped", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const std::string memory = sealed(file, *readFile(path));
  for (const std::string& packs : {memory, memory + "#" + digest}) {
    Store::Payload kept;
    {
      Store store("", log, counters, {.packs = *Packs::open(packs)});
      kept = *ask(store, entries[3]);
      Store another("", log, counters, {.packs = *Packs::open(path)});
      EXPECT_EQ(mappingWith((*ask(another, entries[3]))->data()).find("a pack"), std::string::npos) << "the control";
    }
    EXPECT_NE(mappingWith(kept->data()).find("a pack that is mapped"), std::string::npos);
    EXPECT_EQ(*kept, "an image") << "when the pack and its store are gone";
    const char* address = kept->data();
    kept.reset();
    EXPECT_EQ(mappingWith(address).find("a pack"), std::string::npos);
  }
  EXPECT_EQ(Packs::open(memory + "#" + std::string(64, '0')).status().code(), CERMET_INVALID_ARGUMENT);
}

TEST_F(PackTest, DamageOfAMappedFileIsFound) {
  writePack(path, someEntries());
  std::string bytes = *readFile(path);
  const auto* item = &(*Pack::open(path))->items().back();
  bytes[item->offset + item->bytes / 2] ^= 1;
  Descriptor file(memfd_create("a damaged pack", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const auto pack = Pack::open(sealed(file, bytes));
  ASSERT_TRUE(pack.ok()) << pack.status().message();
  EXPECT_EQ((*pack)->content((*pack)->items().back()).status().message(), "its checksum is wrong");
  EXPECT_TRUE((*pack)->content((*pack)->items().front()).ok());
}

TEST(Bytes, OnlyWhatTheSystemLetsNobodyChangeIsMapped) {
  const auto sealedWith = [](int seals) { return isUnchangeable({.seals = seals}); };
  EXPECT_TRUE(sealedWith(F_SEAL_SHRINK | F_SEAL_WRITE | F_SEAL_SEAL));
  EXPECT_FALSE(sealedWith(F_SEAL_SHRINK | F_SEAL_GROW)) << "its bytes may change";
  EXPECT_FALSE(sealedWith(F_SEAL_WRITE | F_SEAL_GROW)) << "it may shrink";
  EXPECT_FALSE(sealedWith(F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE)) << "who has it mapped may write";
  for (int64_t system : {SQUASHFS_MAGIC, int(EROFS_SUPER_MAGIC_V1), CRAMFS_MAGIC, ISOFS_SUPER_MAGIC})
    EXPECT_TRUE(isUnchangeable({.system = static_cast<uint32_t>(system)})) << std::hex << system;
  for (int64_t system : {EXT4_SUPER_MAGIC, TMPFS_MAGIC, NFS_SUPER_MAGIC, OVERLAYFS_SUPER_MAGIC, FUSE_SUPER_MAGIC})
    EXPECT_FALSE(isUnchangeable({.system = system})) << std::hex << system;
  EXPECT_TRUE(isUnchangeable({.attributes = STATX_ATTR_VERITY, .system = EXT4_SUPER_MAGIC}));
  EXPECT_FALSE(isUnchangeable({.attributes = STATX_ATTR_IMMUTABLE})) << "root may take that away";
  TestDirectory directory;
  std::ofstream(directory / "file") << "some bytes";
  const Descriptor file(open((directory / "file").c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_NE(factsOf(file).system, 0);
  EXPECT_EQ(factsOf(file).seals & (F_SEAL_SHRINK | F_SEAL_WRITE), 0);
  EXPECT_EQ(mapUnchangeable(file, 10), nullptr);
}

TEST_F(PackTest, AFileThatShrinksWhileItIsUsedEndsNoProcess) {
  const std::vector<Entry> entries = someEntries();
  writePack(path, entries);
  testing::internal::CaptureStderr();
  Store store("", log, counters, {.packs = *Packs::open(path)});
  ASSERT_EQ(truncate(path.c_str(), 10), 0);
  EXPECT_EQ(**ask(store, entries[3]), "made");
  EXPECT_NE(testing::internal::GetCapturedStderr().find("it is truncated"), std::string::npos);
}

} // namespace
} // namespace cermet
