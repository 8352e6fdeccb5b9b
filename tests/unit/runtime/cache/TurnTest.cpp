// Of the processes that miss an entry at one time one makes it and the others wait: not for ever, not for one that is
// gone, and not where there are no locks.
#include "runtime/cache/Listing.h"
#include "runtime/cache/Store.h"
#include "tests/unit/runtime/TestDirectory.h"
#include "tests/unit/runtime/Trial.h"
#include "tests/unit/runtime/cache/StoreProcess.h"
#include <atomic>
#include <fstream>
#include <future>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <thread>

namespace cermet {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// How long this process waits for others, until the end of a block.
struct Patience {
  explicit Patience(std::chrono::milliseconds time) : before(makerPatience.exchange(time)) {}
  ~Patience() { makerPatience = before; }
  const std::chrono::milliseconds before;
};

struct Turn : testing::Test {
  TestDirectory directory;
  Log log{LogLevel::Warn};
  Counters counters;
  const std::string cache = directory / "cache";

  Result<Store::Payload> ask(Store& store, const std::string& payload, std::chrono::milliseconds takes = 0ms,
                             const std::function<void()>& begin = {}) {
    return store.get(EntryKind::Kernel, "key 0",
                     {counters.kernelsCompiled, counters.kernelsFromMemory, counters.kernelsFromPacks,
                      counters.kernelsFromDirectory},
                     [&](Entry& entry) -> Status {
                       if (begin)
                         begin();
                       std::this_thread::sleep_for(takes);
                       entry.payload = payload;
                       return {};
                     });
  }
  std::string asked(const std::string& payload) {
    Store store(cache, log, counters);
    return std::string(**ask(store, payload));
  }
  // The lock of "key 0", until it is let go of.
  FileLock held() {
    Directory here(cache, log, counters);
    return std::move(*here.turn(EntryKind::Kernel, "key 0", [](const Entry&) { return true; }).lock);
  }
  bool isHeld() {
    const Patience none(0ms);
    Log quiet(LogLevel::Off);
    Directory here(cache, quiet, counters);
    return !here.turn(EntryKind::Kernel, "key 0", [](const Entry&) { return true; }).lock;
  }
  static void until(const std::function<bool()>& holds) {
    for (const auto deadline = Clock::now() + 20s; !holds() && Clock::now() < deadline;)
      std::this_thread::sleep_for(1ms);
  }
};

// So many processes that start together over a directory which nobody has used.
struct Together {
  long made = 0, waits = 0, failures = 0;
  double seconds = 0;
};
static Together startTogether(const std::string& cache, long processes, const std::vector<std::string>& options) {
  const auto began = Clock::now();
  std::vector<StoreProcess> all;
  for (long process = 0; process < processes; ++process)
    all.emplace_back(cache, options);
  Together together;
  for (StoreProcess& process : all) {
    EXPECT_EQ(process.wait(), 0);
    const StoreProcess::Counts counts = process.counts();
    together.failures += counts.failures;
    together.made += counts.made;
    together.waits += counts.waits;
  }
  together.seconds = std::chrono::duration<double>(Clock::now() - began).count();
  return together;
}

TEST_F(Turn, ProcessesThatStartTogetherMakeEachKeyOnce) {
  const long processes = wanted("TRIAL_PROCESSES", 16), keys = wanted("TRIAL_KEYS", 40);
  const std::vector<std::string> options{fmt::format("keys={}", keys),
                                         fmt::format("make={}", wanted("TRIAL_MILLISECONDS", 5))};
  const Together one = startTogether(directory / "one", 1, options), all = startTogether(cache, processes, options);
  saw("processes", processes);
  saw("keys", keys);
  saw("made", all.made);
  saw("failures", all.failures);
  saw("waits", all.waits);
  saw("times the seconds of one", all.seconds / one.seconds);
  EXPECT_EQ(all.made, keys);
  EXPECT_EQ(all.failures, 0);
  EXPECT_GT(all.waits, 0) << "nobody waited, so nothing was tested";
}

TEST_F(Turn, WithoutLocksEachMakesItsOwn) {
  const long processes = wanted("TRIAL_PROCESSES", 8), keys = wanted("TRIAL_KEYS", 20);
  const Together all = startTogether(
      cache, processes,
      {fmt::format("keys={}", keys), "locks=0", fmt::format("make={}", wanted("TRIAL_MILLISECONDS", 20))});
  saw("processes", processes);
  saw("keys", keys);
  saw("made", all.made);
  saw("failures", all.failures);
  EXPECT_EQ(all.failures, 0);
  EXPECT_EQ(all.waits, 0);
  EXPECT_GT(all.made, keys) << "the control: without locks some are made more than once";
  const auto stored = listDirectory(cache);
  ASSERT_TRUE(stored.ok());
  EXPECT_EQ(stored->size(), static_cast<size_t>(keys));
  for (const StoredFile& file : *stored)
    EXPECT_EQ(file.problem, "") << file.path;
}

TEST_F(Turn, StoresOfOneProcessMakeItOnce) {
  std::vector<std::thread> threads;
  std::atomic<int> made{0}, wrong{0};
  for (int thread = 0; thread < 8; ++thread)
    threads.emplace_back([&] {
      Store store(cache, log, counters);
      const auto got = ask(store, "made", 20ms, [&] { ++made; });
      wrong += !got.ok() || **got != "made";
    });
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(made, 1);
  EXPECT_EQ(wrong, 0);
}

TEST_F(Turn, AKilledMakerIsFollowedWithinASecond) {
  const long holders = wanted("TRIAL_HOLDERS", 20);
  double slowest = 0;
  for (long round = 0; round < holders; ++round) {
    std::filesystem::remove_all(cache);
    StoreProcess maker(cache, {"keys=1", "make=60000"});
    until([&] { return isHeld(); });
    const uint64_t before = counters.cacheWaits;
    auto next = std::async(std::launch::async, [&] { return asked("made"); });
    until([&] { return counters.cacheWaits > before; });
    EXPECT_EQ(next.wait_for(50ms), std::future_status::timeout) << "it waits";
    const auto killed = Clock::now();
    maker.send(SIGKILL);
    EXPECT_EQ(next.get(), "made");
    slowest = std::max(slowest, std::chrono::duration<double>(Clock::now() - killed).count());
  }
  saw("holders killed", holders);
  saw("slowest next, seconds", slowest);
  EXPECT_LT(slowest, 1);
  EXPECT_EQ(counters.cacheFailures, 0u);
  EXPECT_GT(counters.cacheWaitMicroseconds, static_cast<uint64_t>(holders) * 50'000);
}

// A worker that was forked while its parent made something lives on.
TEST_F(Turn, AChildOfAKilledMakerHoldsNothing) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t maker = fork();
  if (maker == 0) {
    std::promise<void> making;
    std::thread thread([&] {
      Store store(cache, log, counters);
      (void)ask(store, "never", 60'000ms, [&] { making.set_value(); });
    });
    making.get_future().wait();
    const pid_t worker = fork();
    if (worker == 0) {
      sleep(60);
      _exit(0);
    }
    if (write(ends[1], &worker, sizeof(worker)) < 0)
      _exit(1);
    thread.join();
    _exit(0);
  }
  pid_t worker = -1;
  ASSERT_EQ(read(ends[0], &worker, sizeof(worker)), static_cast<ssize_t>(sizeof(worker)));
  kill(maker, SIGKILL);
  waitpid(maker, nullptr, 0);
  const auto killed = Clock::now();
  EXPECT_EQ(kill(worker, 0), 0);
  EXPECT_EQ(asked("made"), "made");
  EXPECT_LT(Clock::now() - killed, 1s);
  kill(worker, SIGKILL);
  close(ends[0]);
  close(ends[1]);
}

TEST_F(Turn, AMakerThatDoesNotEndIsWaitedForAWhile) {
  const FileLock lock = held();
  const Patience patience(200ms);
  testing::internal::CaptureStderr();
  const auto began = Clock::now();
  EXPECT_EQ(asked("made"), "made");
  EXPECT_GE(Clock::now() - began, 200ms);
  EXPECT_LT(Clock::now() - began, 10s);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("it is made here too"), std::string::npos);
  EXPECT_EQ(counters.cacheFailures, 0u);
  EXPECT_EQ(asked("never"), "made") << "and kept";
}

TEST_F(Turn, AMakerThatFailsLeavesItToTheNext) {
  std::promise<void> making;
  auto first = std::async(std::launch::async, [&] {
    Store store(cache, log, counters);
    return store
        .get(EntryKind::Kernel, "key 0",
             {counters.kernelsCompiled, counters.kernelsFromMemory, counters.kernelsFromPacks,
              counters.kernelsFromDirectory},
             [&](Entry&) -> Status {
               making.set_value();
               std::this_thread::sleep_for(50ms);
               return error(CERMET_COMPILE_FAILED, "no such register");
             })
        .status()
        .message();
  });
  making.get_future().wait();
  EXPECT_EQ(asked("made"), "made");
  EXPECT_EQ(first.get(), "no such register");
}

// Where nothing can be written, nobody waits for what nobody will find.
TEST_F(Turn, NobodyWaitsWhereNothingCanBeWritten) {
  std::filesystem::create_directories(cache);
  std::filesystem::permissions(cache, std::filesystem::perms::owner_all);
  std::ofstream(cache + "/kernel") << "in the way";
  const FileLock lock = held();
  const Patience patience(300ms);
  testing::internal::CaptureStderr();
  Store store(cache, log, counters);
  EXPECT_EQ(**ask(store, "made"), "made"); // waits, and cannot write
  const auto began = Clock::now();
  const auto got = store.get(
      EntryKind::Kernel, "key 0 of another name",
      {counters.kernelsCompiled, counters.kernelsFromMemory, counters.kernelsFromPacks, counters.kernelsFromDirectory},
      [](Entry& entry) -> Status {
        entry.payload = "made";
        return {};
      });
  EXPECT_TRUE(got.ok());
  EXPECT_LT(Clock::now() - began, 200ms);
  testing::internal::GetCapturedStderr();
}

} // namespace
} // namespace cermet
