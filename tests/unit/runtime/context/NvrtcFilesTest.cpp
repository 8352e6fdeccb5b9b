// Which NVRTC a process would use, from names of files; and that a kernel of one version does not serve another.
#include "runtime/cache/Listing.h"
#include "runtime/context/NvrtcFiles.h"
#include "runtime/support/File.h"
#include "tests/unit/runtime/CommandOutput.h"
#include "tests/unit/runtime/Plans.h"
#include "tests/unit/runtime/TestDirectory.h"
#include <fstream>
#include <gtest/gtest.h>

namespace cermet {
namespace {

namespace files = std::filesystem;

struct NvrtcFiles : testing::Test {
  TestDirectory directory;

  // A directory that holds files of these names, which nobody could open.
  std::string with(const std::string& folder, const std::vector<std::string>& names) {
    files::create_directories(directory / folder);
    for (const std::string& name : names)
      std::ofstream(directory / (folder + "/" + name)) << "no library";
    return directory / folder;
  }
};

TEST_F(NvrtcFiles, TheVersionIsInTheNames) {
  const std::string wheel = with(
      "wheel", {"libnvrtc.so.13", "libnvrtc.alt.so.13", "libnvrtc-builtins.so.13.0", "libnvrtc-builtins.alt.so.13.0"});
  EXPECT_EQ(nvrtcVersionByName(wheel), 13000);
  EXPECT_EQ(nvrtcVersionByName(wheel + "/libnvrtc.so.13"), 13000);
  EXPECT_EQ(nvrtcVersionByName("/nowhere:" + wheel), 13000);
  const std::string toolkit = with("toolkit", {"libnvrtc.so.12.4.127", "libnvrtc-builtins.so.12.4"});
  files::create_symlink("libnvrtc.so.12.4.127", toolkit + "/libnvrtc.so.12");
  EXPECT_EQ(nvrtcVersionByName(toolkit), 12040);
  // Both lie in one directory: the first that would be opened, and its own built-ins.
  EXPECT_EQ(nvrtcVersionByName(with("both", {"libnvrtc.so.12", "libnvrtc-builtins.so.12.8", "libnvrtc.so.13",
                                             "libnvrtc-builtins.so.13.1"})),
            13010);
  EXPECT_EQ(nvrtcVersionByName(directory / "both/libnvrtc.so.12"), 12080);
}

TEST_F(NvrtcFiles, WhatTheNamesDoNotSayIsNotGuessed) {
  EXPECT_EQ(nvrtcVersionByName(with("none", {})), 0);
  EXPECT_EQ(nvrtcVersionByName("/nowhere/libnvrtc.so.13"), 0);
  EXPECT_EQ(nvrtcVersionByName(with("alone", {"libnvrtc.so.13"})), 0);
  const std::string two = with("two", {"libnvrtc.so.13", "libnvrtc-builtins.so.13.0", "libnvrtc-builtins.so.13.1"});
  EXPECT_EQ(nvrtcVersionByName(two), 0);
  EXPECT_EQ(nvrtcVersionByName(with("odd", {"libnvrtc.so.13", "libnvrtc-builtins.so.", "libnvrtc-builtins.so.13.x",
                                            "libnvrtc-builtins.so.99999999999.1"})),
            0);
}

TEST_F(NvrtcFiles, ANameIsFoundWhereTheLoaderWould) {
  const std::string known = with("known", {"libnvrtc.so.13"});
  files::copy_file(FAKE_KERNELS, known + "/libcermet-search-test.so.1");
  if (runCommand("ldconfig --version").code != 0 && runCommand("/sbin/ldconfig --version").code != 0)
    GTEST_SKIP() << "no ldconfig";
  std::ofstream(directory / "conf") << known << "\n";
  const CommandOutput made =
      runCommand("PATH=$PATH:/sbin:/usr/sbin ldconfig -X -f " + (directory / "conf") + " -C " + (directory / "cache"));
  ASSERT_EQ(made.code, 0) << made.text;
  const CommandOutput listed = runCommand("PATH=$PATH:/sbin:/usr/sbin ldconfig -p -C " + (directory / "cache"));
  const size_t line = listed.text.find("fake_kernels"); // its soname, which the cache lists it by
  const std::string name = line == std::string::npos ? "libcermet-search-test.so.1" : "libfake_kernels.so";
  EXPECT_EQ(fileOfLibrary(name, directory / "cache"), known + "/libcermet-search-test.so.1") << listed.text;
  EXPECT_EQ(fileOfLibrary("libno-such-library.so.1", directory / "cache"), "");
  std::string bytes = *readFile(directory / "cache");
  for (size_t size = 0; size < bytes.size(); size += bytes.size() / 200 + 1) { // no truncation is read past
    std::ofstream(directory / "cut", std::ios::binary) << bytes.substr(0, size);
    const std::string found = fileOfLibrary(name, directory / "cut");
    EXPECT_TRUE(found.empty() || found == known + "/libcermet-search-test.so.1") << found;
  }
  // A directory that the loader searches comes first; libc lies in one of those that it always does.
  EXPECT_EQ(files::path(fileOfLibrary("libc.so.6")).filename(), "libc.so.6");
}

struct NvrtcVersions : NvrtcFiles {
  Config config = testConfig();
  const std::vector<std::string> specs{"kernel of two"};

