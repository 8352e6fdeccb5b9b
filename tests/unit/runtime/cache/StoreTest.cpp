// The store: once per key in a process, whole or not at all on disk, and no failure of a disk reaches the caller.
#include "runtime/cache/Listing.h"
#include "runtime/cache/Store.h"
#include "runtime/support/File.h"
#include "tests/unit/runtime/TestDirectory.h"
#include "tests/unit/runtime/Trial.h"
#include "tests/unit/runtime/cache/StoreProcess.h"
#include <atomic>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace cermet {
namespace {

namespace files = std::filesystem;

struct StoreTest : testing::Test {
  TestDirectory directory;
  Log log{LogLevel::Warn};
  Counters counters;
  Store::Sources sources{counters.kernelsCompiled, counters.kernelsFromMemory, counters.kernelsFromPacks,
                         counters.kernelsFromDirectory};

  Result<Store::Payload> ask(Store& store, const std::string& key, const std::string& payload) {
    return store.get(EntryKind::Kernel, key, sources, [&](Entry& entry) -> Status {
      entry.payload = payload;
      return {};
    });
  }
  std::string onlyFile() {
    for (const auto& item : files::directory_iterator(directory / "kernel"))
      return item.path().string();
    return "";
  }
};

TEST_F(StoreTest, AsksMemoryThenDirectoryThenMakes) {
  {
    Store store(directory.path(), log, counters);
    EXPECT_EQ(**ask(store, "k", "made"), "made");
    EXPECT_EQ(**ask(store, "k", "never"), "made");
  }
  Store another(directory.path(), log, counters);
  EXPECT_EQ(**ask(another, "k", "never"), "made");
  EXPECT_EQ(counters.kernelsCompiled, 1u);
  EXPECT_EQ(counters.kernelsFromMemory, 1u);
  EXPECT_EQ(counters.kernelsFromDirectory, 1u);
  EXPECT_EQ(counters.cacheFailures, 0u);
}

TEST_F(StoreTest, MakesAfreshWhenTold) {
  Store first(directory.path(), log, counters), second(directory.path(), log, counters, {.reads = false});
  EXPECT_EQ(**ask(first, "k", "made"), "made");
  EXPECT_EQ(**ask(second, "k", "made again"), "made again");
  Store third(directory.path(), log, counters);
  EXPECT_EQ(**ask(third, "k", "never"), "made again");
}

TEST_F(StoreTest, KindsDoNotMix) {
  Store store(directory.path(), log, counters);
  EXPECT_EQ(**ask(store, "k", "kernel"), "kernel");
  const auto plan = store.get(EntryKind::Plan, "k", sources, [](Entry& entry) -> Status {
    entry.payload = "plan";
    return {};
  });
  EXPECT_EQ(**plan, "plan");
}

TEST_F(StoreTest, MakesAKeyOnceForManyThreads) {
  Store store(directory.path(), log, counters);
  std::atomic<int> made{0}, wrong{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 16; ++thread)
    threads.emplace_back([&, thread] {
      for (int turn = 0; turn < 50; ++turn) {
        const std::string key = "key " + std::to_string((thread * 13 + turn) % 50);
        const auto got = store.get(EntryKind::Kernel, key, sources, [&](Entry& entry) -> Status {
          ++made;
          std::this_thread::yield();
          entry.payload = "payload of " + key;
          return {};
        });
        wrong += !got.ok() || **got != "payload of " + key;
      }
    });
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(made, 50);
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(counters.kernelsCompiled, 50u);
  EXPECT_EQ(counters.kernelsFromMemory, 16u * 50 - 50);
}

TEST_F(StoreTest, AFailureIsToldAndNotKept) {
  Store store(directory.path(), log, counters);
  const auto failed = store.get(EntryKind::Kernel, "k", sources,
                                [](Entry&) { return error(CERMET_COMPILE_FAILED, "no such register"); });
  EXPECT_EQ(failed.status().code(), CERMET_COMPILE_FAILED);
  EXPECT_EQ(failed.status().message(), "no such register");
  const auto thrown =
      store.get(EntryKind::Kernel, "k", sources, [](Entry&) -> Status { throw std::runtime_error("thrown"); });
  EXPECT_EQ(thrown.status().message(), "thrown");
  EXPECT_EQ(**ask(store, "k", "made"), "made");
  EXPECT_EQ(counters.kernelsCompiled, 1u);
}

TEST_F(StoreTest, ADamagedEntryIsAMissAndMovedAside) {
  {
    Store store(directory.path(), log, counters);
    ASSERT_TRUE(ask(store, "k", "made").ok());
  }
  const std::string file = onlyFile();
  std::string bytes = *readFile(file);
  bytes[bytes.size() / 2] ^= 1;
  std::ofstream(file, std::ios::binary) << bytes;
  testing::internal::CaptureStderr();
  {
    Store store(directory.path(), log, counters);
    EXPECT_EQ(**ask(store, "k", "again"), "again");
  }
  EXPECT_NE(testing::internal::GetCapturedStderr().find("its checksum is wrong (moved aside as .bad)"),
            std::string::npos);
  EXPECT_EQ(counters.cacheFailures, 1u);
  EXPECT_TRUE(files::exists(file + ".bad"));
  Store healed(directory.path(), log, counters);
  EXPECT_EQ(**ask(healed, "k", "never"), "again");
}

TEST_F(StoreTest, TheWholeKeyIsCompared) {
  {
    Store store(directory.path(), log, counters);
    ASSERT_TRUE(ask(store, "one key", "made").ok());
  }
  // As if both keys had one hash.
  files::rename(onlyFile(), directory / ("kernel/" + entryFileName("another key")));
  testing::internal::CaptureStderr();
  Store store(directory.path(), log, counters);
  EXPECT_EQ(**ask(store, "another key", "its own"), "its own");
  EXPECT_NE(testing::internal::GetCapturedStderr().find("is of another key"), std::string::npos);
  EXPECT_EQ(counters.cacheFailures, 1u);
}

TEST_F(StoreTest, NewDirectoriesAndFilesAreTheUsersOwn) {
  Store store(directory / "deep/er", log, counters);
  ASSERT_TRUE(ask(store, "k", "made").ok());
  for (const char* made : {"deep", "deep/er", "deep/er/kernel"}) {
    struct stat state;
    ASSERT_EQ(stat((directory / made).c_str(), &state), 0);
    EXPECT_EQ(state.st_mode & 0777, 0700u) << made;
  }
  for (const auto& item : files::directory_iterator(directory / "deep/er/kernel"))
    EXPECT_EQ(files::status(item).permissions(), files::perms::owner_read | files::perms::owner_write);
}

// A path that cannot be a directory, whoever asks.
TEST_F(StoreTest, AnUnwritablePlaceWarnsOnceAndWorksFromMemory) {
  std::ofstream(directory / "file") << "in the way";
  testing::internal::CaptureStderr();
  Store store(directory / "file", log, counters);
  EXPECT_EQ(**ask(store, "a", "made a"), "made a");
  EXPECT_EQ(**ask(store, "b", "made b"), "made b");
  EXPECT_EQ(**ask(store, "a", "never"), "made a");
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("cannot be made"), std::string::npos) << text;
  EXPECT_EQ(text.find("warning"), text.rfind("warning")) << text;
  EXPECT_EQ(counters.cacheFailures, 2u);
}

