// Configuration: every variable is documented and honoured, and nonsense is refused by name.
#include "runtime/context/Config.h"
#include "runtime/context/Context.h"
#include "runtime/support/File.h"
#include <filesystem>
#include <gtest/gtest.h>
#include <map>

namespace cermet {
namespace {

Result<Config> readFrom(std::map<std::string, std::string> variables) {
  return Config::read([variables = std::move(variables)](const char* variable) -> const char* {
    const auto found = variables.find(variable);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(Config, DocumentationIsTheCode) {
  const Result<std::string> text = readFile(SOURCE_DIR "/docs/environment.md");
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_NE(text->find(settingsTable()), std::string::npos) << "docs/environment.md should contain:\n"
                                                            << settingsTable();
}

TEST(Config, DefaultsNeedNoEnvironment) {
  const Result<Config> config = readFrom({});
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->cacheDirectory, "");
  EXPECT_EQ(config->cacheBytes, uint64_t(2) << 30);
  EXPECT_EQ(config->cudaLibrary, "libcuda.so.1");
  EXPECT_GE(config->threads, 1);
  EXPECT_LE(config->threads, 16);
  EXPECT_GE(config->compileThreads, 1);
  EXPECT_FALSE(config->check);
}

TEST(Config, CacheDirectoryFollowsTheUsersFolders) {
  EXPECT_EQ(readFrom({{"HOME", "/home/u"}})->cacheDirectory, "/home/u/.cache/cermet");
  EXPECT_EQ(readFrom({{"HOME", "/home/u"}, {"XDG_CACHE_HOME", "/x"}})->cacheDirectory, "/x/cermet");
  EXPECT_EQ(readFrom({{"HOME", "/home/u"}, {"CERMET_CACHE_DIR", "/c"}})->cacheDirectory, "/c");
  EXPECT_EQ(readFrom({{"HOME", "/home/u"}, {"CERMET_CACHE_DIR", ""}})->cacheDirectory, "");
  EXPECT_EQ(readFrom({{"HOME", "/home/u"}, {"XDG_CACHE_HOME", "relative"}})->cacheDirectory, "/home/u/.cache/cermet");
}

// Nobody switched the directory off: this is said, once, with what to set.
TEST(Config, NoPlaceForTheCacheIsSaid) {
  using Variables = std::map<std::string, std::string>;
  for (const Variables& variables : {Variables{}, {{"HOME", ""}}, {{"HOME", "here"}, {"XDG_CACHE_HOME", "there"}}}) {
    Config config = *readFrom(variables);
    EXPECT_EQ(config.cacheDirectory, "");
    testing::internal::CaptureStderr();
    const Context context(config);
    const std::string text = testing::internal::GetCapturedStderr();
    EXPECT_NE(text.find("Set CERMET_CACHE_DIR to a directory, or to nothing"), std::string::npos) << text;
  }
  for (const Variables& variables : {Variables{{"CERMET_CACHE_DIR", ""}}, {{"HOME", "/home/u"}}}) {
    testing::internal::CaptureStderr();
    const Context context(*readFrom(variables));
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  }
}

TEST(Config, ARelativeDirectoryIsOneOfTheStart) {
  Config config;
  config.cacheDirectory = "some/where";
  EXPECT_EQ(Context(config).config().cacheDirectory, std::filesystem::current_path().string() + "/some/where");
}

TEST(Config, EveryVariableIsHonoured) {
  const Result<Config> config = readFrom({{"CERMET_CACHE_DIR", "a"},
                                          {"CERMET_CACHE_BYTES", "12345678901"},
                                          {"CERMET_PACKS", "f:g"},
                                          {"CERMET_CACHE", "only"},
                                          {"CERMET_NVRTC", "b"},
                                          {"CERMET_DUMP", "c"},
                                          {"CERMET_COMPILER_LIBRARY", "d"},
                                          {"CERMET_CUDA_LIBRARY", "e"},
                                          {"CERMET_THREADS", "7"},
                                          {"CERMET_COMPILE_THREADS", "3"},
                                          {"CERMET_CHECK", "1"},
                                          {"CERMET_NVTX", "1"},
                                          {"CERMET_LOG", "info"}});
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->cacheDirectory, "a");
  EXPECT_EQ(config->cacheBytes, 12345678901u);
  EXPECT_EQ(config->packs, "f:g");
  EXPECT_TRUE(config->cacheOnly);
  EXPECT_EQ(config->nvrtcLibrary, "b");
  EXPECT_EQ(config->dumpDirectory, "c");
  EXPECT_EQ(config->compilerLibrary, "d");
  EXPECT_EQ(config->cudaLibrary, "e");
  EXPECT_EQ(config->threads, 7);
  EXPECT_EQ(config->compileThreads, 3);
  EXPECT_TRUE(config->check);
  EXPECT_TRUE(config->nvtx);
  EXPECT_EQ(config->log, LogLevel::Info);
  EXPECT_EQ(settings().size(), 13u) << "a new variable needs a line above";
}

TEST(Config, NonsenseIsRefusedByName) {
  for (const char* threads : {"0", "-1", "1025", "two", "2x", "", "99999999999999999999"})
    EXPECT_EQ(readFrom({{"CERMET_THREADS", threads}}).status().message(),
              fmt::format("CERMET_THREADS is '{}', expected a number from 1 to 1024", threads));
  EXPECT_EQ(readFrom({{"CERMET_COMPILE_THREADS", "0"}}).status().message(),
            "CERMET_COMPILE_THREADS is '0', expected a number from 1 to 1024");
  for (const char* bytes : {"-1", "2G", "", "18446744073709551616"})
    EXPECT_EQ(readFrom({{"CERMET_CACHE_BYTES", bytes}}).status().message(),
              fmt::format("CERMET_CACHE_BYTES is '{}', expected a whole number; 0 for no bound", bytes));
  EXPECT_EQ(readFrom({{"CERMET_CACHE", "off"}}).status().message(), "CERMET_CACHE is 'off', expected on or only");
  EXPECT_EQ(readFrom({{"CERMET_CHECK", "yes"}}).status().message(), "CERMET_CHECK is 'yes', expected 0 or 1");
  EXPECT_EQ(readFrom({{"CERMET_LOG", "loud"}}).status().message(), "CERMET_LOG is 'loud', expected off, warn or info");
}

TEST(Log, WarnsOncePerKindAndNotAtAllWhenOff) {
  testing::internal::CaptureStderr();
  Log log(LogLevel::Warn), off(LogLevel::Off);
  log.warnOnce("a", "first");
  log.warnOnce("a", "second");
  log.warnOnce("b", "third");
  log.info("no");
  off.warnOnce("a", "no");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "cermet: warning: first\ncermet: warning: third\n");
}

} // namespace
} // namespace cermet
