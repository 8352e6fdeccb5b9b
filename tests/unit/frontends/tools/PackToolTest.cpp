// Packs by the command-line tool: from graphs, from a directory, from packs; and what each command says of damage.
#include "runtime/cache/Pack.h"
#include "tests/unit/frontends/tools/ToolFixture.h"
#include "tests/unit/runtime/cache/StoredEntry.h"
#include <fmt/format.h>

namespace cermet {
namespace {

struct PackTool : ToolFixture {
  PackTool() : ToolFixture("norm") {}
  const std::string pack = directory / "norm.cpack";

  // The digest that a command printed last.
  static std::string digestIn(const std::string& text) {
    const size_t at = text.rfind("digest ");
    return at == text.npos ? "" : text.substr(at + 7, 64);
  }
  std::string only(const std::string& packs) const {
    return "env CERMET_PACKS=" + packs + " CERMET_CACHE=only CERMET_COMPILER_LIBRARY=/nowhere.so ";
  }
};

TEST_F(PackTool, APackOfAGraphServesAProcessThatMayMakeNothing) {
  const CommandOutput made = cermet("compile " + graph + " -t host --no-cache -o " + pack);
  ASSERT_EQ(made.code, 0) << made.text;
  EXPECT_CONTAINS(made.text, pack + ": 2 entries, ");
  const std::string run = " run " + graph + " -t host --repeat 1 --no-cache";
  EXPECT_EQ(runCommand(environment + only(pack + "#" + digestIn(made.text)) + TOOL + run).code, 0);
  const CommandOutput other = runCommand(environment + only(pack + "#" + std::string(64, '0')) + TOOL + run);
  EXPECT_EQ(other.code, 2) << "another digest was meant";
  EXPECT_CONTAINS(other.text, "expected " + std::string(64, '0'));
  const CommandOutput missing =
      runCommand(environment + only(pack) + TOOL " compile " + graph + " -t sm_90 --no-cache");
  EXPECT_EQ(missing.code, 1);
  EXPECT_CONTAINS(missing.text, "the plan of 'sm_90 @norm' (");
  EXPECT_CONTAINS(missing.text, "`cermet compile GRAPH -t sm_90 -o more.cpack` makes it");
}

TEST_F(PackTool, TheSamePackWhereverItIsMade) {
  const std::string first = cermet("compile " + graph + " -t host --no-cache -o " + pack).text;
  const std::string second =
      cermet("compile " + graph + " -t host -o " + (directory / "b.cpack")).text; // by a directory
  const std::string third = cermet("compile " + graph + " -t host -o " + (directory / "c.cpack")).text; // from it
  const CommandOutput fourth =
      cermet("pack make " + (directory / "cache") + " -o " + (directory / "d.cpack")); // and of it
  EXPECT_EQ(fourth.code, 0) << fourth.text;
  EXPECT_EQ(digestIn(first).size(), 64u);
  for (const std::string& text : {second, third, fourth.text})
    EXPECT_EQ(digestIn(text), digestIn(first)) << text;
  EXPECT_CONTAINS(runCommand("sha256sum " + pack).text, digestIn(first));
}

TEST_F(PackTool, WhatAFrontendAsksIsInItOnRequest) {
  const CommandOutput made = cermet("compile " + graph + " -t host --frontend --no-cache -o " + pack);
  ASSERT_EQ(made.code, 0) << made.text;
  const CommandOutput listed = cermet("pack ls " + pack);
  EXPECT_EQ(listed.code, 0);
  for (const char* part : {"match ", "gradient ", "kernel ", "@norm_forward", "@norm_backward"})
    EXPECT_CONTAINS(listed.text, part);
}

TEST_F(PackTool, PacksAreShownAndMerged) {
  ASSERT_EQ(cermet("compile " + graph + " -t host --no-cache -o " + pack).code, 0);
  const std::string hash = (*Pack::open(pack))->items().front().fileName().substr(0, 12);
  EXPECT_CONTAINS(cermet("pack ls " + pack).text, hash);
  const CommandOutput shown = cermet("pack show " + pack + " " + hash);
  EXPECT_EQ(shown.code, 0);
  EXPECT_CONTAINS(shown.text, "func.func @norm");
  EXPECT_EQ(cermet("pack show " + pack + " nothing").code, 2);
  const std::string more = directory / "more.cpack", all = directory / "all.cpack";
  ASSERT_EQ(cermet("compile " + graph + " -t host --frontend --no-cache -o " + more).code, 0);
  const CommandOutput merged = cermet("pack merge " + pack + " " + more + " -o " + all);
  EXPECT_EQ(merged.code, 0) << merged.text;
  EXPECT_EQ(*readFile(all), *readFile(more)) << "which holds the other";
  EXPECT_EQ(cermet("pack merge " + more + " " + pack + " -o " + (directory / "all.bin")).code, 2);
  EXPECT_CONTAINS(cermet("pack ls " + pack + " " + more).text, "digest");
}

TEST_F(PackTool, DamageIsFound) {
  ASSERT_EQ(cermet("compile " + graph + " -t host --no-cache -o " + pack).code, 0);
  EXPECT_EQ(cermet("pack verify " + pack).code, 0);
  std::string bytes = *readFile(pack);
  bytes.back() ^= 1;
  std::ofstream(pack, std::ios::binary) << bytes;
  const CommandOutput verify = cermet("pack verify " + pack);
  EXPECT_EQ(verify.code, 1);
  EXPECT_CONTAINS(verify.text, ".entry: its checksum is wrong");
  EXPECT_CONTAINS(verify.text, "2 entries, ");
  EXPECT_CONTAINS(verify.text, "1 damaged");
  EXPECT_EQ(cermet("pack merge " + pack + " -o " + (directory / "b.cpack")).code, 2);
  bytes[20] ^= 1;
  std::ofstream(pack, std::ios::binary) << bytes;
  EXPECT_EQ(cermet("pack verify " + pack).code, 2);
  EXPECT_CONTAINS(cermet("pack verify " + (directory / "none.cpack")).text, "No such file or directory");
  // A directory's damaged entries stay out, and are named.
  ASSERT_EQ(cermet("compile " + graph + " -t host").code, 0);
  std::ofstream(storedFiles(directory / "cache/plan")[0]) << "damaged";
  const CommandOutput made = cermet("pack make " + (directory / "cache") + " -o " + pack);
  EXPECT_EQ(made.code, 0) << made.text;
  EXPECT_CONTAINS(made.text, "left out: 0 entries of other builds, 1 that are damaged");
  EXPECT_CONTAINS(made.text, pack + ": 1 entries");
}

TEST_F(PackTool, SeveralGraphsAreOnePack) {
  const CommandOutput both = cermet("compile " + graph + " " + SOURCE_DIR "/tests/graphs/cross_entropy.mlir" +
                                    " -t host --no-cache -o " + pack);
  ASSERT_EQ(both.code, 0) << both.text;
  EXPECT_CONTAINS(cermet("pack ls " + pack).text, "@norm");
  EXPECT_CONTAINS(cermet("pack ls " + pack).text, "@cross_entropy");
  EXPECT_EQ(cermet("compile " + graph + " " + graph + " -t host -o " + (directory / "plan.json")).code, 2);
}

} // namespace
} // namespace cermet