TEST_F(StoreTest, AFullDiskWarnsOnceAndWorksFromMemory) {
  if (access("/dev/full", W_OK) != 0)
    GTEST_SKIP() << "no /dev/full";
  // The directory is made to look full by a limit on the size of files.
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    rlimit limit{64, 64};
    setrlimit(RLIMIT_FSIZE, &limit);
    Log quiet(LogLevel::Off);
    Store store(directory.path(), quiet, counters);
    const bool right =
        **ask(store, "a", std::string(4096, 'a')) == std::string(4096, 'a') && counters.cacheFailures == 1;
    _exit(right ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(files::is_empty(directory / "kernel")); // no partial file is left
}

TEST_F(StoreTest, ADirectoryThatOthersCanWriteIsNotUsed) {
  files::create_directory(directory / "open");
  ASSERT_EQ(chmod((directory / "open").c_str(), 0777), 0);
  testing::internal::CaptureStderr();
  Store store(directory / "open", log, counters);
  EXPECT_EQ(**ask(store, "k", "made"), "made");
  EXPECT_NE(testing::internal::GetCapturedStderr().find("is not a directory that only this user can write"),
            std::string::npos);
}

TEST_F(StoreTest, WhatIsNotARegularFileIsAMiss) {
  files::create_directories(directory / "kernel");
  const std::string file = directory / ("kernel/" + entryFileName("k"));
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  testing::internal::CaptureStderr();
  Store store(directory.path(), log, counters);
  EXPECT_EQ(**ask(store, "k", "made"), "made");
  EXPECT_NE(testing::internal::GetCapturedStderr().find("not a regular file"), std::string::npos);
}

// What broken processes left, and what was moved aside, goes when it is old, with the first write after that.
TEST_F(StoreTest, WhatWasLeftLongAgoIsRemoved) {
  const std::string key(32, 'a');
  const auto leave = [&](const std::string& name, std::chrono::minutes age) {
    files::create_directories((directory / name).substr(0, (directory / name).rfind('/')));
    std::ofstream(directory / name) << "left";
    files::last_write_time(directory / name, files::file_time_type::clock::now() - age);
  };
  const std::chrono::hours day(24);
  const std::string gone[] = {"kernel/.tmp.1.0.1", "plan/.tmp.1.0.1", "gain/.tmp.abc", "match/" + key + ".entry.bad",
                              "plan/.tmp.3.0.1"};
  const std::string stays[] = {"kernel/.tmp.2.0.1", "gradient/" + key + ".entry.bad",
                               "kernel/notes.bad",  "gain/" + key + ".json",
                               ".tmp.elsewhere",    "plan/.tmp.2.0.1"};
  for (const std::string& name : gone)
    leave(name, name.ends_with(".bad") ? 8 * day : std::chrono::minutes(name.ends_with(".3.0.1") ? 1 : 90));
  for (const std::string& name : stays)
    leave(name, name == stays[0]   ? std::chrono::minutes(30)
                : name == stays[5] ? std::chrono::minutes(0)
                : name == stays[1] ? 6 * day
                                   : 99 * day);
  // Somebody writes the one still; nobody the other, which is new.
  FileLock writing(Folder::open(directory / "kernel", false)->openForLocks(".tmp.2.0.1"), 0);
  ASSERT_EQ(writing.tryTake(), FileLock::Answer::Taken);
  files::create_directory(directory / "kernel/.tmp.directory");
  files::last_write_time(directory / "kernel/.tmp.directory", files::file_time_type::clock::now() - day);
  Store store(directory.path(), log, counters);
  EXPECT_EQ(**ask(store, "k", "made"), "made");
  for (const std::string& name : gone)
    EXPECT_FALSE(files::exists(directory / name)) << name;
  for (const std::string& name : stays)
    EXPECT_TRUE(files::exists(directory / name)) << name;
  EXPECT_EQ(counters.cacheFailures, 0u);
}

TEST_F(StoreTest, WhatIsMovedAsideStaysForAWhile) {
  {
    Store store(directory.path(), log, counters);
    ASSERT_TRUE(ask(store, "k", "made").ok());
  }
  const std::string file = onlyFile();
  std::ofstream(file, std::ios::binary) << "damaged";
  files::last_write_time(file, files::file_time_type::clock::now() - std::chrono::hours(24 * 30)); // an old entry
  testing::internal::CaptureStderr();
  Store store(directory.path(), log, counters);
  EXPECT_EQ(**ask(store, "k", "again"), "again");
  testing::internal::GetCapturedStderr();
  EXPECT_TRUE(files::exists(file + ".bad"));
}

TEST_F(StoreTest, ClearingGoesOnWhereSomethingIsInTheWay) {
  {
    Store store(directory.path(), log, counters);
    for (const char* key : {"a", "b", "c"})
      ASSERT_TRUE(ask(store, key, "made").ok());
  }
  files::create_directory(directory / ("kernel/" + entryFileName("d")));
  files::create_symlink("/nowhere", directory / ("kernel/" + entryFileName("e")));
  std::ofstream(directory / "kernel/notes.txt") << "not ours";
  const auto cleared = clearDirectory(directory.path());
  ASSERT_TRUE(cleared.ok()) << cleared.status().message();
  EXPECT_EQ(cleared->files, 4u);
  ASSERT_EQ(cleared->problems.size(), 1u);
  EXPECT_NE(cleared->problems[0].find(entryFileName("d") + "': Is a directory"), std::string::npos);
  EXPECT_TRUE(files::exists(directory / "kernel/notes.txt"));
}

// Several that clear at once, beside one that writes: each removes what it can, and none minds that another was first.
TEST_F(StoreTest, ClearingBesideAnother) {
  for (int round = 0; round < 20; ++round) {
    {
      Store store(directory.path(), log, counters);
      for (int key = 0; key < 50; ++key)
        ASSERT_TRUE(ask(store, std::to_string(key), "made").ok());
    }
    std::atomic<size_t> removed{0}, failed{0};
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread)
      threads.emplace_back([&] {
        const auto cleared = clearDirectory(directory.path());
        failed += !cleared.ok() || !cleared->problems.empty();
        removed += cleared.ok() ? cleared->files : 0;
        failed += !listDirectory(directory.path()).ok();
      });
    for (std::thread& thread : threads)
      thread.join();
    EXPECT_EQ(removed, 50u);
    EXPECT_EQ(failed, 0u);
  }
}

