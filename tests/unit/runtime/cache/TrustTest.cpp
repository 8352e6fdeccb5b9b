// A cache is code that this process runs: nothing is taken from where another user could have put it, also not while
// she tries.
#include "runtime/device/HostImage.h"
#include "runtime/cache/Store.h"
#include "tests/unit/runtime/cache/StoredEntry.h"
#include "tests/unit/runtime/TestDirectory.h"
#include <atomic>
#include <chrono>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace cermet {
namespace {

namespace files = std::filesystem;

constexpr uid_t kStranger = 12345;

struct Trust : testing::Test {
  TestDirectory directory;
  Log log{LogLevel::Warn};
  Counters counters;
  const std::string cache = directory / "cache";

  // What a new store gives for the key, made as `payload` if it has nothing.
  std::string ask(const std::string& payload, const std::string& place = "") {
    Store store(place.empty() ? cache : place, log, counters);
    const auto got = store.get(EntryKind::Kernel, "k",
                               {counters.kernelsCompiled, counters.kernelsFromMemory, counters.kernelsFromPacks,
                                counters.kernelsFromDirectory},
                               [&](Entry& entry) -> Status {
                                 entry.payload = payload;
                                 return {};
                               });
    return std::string(**got);
  }
  std::string warned(const std::string& payload) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(ask(payload), payload);
    return testing::internal::GetCapturedStderr();
  }
  void change(const std::string& path, mode_t mode) { ASSERT_EQ(chmod(path.c_str(), mode), 0); }
};

TEST_F(Trust, WhatGroupOrOthersMayWriteIsNotUsed) {
  EXPECT_EQ(ask("first"), "first");
  EXPECT_EQ(ask("never"), "first"); // the control
  const std::string file = storedFiles(cache + "/kernel")[0];
  for (const std::string& path : {cache, cache + "/kernel", file})
    for (mode_t open : {020, 002}) {
      const mode_t mode = path == file ? 0600 : 0700;
      change(path, mode | open);
      Log fresh(LogLevel::Warn);
      const std::string before = *readFile(file);
      testing::internal::CaptureStderr();
      Directory opened(cache, fresh, counters);
      EXPECT_FALSE(opened.read(EntryKind::Kernel, "k")) << path;
      const std::string text = testing::internal::GetCapturedStderr();
      EXPECT_NE(text.find(fmt::format("'{}' is not a {} that only this user can write: its mode is {:04o}", path,
                                      path == file ? "file" : "directory", mode | open)),
                std::string::npos)
          << text;
      EXPECT_NE(text.find("chmod go-w"), std::string::npos);
      if (path != file) { // nor is anything written there
        testing::internal::CaptureStderr();
        EXPECT_EQ(ask("second"), "second");
        testing::internal::GetCapturedStderr();
        EXPECT_EQ(*readFile(file), before);
      }
      change(path, mode);
      EXPECT_EQ(ask("never"), "first") << path;
    }
}

TEST_F(Trust, WhatAnotherUserOwnsIsNotUsed) {
  if (geteuid() != 0)
    GTEST_SKIP() << "only root can give files away";
  EXPECT_EQ(ask("first"), "first");
  const std::string file = storedFiles(cache + "/kernel")[0];
  for (const std::string& path : {cache, cache + "/kernel", file}) {
    ASSERT_EQ(chown(path.c_str(), kStranger, kStranger), 0);
    Log fresh(LogLevel::Warn);
    testing::internal::CaptureStderr();
    Directory opened(cache, fresh, counters);
    EXPECT_FALSE(opened.read(EntryKind::Kernel, "k")) << path;
    EXPECT_NE(testing::internal::GetCapturedStderr().find("it belongs to user 12345, expected 0 or root"),
              std::string::npos);
    ASSERT_EQ(chown(path.c_str(), 0, 0), 0);
    EXPECT_EQ(ask("never"), "first") << path;
  }
}

