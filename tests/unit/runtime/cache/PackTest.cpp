// Packs: the same bytes for the same entries, every damage found, asked before the directory, and alone where a context
// may make nothing.
#include "BuildId.h"
#include "runtime/cache/Packs.h"
#include "runtime/cache/Store.h"
#include "runtime/support/Sha256.h"
#include "tests/unit/runtime/CommandOutput.h"
#include "tests/unit/runtime/TestDirectory.h"
#include "tests/unit/runtime/cache/StoredEntry.h"
#include "tests/unit/runtime/launch/CudaLaunch.h"
#include <algorithm>
#include <random>
#include <sys/stat.h>

namespace cermet {
namespace {

const std::string kMatch = R"({"format": "cermet.match.1"})", kGradient = R"({"format": "cermet.gradient.1"})";

// One of each kind, and a kernel by two versions of NVRTC.
std::vector<Entry> someEntries() {
  const std::string build = CERMET_BUILD_ID "\n";
  return {{EntryKind::Plan, build + "sm_90\nfunc.func @scale(", scalePlan().dump(), 0, ""},
          {EntryKind::Match, build + "\nfunc.func @m(", kMatch, 0, ""},
          {EntryKind::Gradient, build + "1\nfunc.func @g(", kGradient, 0, ""},
          {EntryKind::Kernel, build + "cermet.kernel.1\ntarget host:x86-64-v3\nprogram p 8\n", "an image", 0, ""},
          {EntryKind::Kernel, build + "cermet.kernel.1\ntarget sm_90\nprogram p 8\n", "by 12.8", 12080, ""},
          {EntryKind::Kernel, build + "cermet.kernel.1\ntarget sm_90\nprogram p 8\n", "by 13.0", 13000, ""}};
}

struct PackTest : testing::Test {
  TestDirectory directory;
  const std::string path = directory / "a.cpack";
  Log log{LogLevel::Warn};
  Counters counters;

  static PackWriter::Written write(const std::string& path, const std::vector<Entry>& entries) {
    PackWriter writer;
    for (const Entry& entry : entries)
      writer.add(entry);
    auto written = writer.write(path);
    EXPECT_TRUE(written.ok()) << written.status().message();
    return *written;
  }
  // Whether all of it is as it was made.
  static bool isWhole(const std::string& path) {
    const auto pack = Pack::open(path);
    return pack.ok() && std::all_of((*pack)->items().begin(), (*pack)->items().end(),
                                    [&](const Pack::Item& item) { return (*pack)->read(item).ok(); });
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
  const PackWriter::Written written = write(path, entries);
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
  EXPECT_EQ(write(directory / "empty.cpack", {}).entries, 0u);
  EXPECT_TRUE(isWhole(directory / "empty.cpack"));
}

TEST_F(PackTest, EqualEntriesAreEqualBytes) {
  std::vector<Entry> entries = someEntries();
  const PackWriter::Written one = write(path, entries);
  std::mt19937 random(1);
  for (int turn = 0; turn < 10; ++turn) {
    std::shuffle(entries.begin(), entries.end(), random);
    const PackWriter::Written other = write(directory / "b.cpack", entries);
    EXPECT_EQ(other.digest, one.digest);
    EXPECT_EQ(*readFile(directory / "b.cpack"), *readFile(path));
  }
  entries[0].payload += " ";
  EXPECT_NE(write(directory / "b.cpack", entries).digest, one.digest);
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
  write(path, someEntries());
  const std::string bytes = *readFile(path);
  ASSERT_TRUE(isWhole(path)) << "the control";
  for (size_t size = 0; size < bytes.size(); ++size) {
    std::ofstream(path, std::ios::binary) << bytes.substr(0, size);
    ASSERT_FALSE(Pack::open(path).ok()) << size << " of " << bytes.size();
  }
  std::ofstream(path, std::ios::binary) << bytes + "x";
  EXPECT_FALSE(Pack::open(path).ok());
}

TEST_F(PackTest, EveryFlippedBitIsFound) {
  write(path, someEntries());
  std::string bytes = *readFile(path);
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    std::ofstream(path, std::ios::binary) << bytes;
    ASSERT_FALSE(isWhole(path)) << "bit " << bit;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
  }
}

// Bytes of an index that has the right checksum and still is none.
TEST_F(PackTest, AnIndexThatLiesIsFound) {
  write(path, someEntries());
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
    std::ofstream(path, std::ios::binary) << changed;
    ASSERT_FALSE(isWhole(path)) << "at " << at;
  }
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
  const std::string digest = write(path, someEntries()).digest;
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
  write(path, {entries[4]});
  write(directory / "b.cpack", {entries[4], entries[5], entries[3]});
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
  write(path, entries);
  write(directory / "b.cpack", {entries[3]});
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
  write(path, {entry});
  testing::internal::CaptureStderr();
  Store store("", log, counters, {.packs = *Packs::open(path)});
  EXPECT_EQ(**ask(store, someEntries()[3]), "made");
  EXPECT_NE(testing::internal::GetCapturedStderr().find(fmt::format(
                "the pack '{}' is of build another, this is build " CERMET_BUILD_ID "; it serves nothing", path)),
            std::string::npos);
}

TEST_F(PackTest, AFileThatShrinksWhileItIsUsedEndsNoProcess) {
  const std::vector<Entry> entries = someEntries();
  write(path, entries);
  testing::internal::CaptureStderr();
  Store store("", log, counters, {.packs = *Packs::open(path)});
  ASSERT_EQ(truncate(path.c_str(), 10), 0);
  EXPECT_EQ(**ask(store, entries[3]), "made");
  EXPECT_NE(testing::internal::GetCapturedStderr().find("it is truncated"), std::string::npos);
}

// What a context asked for is a pack that serves another, which may make nothing.
struct PackedContext : CudaLaunch {
  TestDirectory directory;
  const std::string path = directory / "model.cpack";