  void SetUp() override { config.cacheDirectory = directory / "cache"; }
  // A process that would use the NVRTC in `folder`: its counters after it asked for the kernel.
  cermet_counters counters(const std::string& folder) {
    config.nvrtcLibrary = folder;
    Context context(config);
    const auto images = context.kernelImages(specs);
    EXPECT_TRUE(images.ok()) << images.status().message();
    return context.counters().snapshot();
  }
  std::string nvrtc(const std::string& version) {
    const std::string major = version.substr(0, 2);
    return with(version, {"libnvrtc.so." + major, "libnvrtc-builtins.so." + version});
  }
};

TEST_F(NvrtcVersions, AnotherVersionMakesItsOwnKernel) {
  for (const char* version : {"13.0", "12.8", "13.1"}) {
    EXPECT_EQ(counters(nvrtc(version)).kernels_compiled, 1u) << version;
    EXPECT_EQ(counters(nvrtc(version)).kernels_from_directory, 1u) << version;
  }
  // They lie side by side: nobody makes them again.
  for (const char* version : {"13.0", "12.8", "13.1"})
    EXPECT_EQ(counters(nvrtc(version)).kernels_compiled, 0u) << version;
  const auto stored = listDirectory(config.cacheDirectory);
  ASSERT_TRUE(stored.ok());
  EXPECT_EQ(stored->size(), 3u);
  for (const StoredFile& file : *stored)
    EXPECT_EQ(file.problem, "") << file.path;
}

TEST_F(NvrtcVersions, WithoutOneAnyKernelServes) {
  EXPECT_EQ(counters(nvrtc("12.8")).kernels_compiled, 1u);
  EXPECT_EQ(counters(with("none", {})).kernels_from_directory, 1u);
  EXPECT_EQ(counters(with("unnamed", {"libnvrtc.so.13"})).kernels_from_directory, 1u);
  // There is one of another version, but nothing that could compile with it.
  config.compilerLibrary = "/nowhere.so";
  const cermet_counters served = counters(nvrtc("13.0"));
  EXPECT_EQ(served.kernels_from_directory, 1u);
  EXPECT_EQ(served.kernels_compiled, 0u);
}

TEST_F(NvrtcVersions, WhatNamesDoNotTellIsToldByWhoCompiles) {
  EXPECT_EQ(counters(with("unnamed", {"libnvrtc.so.13"})).kernels_compiled, 1u); // the fake compiler says 13.0
  EXPECT_EQ(counters(nvrtc("13.0")).kernels_from_directory, 1u);
  EXPECT_EQ(counters(nvrtc("13.1")).kernels_compiled, 1u);
}

} // namespace
} // namespace cermet
