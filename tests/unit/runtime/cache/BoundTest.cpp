// A cache directory's bound: it holds while many write, what was used longest ago goes, and no load fails of it.
#include "runtime/cache/Bound.h"
#include "runtime/cache/Listing.h"
#include "runtime/cache/Store.h"
#include "tests/unit/runtime/TestDirectory.h"
#include "tests/unit/runtime/Trial.h"
#include "tests/unit/runtime/cache/StoreProcess.h"
#include <algorithm>
#include <fstream>
#include <gtest/gtest.h>
#include <thread>

namespace cermet {
namespace {

namespace files = std::filesystem;
using namespace std::chrono_literals;

struct BoundTest : testing::Test {
  TestDirectory directory;
  Log log{LogLevel::Warn};
  Counters counters;
  const std::string cache = directory / "cache";

  std::string ask(const std::string& key, uint64_t bound, const std::string& payload = std::string(10'000, 'x')) {
    Store store(cache, log, counters, {.bound = bound});
    return std::string(**store.get(EntryKind::Kernel, key,
                                   {counters.kernelsCompiled, counters.kernelsFromMemory, counters.kernelsFromPacks,
                                    counters.kernelsFromDirectory},
                                   [&](Entry& entry) -> Status {
                                     entry.payload = payload;
                                     return {};
                                   }));
  }
  std::string file(const std::string& key) const { return cache + "/kernel/" + entryFileName(key); }
  void age(const std::string& path, std::chrono::hours hours) const {
    files::last_write_time(path, files::file_time_type::clock::now() - hours);
  }
  // What the directory holds, while others write and remove.
  uint64_t bytes() const {
    uint64_t sum = 0;
    if (const Result<Folder> folder = Folder::open(cache + "/kernel", false); folder.ok())
      for (const Folder::Item& item : folder->list())
        sum += static_cast<uint64_t>(item.state.st_size);
    return sum;
  }
};

TEST_F(BoundTest, WhatWasUsedLongestAgoGoes) {
  for (int key = 0; key < 9; ++key) {
    ask(std::to_string(key), 0);
    age(file(std::to_string(key)), std::chrono::hours(9 - key));
  }
  ask("0", 0); // used again: it is the newest by now
  EXPECT_EQ(counters.kernelsFromDirectory, 1u);
  ask("new", 100'000);
  EXPECT_TRUE(files::exists(file("new")));
  EXPECT_TRUE(files::exists(file("0")));
  for (int key = 1; key < 9; ++key)
    EXPECT_EQ(files::exists(file(std::to_string(key))), key > 2) << key;
  EXPECT_LE(bytes(), 90'000u);
  EXPECT_EQ(counters.cacheRemovals, 2u);
  EXPECT_EQ(ask("1", 100'000), std::string(10'000, 'x')) << "what went is made again";
  EXPECT_EQ(counters.cacheFailures, 0u);
}

TEST_F(BoundTest, NoBoundIsNone) {
  for (int key = 0; key < 30; ++key)
    ask(std::to_string(key), 0);
  EXPECT_GT(bytes(), 300'000u);
  EXPECT_EQ(counters.cacheRemovals, 0u);
}

TEST_F(BoundTest, WhatIsLargerThanTheBoundStaysInMemory) {
  ask("small", 20'000);
  testing::internal::CaptureStderr();
  EXPECT_EQ(ask("large", 20'000, std::string(30'000, 'y')), std::string(30'000, 'y'));
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("cannot take an entry of "), std::string::npos) << text;
  EXPECT_NE(text.find("within its bound (CERMET_CACHE_BYTES)"), std::string::npos) << text;
  EXPECT_TRUE(files::exists(file("small"))) << "nothing goes for it";
}

TEST_F(BoundTest, EverythingOfOursCountsAndMayGo) {
  files::create_directories(cache + "/gain");
  files::create_directories(cache + "/kernel");
  const std::string aside = cache + "/kernel/" + std::string(32, 'a') + ".entry.bad", timing = cache + "/gain/1.json",
                    notes = cache + "/kernel/notes.txt";
  for (const std::string& path : {aside, timing, notes}) {
    std::ofstream(path) << std::string(30'000, 'z');
    age(path, 2h);
  }
  ask("new", 40'000);
  EXPECT_FALSE(files::exists(aside));
  EXPECT_FALSE(files::exists(timing));
  EXPECT_TRUE(files::exists(notes)) << "not ours";
}

TEST_F(BoundTest, TrimmingSaysWhatItDid) {
  for (int key = 0; key < 10; ++key)
    ask(std::to_string(key), 0);
  const uint64_t before = bytes();
  const Removed removed = trim(*Folder::open(cache, false), 35'000);
  EXPECT_EQ(removed.files, 7u);
  EXPECT_EQ(removed.left, bytes());
  EXPECT_EQ(removed.bytes + removed.left, before);
  EXPECT_EQ(trim(*Folder::open(cache, false), 35'000).files, 0u);
}

TEST_F(BoundTest, HoldsWhileManyWrite) {
  constexpr uint64_t kBound = 16 << 20; // of 35 MB that are asked for
  std::vector<StoreProcess> processes;
  for (int seed = 0; seed < 16; ++seed)
    processes.emplace_back(cache, std::vector<std::string>{fmt::format("seed={}", seed),
                                                           fmt::format("asks={}", wanted("TRIAL_ASKS", 300)),
                                                           fmt::format("bound={}", kBound)});
  uint64_t most = 0;
  while (!std::all_of(processes.begin(), processes.end(), [](StoreProcess& process) { return process.isDone(); })) {
    most = std::max(most, bytes());
    std::this_thread::sleep_for(2ms);
  }
  long removals = 0;
  for (StoreProcess& process : processes) {
    EXPECT_EQ(process.wait(), 0);
    const StoreProcess::Counts counts = process.counts();
    EXPECT_EQ(counts.failures, 0);
    removals += counts.removals;
  }
  saw("removals", removals);
  saw("most of the bound", static_cast<double>(most) / kBound);
  EXPECT_GT(removals, 100);
  EXPECT_LE(most, kBound * 105 / 100);
  EXPECT_GT(most, kBound * 8 / 10) << "it was never full, so nothing was tested";
}

// Somebody removes everything, or the directory itself, again and again.
TEST_F(BoundTest, WipesFailNoLoad) {
  const long least = wanted("TRIAL_WIPES", 20);
  long wipes = 0, loads = 0;
  for (int seed = 0; wipes < least;) {
    std::vector<StoreProcess> processes;
    for (const int last = seed + 16; seed < last; ++seed, loads += 150)
      processes.emplace_back(cache,
                             std::vector<std::string>{fmt::format("seed={}", seed), "asks=150", "bound=4000000"});
    while (!std::all_of(processes.begin(), processes.end(), [](StoreProcess& process) { return process.isDone(); })) {
      std::error_code ignored;
      if (++wipes % 2 == 0)
        files::remove_all(cache, ignored);
      else
        (void)clearDirectory(cache);
      std::this_thread::sleep_for(1ms);
    }
    for (StoreProcess& process : processes) // what cannot be kept between two wipes is used from memory
      ASSERT_EQ(process.wait(), 0) << "a process met a wrong payload";
  }
  saw("wipes", wipes);
  saw("loads", loads);
}

} // namespace
} // namespace cermet