  Config only(const std::string& packs) {
    Config restricted = config;
    restricted.packs = packs;
    restricted.cacheOnly = true;
    restricted.compilerLibrary = "/nowhere.so";
    return restricted;
  }
  Status prepared(const std::shared_ptr<Context>& context, const Json& plan, const std::string& target) {
    const auto compiled = context->compile(plan.dump(), target);
    return compiled.ok() ? Executable::prepare(context, *compiled, 0).status() : compiled.status();
  }
};

TEST_F(PackedContext, ServesAContextThatMayMakeNothing) {
  const auto maker = *Context::create(config);
  ASSERT_TRUE(prepared(maker, scalePlan(), "host").ok());
  ASSERT_TRUE(prepared(maker, scalePlan("$TARGET", kCubin), "auto").ok());
  ASSERT_TRUE(maker->match(kMatch).ok() && maker->differentiate(kGradient, {}).ok());
  const auto written = maker->writePack(path);
  ASSERT_TRUE(written.ok()) << written.status().message();
  EXPECT_EQ(written->entries, 6u);
  const auto context = Context::create(only(path + "#" + written->digest));
  ASSERT_TRUE(context.ok()) << context.status().message();
  EXPECT_TRUE(prepared(*context, scalePlan(), "host").ok());
  EXPECT_TRUE(prepared(*context, scalePlan("$TARGET", kCubin), "auto").ok());
  EXPECT_TRUE((*context)->match(kMatch).ok() && (*context)->differentiate(kGradient, {}).ok());
  const cermet_counters counters = (*context)->counters().snapshot();
  EXPECT_EQ(counters.plans_from_packs, 4u);
  EXPECT_EQ(counters.kernels_from_packs, 2u);
  EXPECT_EQ(counters.cache_misses + counters.cache_failures, 0u);
  EXPECT_GT(counters.cache_bytes_read, 0u);
  // From the pack it makes the same pack.
  EXPECT_EQ((*context)->writePack(directory / "again.cpack")->digest, written->digest);
}

TEST_F(PackedContext, AMissNamesWhatIsMissingAndWhatWouldMakeIt) {
  PackTest::write(path, {someEntries()[0]});
  const auto context = *Context::create(only(path));
  const Status plan = context->compile("func.func @norm(", "sm_90").status();
  EXPECT_EQ(plan.code(), CERMET_NOT_STORED);
  for (const char* part :
       {"the plan of 'sm_90 @norm' (", ".entry) is not stored, and CERMET_CACHE=only lets nothing be made",
        "asked were: packs '", "model.cpack', no directory", "`cermet compile GRAPH -t sm_90 -o more.cpack`",
        "cermet.record"})
    EXPECT_NE(plan.message().find(part), std::string::npos) << plan.message();
  const Status match = context->match("func.func @m(").status();
  EXPECT_EQ(match.code(), CERMET_NOT_STORED);
  EXPECT_NE(match.message().find("`cermet compile GRAPH --frontend -o more.cpack`"), std::string::npos);
  const Status kernel = context->kernelImages({"cermet.kernel.1\ntarget sm_90\nprogram norm 8\n"}).status();
  EXPECT_EQ(kernel.code(), CERMET_NOT_STORED);
  EXPECT_NE(kernel.message().find("the kernel of 'target sm_90 program norm 8'"), std::string::npos)
      << kernel.message();
  EXPECT_NE(kernel.message().find("-t sm_90 -o"), std::string::npos) << kernel.message();
  EXPECT_EQ(context->counters().cacheMisses, 3u);
}

TEST_F(PackedContext, TheDirectoryServesItToo) {
  config.cacheDirectory = directory / "cache";
  ASSERT_TRUE(prepared(*Context::create(config), scalePlan(), "host").ok());
  const auto context = *Context::create(only(""));
  EXPECT_TRUE(prepared(context, scalePlan(), "host").ok());
  const auto before = std::filesystem::last_write_time(directory / "cache");
  EXPECT_EQ(context->match("func.func @m(").status().code(), CERMET_NOT_STORED);
  EXPECT_EQ(std::filesystem::last_write_time(directory / "cache"), before) << "nothing is written";
}

TEST_F(PackedContext, AKernelThatDoesNotLoadIsMadeAgainOnce) {
  const auto maker = *Context::create(config);
  ASSERT_TRUE(prepared(maker, scalePlan(), "host").ok());
  ASSERT_TRUE(maker->writePack(path).ok());
  PackWriter broken;
  const auto whole = *Pack::open(path);
  for (const Pack::Item& item : whole->items()) {
    Entry entry = *whole->read(item);
    if (entry.kind == EntryKind::Kernel)
      entry.payload = "no ELF";
    broken.add(entry);
  }
  ASSERT_TRUE(broken.write(path).ok());
  const Status failure = prepared(*Context::create(only(path)), scalePlan(), "host");
  EXPECT_NE(failure.message().find("it came from a pack and CERMET_CACHE=only lets nothing be made"), std::string::npos)
      << failure.message();
  config.packs = path;
  config.cacheDirectory = directory / "cache";
  for (uint64_t made : {1u, 0u}) { // the next process finds it in the directory
    const auto context = *Context::create(config);
    EXPECT_TRUE(prepared(context, scalePlan(), "host").ok());
    EXPECT_EQ(context->counters().kernelsCompiled, made);
  }
}

TEST_F(PackedContext, ADumpCompilesAndOnlyDoesNot) {
  Config both = only("");
  both.dumpDirectory = directory / "dump";
  EXPECT_NE(Context::create(both).status().message().find("leave out one of the two"), std::string::npos);
}

} // namespace
} // namespace cermet