TEST_F(Trust, AnEntryOfAnotherIsReplacedByOnesOwn) {
  if (geteuid() != 0)
    GTEST_SKIP() << "only root can give files away";
  EXPECT_EQ(ask("first"), "first");
  const std::string file = storedFiles(cache + "/kernel")[0];
  ASSERT_EQ(chown(file.c_str(), kStranger, kStranger), 0);
  EXPECT_NE(warned("second").find("is not a file that only this user can write"), std::string::npos);
  EXPECT_EQ(ask("never"), "second");
}

TEST_F(Trust, ALinkToADirectoryOfOnesOwnIsFollowed) {
  files::create_directory(directory / "elsewhere");
  change(directory / "elsewhere", 0700);
  files::create_symlink(directory / "elsewhere", cache);
  EXPECT_EQ(ask("first"), "first");
  EXPECT_EQ(ask("never"), "first");
  EXPECT_EQ(storedFiles(directory / "elsewhere/kernel").size(), 1u);
  // Below it nothing is.
  files::rename(directory / "elsewhere/kernel", directory / "kernels");
  files::create_symlink(directory / "kernels", directory / "elsewhere/kernel");
  testing::internal::CaptureStderr();
  EXPECT_EQ(ask("second"), "second");
  testing::internal::GetCapturedStderr();
}

// What cannot be loaded from memory is tried from a file, whose path the loader opens again.
TEST_F(Trust, ATemporaryFileIsMadeOnlyWhereNobodyElseCouldReplaceIt) {
  std::string image = *readFile(FAKE_KERNELS);
  image[16] = 1; // e_type: not one that can be loaded, from wherever
  const std::string before = getenv("TMPDIR") ? getenv("TMPDIR") : "";
  const auto failure = [&](mode_t mode) {
    change(directory.path(), mode);
    files::create_directories(directory / "inner");
    setenv("TMPDIR", (directory / "inner").c_str(), 1);
    const std::string message = HostImage::load(image).status().message();
    before.empty() ? unsetenv("TMPDIR") : setenv("TMPDIR", before.c_str(), 1);
    return message;
  };
  const std::string refused = fmt::format("'{}' is not a directory that only this user can write", directory.path());
  EXPECT_NE(failure(0777).find(refused), std::string::npos) << failure(0777);
  EXPECT_NE(failure(0720).find("; set TMPDIR to a directory of this user's own"), std::string::npos) << failure(0720);
  EXPECT_EQ(failure(0700).find(refused), std::string::npos) << failure(0700);
  EXPECT_EQ(failure(01777).find(refused), std::string::npos) << failure(01777); // as /tmp is
}

// Her directory and ours take turns under one name, as often as she can, while we read: what is hers is never taken.
TEST_F(Trust, ADirectoryThatIsSwappedWhileItIsRead) {
  if (geteuid() != 0)
    GTEST_SKIP() << "only root can give files away";
  const std::string ours = directory / "ours", hers = directory / "hers", link = directory / "cache";
  Log quiet(LogLevel::Off);
  for (const std::string& place : {ours, hers}) {
    Directory writer(place, quiet, counters);
    Entry entry;
    entry.kind = EntryKind::Kernel;
    entry.key = "k";
    entry.payload = place;
    writer.write(entry);
  }
  for (const std::string& path : {hers, hers + "/kernel", storedFiles(hers + "/kernel")[0]})
    ASSERT_EQ(chown(path.c_str(), kStranger, kStranger), 0);
  std::atomic<bool> done{false};
  std::thread swapping([&] {
    for (int turn = 0; !done; ++turn) {
      const std::string next = directory / "next";
      symlink((turn % 2 ? ours : hers).c_str(), next.c_str());
      rename(next.c_str(), link.c_str());
    }
  });
  int taken = 0;
  Directory reader(link, quiet, counters);
  // On a machine that others use she may stand still for longer than so many turns take.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (int turn = 0; turn < 20000 || (taken <= 100 && std::chrono::steady_clock::now() < end); ++turn)
    if (const std::optional<Entry> entry = reader.read(EntryKind::Kernel, "k")) {
      ++taken;
      if (entry->payload != ours) {
        ADD_FAILURE() << "after " << turn << " turns her entry was taken";
        break;
      }
    }
  done = true;
  swapping.join();
  EXPECT_GT(taken, 100) << "ours was hardly ever there, so nothing was tested";
}

} // namespace
} // namespace cermet