TEST_F(StoreTest, NoDirectoryMeansMemoryOnly) {
  Store store("", log, counters);
  EXPECT_EQ(**ask(store, "k", "made"), "made");
  EXPECT_EQ(**ask(store, "k", "never"), "made");
  EXPECT_EQ(counters.cacheFailures, 0u);
}

TEST_F(StoreTest, ProcessesShareADirectory) {
  std::vector<StoreProcess> processes;
  for (int seed = 0; seed < 8; ++seed)
    processes.emplace_back(directory.path(), std::vector<std::string>{"keys=40"});
  for (StoreProcess& process : processes)
    EXPECT_EQ(process.wait(), 0);
  const auto stored = listDirectory(directory.path());
  ASSERT_TRUE(stored.ok());
  EXPECT_EQ(stored->size(), 40u);
  for (const StoredFile& file : *stored)
    EXPECT_EQ(file.problem, "") << file.path;
}

// Two at a time; every other time they also remove what is too much. What was damaged in the end.
static long damagedByKills(const std::string& directory, long kills, bool inPlace) {
  for (long round = 0; round < kills / 2; ++round) {
    const std::string bound = round % 2 == 0 ? "bound=0" : "bound=8000000",
                      place = fmt::format("inplace={}", static_cast<int>(inPlace));
    StoreProcess first(directory, {fmt::format("seed={}", 2 * round), bound, place});
    StoreProcess second(directory, {fmt::format("seed={}", 2 * round + 1), bound, place});
    const std::string kernels = directory + "/kernel";
    for (int turn = 0; turn < 5000 && (!files::exists(kernels) || files::is_empty(kernels)); ++turn)
      std::this_thread::sleep_for(std::chrono::milliseconds(1)); // until they are at it
    std::this_thread::sleep_for(std::chrono::milliseconds(5 + round % 20));
    first.send(SIGKILL);
    second.send(SIGKILL);
    EXPECT_EQ(first.wait(), -SIGKILL) << "a process met a wrong payload";
    EXPECT_EQ(second.wait(), -SIGKILL) << "a process met a wrong payload";
  }
  const auto stored = listDirectory(directory);
  EXPECT_TRUE(stored.ok());
  long whole = 0, damaged = 0;
  for (const StoredFile& file : *stored) {
    // A temporary file never got its name; one that was moved aside did.
    if (file.path.ends_with(".bad") || (!file.leftover && !file.problem.empty()))
      ++damaged;
    else if (!file.leftover)
      ++whole;
  }
  EXPECT_GT(whole, 0) << "nothing was stored, so nothing was tested";
  return damaged;
}

TEST_F(StoreTest, AKilledProcessLeavesNoDamage) {
  const long kills = wanted("TRIAL_KILLS", 120), damaged = damagedByKills(directory.path(), kills, false);
  TestDirectory another;
  const long control = damagedByKills(another.path(), 20, true);
  saw("kills", kills);
  saw("damaged", damaged);
  saw("damaged by the control", control);
  EXPECT_EQ(damaged, 0);
  EXPECT_GT(control, 0) << "the control, which writes in place";
}

} // namespace
} // namespace cermet
