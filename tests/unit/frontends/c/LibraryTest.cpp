// libcermet as a file: what it exports and what it needs.
#include <array>
#include <cstdio>
#include <gtest/gtest.h>
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
  std::istringstream needed(outputOf("readelf -d " LIBCERMET " | grep NEEDED | sed 's/.*\\[\\(.*\\)\\]/\\1/'"));
  const std::set<std::string> allowed{"libstdc++.so.6", "libgcc_s.so.1",        "libc.so.6",      "libm.so.6",
                                      "libdl.so.2",     "ld-linux-x86-64.so.2", "libpthread.so.0"};
  int count = 0;
  for (std::string library; needed >> library; ++count)
    EXPECT_TRUE(allowed.contains(library)) << library;
  EXPECT_GT(count, 0);
  EXPECT_NE(outputOf("readelf -d " LIBCERMET " | grep SONAME").find("[libcermet.so.0]"), std::string::npos);
}

} // namespace
