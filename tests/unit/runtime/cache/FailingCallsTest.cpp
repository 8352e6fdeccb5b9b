// Any system call may fail, each of those that are made, once and from then on: what is asked for is right, nothing is
// left open or lying about, and one warning says it.
#include "tests/unit/runtime/FailingCalls.h"
#include "runtime/cache/Bound.h"
#include "runtime/cache/Layout.h"
#include "runtime/cache/Listing.h"
#include "runtime/cache/Store.h"
#include "tests/unit/runtime/Plans.h"
#include "tests/unit/runtime/TestDirectory.h"
#include "tests/unit/runtime/Trial.h"
#include "tests/unit/runtime/cache/SomeEntries.h"
#include "tests/unit/runtime/cache/StoredEntry.h"
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <sys/mman.h>
#include <unistd.h>

namespace cermet {
namespace {

namespace files = std::filesystem;
using Which = FailingCalls::Which;

// EINTR is first made again, from then on in vain.
constexpr int kErrors[] = {ENOSPC, EIO,    EINTR,  EACCES, EMFILE,    ENFILE,
                           EROFS,  EDQUOT, ENOMEM, ESTALE, ETIMEDOUT, ENOLCK};
constexpr uint64_t kSmallBound = 20'000; // two of the entries that are asked for

// What happens: `before`, with nothing failing, and then `run`, which says what is wrong, or "". Nothing failing it
// gives `warnings`. `cannotAlways` is of what has no way around a system that always fails: then it may say so, but not
// more.
struct Scene {
  const char* name;
  std::function<void(const std::string& place)> before;
  std::function<std::string(const std::string& place, Log& log, Counters& counters)> run;
  long warnings = 0;
  bool cannotAlways = false;
  bool compiles = false; // with libraries that repeat what is interrupted for ever
};
void PrintTo(const Scene& scene, std::ostream* out) {
  *out << scene.name;
}

std::string payloadOf(const std::string& key) {
  return key + std::string(8000, key.back());
}

// So many keys of a store of its own, from wherever they are.
std::string ask(const std::string& cache, Log& log, Counters& counters, int keys, StoreSettings settings = {}) {
  Store store(cache, log, counters, std::move(settings));
  for (int key = 0; key < keys; ++key) {
    const std::string name = CERMET_BUILD_ID "\nkey " + std::to_string(key);
    const auto got = store.get(EntryKind::Kernel, name,
                               {counters.kernelsCompiled, counters.kernelsFromMemory, counters.kernelsFromPacks,
                                counters.kernelsFromDirectory},
                               [&](Entry& entry) -> Status {
                                 entry.payload = payloadOf(name);
                                 return {};
                               });
    if (!got.ok() || **got != payloadOf(name))
      return got.ok() ? "another payload" : got.status().message();
  }
  return "";
}

void fill(const std::string& cache, int keys) {
  Log quiet(LogLevel::Off);
  Counters counters;
  EXPECT_EQ(ask(cache, quiet, counters, keys), "");
}

void age(const std::string& file) {
  files::last_write_time(file, files::file_time_type::clock::now() - std::chrono::hours(24 * 30));
}

Entry packed(int number) {
  const std::string key = CERMET_BUILD_ID "\nkey " + std::to_string(number);
  return {EntryKind::Kernel, key, payloadOf(key), 0, ""};
}

std::string packAndDirectory(const std::string& place, Log& log, Counters& counters) {
  auto packs = Packs::open(place + "/a.cpack");
  if (!packs.ok()) // a pack that was asked for is not left out in silence
    return packs.status().message().find(place) != std::string::npos ? "" : packs.status().message();
  return ask(place + "/cache", log, counters, 3, {.packs = *packs});
}

std::string writesPack(const std::string& place, Log&, Counters&) {
  PackWriter writer;
  for (int number = 0; number < 3; ++number)
    writer.add(packed(number));
  const auto written = writer.write(place + "/a.cpack");
  return written.ok() || written.status().message().find(place + "/a.cpack") != std::string::npos
             ? ""
             : written.status().message();
}

std::string listsAndRemoves(const std::string& place, Log&, Counters&) {
  (void)listDirectory(place + "/cache");
  if (const auto cache = Folder::open(place + "/cache", false); cache.ok())
    (void)trim(*cache, 10'000);
  (void)clearDirectory(place + "/cache");
  return "";
}

// From a plan to a launch on the host, whose kernel is loaded from what is cached.
std::string launches(const std::string& place, Log&, Counters&) {
  Config config = testConfig();
  config.cacheDirectory = place + "/cache";
  config.threads = config.compileThreads = 1;
  const auto context = std::make_shared<Context>(config);
  const auto plan = context->compile(scalePlan().dump(), "host");
  if (!plan.ok())
    return plan.status().message();
  const auto executable = Executable::prepare(context, *plan, 0);
  if (!executable.ok())
    return executable.status().message();
  std::vector<float> x(8, 2), weight(8, 3), y(8);
  const TestTensor given[] = {{x.data(), {1, 1, 8}}, {weight.data(), {8}}, {y.data(), {1, 1, 8}}};
  const cermet_tensor tensors[] = {given[0], given[1], given[2]};
  const Status launched = (*executable)->launch(nullptr, tensors, 3, nullptr, 0);
  return launched.ok() && y != std::vector<float>(8, 6) ? "another number" : launched.message();
}

const std::vector<Scene>& scenes() {
  static const std::vector<Scene> scenes{
      {"a new directory", [](const std::string&) {},
       [](const std::string& place, Log& log, Counters& counters) {
         return ask(place + "/deep/cache", log, counters, 3);
       }},
      {"a bound", [](const std::string& place) { fill(place + "/cache", 2); },
       [](const std::string& place, Log& log, Counters& counters) {
         return ask(place + "/cache", log, counters, 4, {.bound = kSmallBound});
       }},
      {"a warm directory",
       [](const std::string& place) {
         fill(place + "/cache", 3);
         for (const std::string& file : storedFiles(place + "/cache/kernel"))
           age(file); // so that it is marked as used
       },
       [](const std::string& place, Log& log, Counters& counters) { return ask(place + "/cache", log, counters, 3); }},
      {"damage",
       [](const std::string& place) {
         fill(place + "/cache", 1);
         std::ofstream(storedFiles(place + "/cache/kernel").at(0)) << "damaged";
       },
       [](const std::string& place, Log& log, Counters& counters) { return ask(place + "/cache", log, counters, 1); },
       1},
      {"leftovers",
       [](const std::string& place) {
         fill(place + "/cache", 1);
         for (const char* name : {"/cache/kernel/.tmp.1", "/cache/kernel/b.entry.bad"}) {
           std::ofstream(place + name) << "left";
           age(place + name);
         }
       },
       [](const std::string& place, Log& log, Counters& counters) { return ask(place + "/cache", log, counters, 2); }},
      {"a pack",
       [](const std::string& place) {
         writePack(place + "/a.cpack", {packed(0), packed(1)});
       },
       packAndDirectory},
      {"a written pack", [](const std::string& place) { writePack(place + "/a.cpack", {packed(0)}); }, writesPack},
      {"the tool", [](const std::string& place) { fill(place + "/cache", 3); }, listsAndRemoves},
      {"a launch",
       [](const std::string& place) {
         Log quiet(LogLevel::Off);
         Counters counters;
         EXPECT_EQ(launches(place, quiet, counters), "");
       },
       launches, 0, true, true}};
  return scenes;
}

// What is written to stderr meanwhile.
class Captured {
public:
  Captured() : before_(dup(STDERR_FILENO)), file_(memfd_create("stderr", MFD_CLOEXEC)) { dup2(file_, STDERR_FILENO); }
  ~Captured() {
    dup2(before_, STDERR_FILENO);
    close(before_);
    close(file_);
  }
  // Since the last time.
  std::string text() const {
    std::string text(static_cast<size_t>(lseek(file_, 0, SEEK_END)), '\0');
    const ssize_t read = pread(file_, text.data(), text.size(), 0);
    text.resize(read < 0 ? 0 : static_cast<size_t>(read));
    (void)!ftruncate(file_, 0);
    lseek(file_, 0, SEEK_SET);
    return text;
  }

private:
  const int before_, file_;
};

size_t openFiles() {
  return static_cast<size_t>(std::distance(files::directory_iterator("/proc/self/fd"), files::directory_iterator()));
}

size_t temporaries(const std::string& place) {
  size_t count = 0;
  for (const auto& item : files::recursive_directory_iterator(place))
    if (const std::string name = item.path().filename(); name.find(".tmp.") != name.npos && name != ".tmp.1")
      ++count;
  return count;
}

struct FailingCallsTest : testing::TestWithParam<Scene> {
  TestDirectory directory;
  Captured captured;
  long runs = 0, wrong = 0, leaks = 0, warnings = 0;
  std::map<std::string, std::string> said; // of each kind of mistake the first

  void mistake(long& count, const char* kind, const std::string& what) {
    ++count;
    said.try_emplace(kind, what);
  }
  // How many calls were made.
  long once(const Scene& scene, Which which, long nth, int error) {
    const std::string place = directory / "place";
    files::remove_all(place);
    files::create_directory(place);
    {
      const FailingCalls counted(Which::None, 0, 0);
      scene.before(place);
    }
    (void)captured.text();
    const size_t open = openFiles();
    Log log(LogLevel::Warn);
    Counters counters;
    std::string problem;
    {
      const FailingCalls failing(which, nth, error);
      problem = scene.run(place, log, counters);
    }
    const long made = FailingCalls::made();
    const std::string text = captured.text();
    const std::string where =
        fmt::format("{}, call {} of mode {}, {}", scene.name, nth, static_cast<int>(which), std::strerror(error));
    ++runs;
    if (!problem.empty() && !(scene.cannotAlways && (which == Which::All || which == Which::Writes)))
      mistake(wrong, "wrong", where + ": " + problem);
    if (openFiles() != open)
      mistake(leaks, "descriptors", fmt::format("{}: {} open files more", where, openFiles() - open));
    if (which != Which::All && temporaries(place) != 0)
      mistake(leaks, "temporaries", where + ": a temporary file is left");
    const long lines = std::count(text.begin(), text.end(), '\n'),
               most = scene.warnings + (which == Which::All ? 2 : 1);
    if (lines > most || (counters.cacheFailures > 0 && lines == 0))
      mistake(warnings, "warnings", fmt::format("{}: {} warnings: {}", where, lines, text));
    if (which == Which::Short && lines != scene.warnings)
      mistake(warnings, "short", where + ": " + text);
    return made;
  }
};

TEST_P(FailingCallsTest, NothingIsWrongOrLeft) {
  const Scene& scene = GetParam();
  const long calls = once(scene, Which::None, 0, 0), errors = wanted("TRIAL_ERRORS", 3);
  once(scene, Which::Short, 0, 0);
  for (long number = 0; number < errors; ++number)
    for (Which which : {Which::One, Which::All, Which::Writes, Which::Locks})
      for (long nth = 1; nth <= calls && (which == Which::One || kErrors[number] != EINTR || !scene.compiles); ++nth)
        once(scene, which, nth, kErrors[number]);
  saw("calls", calls);
  saw("runs", runs);
  saw("failed compiles", wrong);
  saw("leaks", leaks);
  saw("too many or no warnings", warnings);
  std::string mistakes;
  for (const auto& [kind, what] : said)
    mistakes += kind + ": " + what + "\n";
  EXPECT_GT(calls, 4) << "nothing was tested";
  EXPECT_EQ(wrong + leaks + warnings, 0) << mistakes;
}

INSTANTIATE_TEST_SUITE_P(Scenes, FailingCallsTest, testing::ValuesIn(scenes()), [](const auto& scene) {
  std::string name = scene.param.name;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
});

} // namespace
} // namespace cermet
