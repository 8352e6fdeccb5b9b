// libcermet as a file: what it exports and what it needs.
#include <array>
#include <cstdio>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <sstream>
#include <string>

namespace {

std::string outputOf(const std::string& command) {
  std::string text;
  FILE* pipe = popen(command.c_str(), "r");
  std::array<char, 4096> piece;
  while (size_t count = fread(piece.data(), 1, piece.size(), pipe))
    text.append(piece.data(), count);
  pclose(pipe);
  return text;
}

TEST(Library, ExportsTheHeaderAndNothingElse) {
  std::istringstream symbols(outputOf("nm -D --defined-only --format=just-symbols " LIBCERMET));
  std::set<std::string> exported;
  for (std::string symbol; symbols >> symbol;)
    exported.insert(symbol.substr(0, symbol.find('@')));
  std::istringstream declarations(
      outputOf("grep -o 'cermet_[a-z_]*(' " SOURCE_DIR "/frontends/c/cermet.h | tr -d '(' | sort -u"));
  std::set<std::string> declared;
  for (std::string function; declarations >> function;)
    if (outputOf("grep -c 'CERMET_API.*[ *]" + function + "(' " SOURCE_DIR "/frontends/c/cermet.h") != "0\n")
      declared.insert(function);
  EXPECT_GT(declared.size(), 20u);
  EXPECT_EQ(exported, declared);
}

TEST(Library, NeedsOnlyTheSystem) {
  if (!std::string(SANITIZED).empty())
    GTEST_SKIP() << "a sanitizer's runtime is needed besides";
  std::istringstream needed(
      outputOf("readelf -d " LIBCERMET " " COMPILER " | grep NEEDED | sed 's/.*\\[\\(.*\\)\\]/\\1/'"));
  const std::set<std::string> allowed{"libstdc++.so.6", "libgcc_s.so.1",        "libc.so.6",      "libm.so.6",
                                      "libdl.so.2",     "ld-linux-x86-64.so.2", "libpthread.so.0"};
  int count = 0;
  for (std::string library; needed >> library; ++count)
    EXPECT_TRUE(allowed.contains(library)) << library;
  EXPECT_GT(count, 0);
  EXPECT_NE(outputOf("readelf -d " LIBCERMET " | grep SONAME").find("[libcermet.so.0]"), std::string::npos);
}

// manylinux_2_34 is glibc 2.34 and what GCC 11 brings.
TEST(Library, AsksNothingOfNewerSystemsThanManylinux234) {
  if (!std::string(SANITIZED).empty())
    GTEST_SKIP() << "a sanitizer's runtime is needed besides";
  const std::map<std::string, std::array<int, 3>> newest{
      {"GLIBC", {2, 34, 0}}, {"GLIBCXX", {3, 4, 29}}, {"CXXABI", {1, 3, 13}}, {"GCC", {12, 0, 0}}};
  for (const std::string library : {LIBCERMET, COMPILER}) {
    if (library.empty()) // built without it
      continue;
    std::istringstream symbols(outputOf("nm -D --undefined-only --format=just-symbols " + library));
    int count = 0;
    for (std::string symbol; symbols >> symbol;) {
      char name[16] = "";
      std::array<int, 3> version{};
      const size_t at = symbol.find('@');
      if (at == std::string::npos ||
          sscanf(symbol.c_str() + at, "@%15[A-Z]_%d.%d.%d", name, &version[0], &version[1], &version[2]) < 3)
        continue;
      ++count;
      ASSERT_TRUE(newest.contains(name)) << symbol;
      EXPECT_LE(version, newest.at(name)) << library << " needs " << symbol;
    }
    EXPECT_GT(count, 50) << library;
  }
}

} // namespace
