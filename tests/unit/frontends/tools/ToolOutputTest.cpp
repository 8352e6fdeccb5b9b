// What the command-line tool prints and writes arrives, or it fails and says why.
#include "tests/unit/frontends/tools/ToolFixture.h"

namespace cermet {
namespace {

struct ToolOutput : ToolFixture {
  ToolOutput() : ToolFixture("\"nor/../m\"") {}

  // Every command that prints an answer.
  std::vector<std::string> commands() const {
    return {"explain " + graph + " --target host",
            "explain --json " + graph + " --target host",
            "explain --cuda " + graph,
            "run " + graph + " --target host --repeat 2",
            "run --json " + graph + " --target host --repeat 2",
            "compile " + graph + " -t host",
            "targets",
            "targets --json",
            "cache ls",
            "cache verify",
            "cache clear",
            "--help",
            "run --help",
            "--version"};
  }
};

TEST_F(ToolOutput, AFullDiskIsAFailure) {
  ASSERT_EQ(cermet("compile " + graph + " -t host").code, 0);
  for (const std::string& command : commands()) {
    const CommandOutput full = cermet(command, "2>&1 >/dev/full");
    EXPECT_EQ(full.code, 1) << command;
    EXPECT_EQ(full.text, "cermet: standard output cannot be written: No space left on device\n") << command;
  }
}

TEST_F(ToolOutput, AClosedOutputIsAFailure) {
  ASSERT_EQ(cermet("compile " + graph + " -t host").code, 0);
  for (const std::string& command : commands()) {
    const CommandOutput closed = cermet(command, "2>&1 >&-");
    EXPECT_EQ(closed.code, 1) << command;
    EXPECT_EQ(closed.text, "cermet: standard output cannot be written: Bad file descriptor\n") << command;
  }
  // No entry of the cache took the number of what was closed.
  EXPECT_EQ(cermet("compile " + graph + " -t host --no-cache", ">&- 2>&-").code, 1);
  EXPECT_EQ(cermet("cache verify").code, 0);
}

TEST_F(ToolOutput, AReaderThatLeavesIsAFailure) {
  ASSERT_EQ(cermet("compile " + graph + " -t host").code, 0);
  for (const std::string& command : commands()) {
    // A reader that is gone, where the signal is not.
    const CommandOutput gone = runCommand("bash -c 'trap \"\" PIPE; { sleep 0.2; " + environment + TOOL " " + command +
                                          "; echo \"code $?\" >&2; } | true'");
    EXPECT_EQ(gone.text, "cermet: standard output cannot be written: Broken pipe\ncode 1\n") << command;
  }
}

// Nobody is left to tell; the exit code still says it.
TEST_F(ToolOutput, AnErrorThatCannotBePrintedIsStillOne) {
  for (const char* streams : {"2>/dev/full", "2>&-", ">/dev/full 2>/dev/full"}) {
    EXPECT_EQ(cermet("run /nowhere.mlir", streams).code, 2) << streams;
    EXPECT_EQ(cermet("frobnicate", streams).code, 2) << streams;
    EXPECT_EQ(cermet("", streams).code, 2) << streams;
  }
}

TEST_F(ToolOutput, APlanThatIsNotWrittenIsAFailure) {
  ASSERT_EQ(runCommand("ln -s /dev/full " + (directory / "full.json")).code, 0);
  const CommandOutput full = cermet("compile " + graph + " -t host -o " + (directory / "full.json"));
  EXPECT_EQ(full.code, 1);
  EXPECT_CONTAINS(full.text, "cermet: cannot write '" + (directory / "full.json") + "': No space left on device");
  const CommandOutput nowhere = cermet("compile " + graph + " -t host -o /nowhere/plan.json");
  EXPECT_EQ(nowhere.code, 1);
  EXPECT_CONTAINS(nowhere.text, "cermet: cannot write '/nowhere/plan.json': No such file or directory");
}

TEST_F(ToolOutput, ADumpThatIsNotWrittenIsAFailure) {
  std::ofstream(directory / "file") << "no directory";
  for (const char* command : {"compile ", "explain ", "run --repeat 2 "}) {
    const CommandOutput dump = cermet(command + graph + " --target host --dump " + (directory / "file"));
    EXPECT_EQ(dump.code, 1) << command;
    EXPECT_CONTAINS(dump.text, "cermet: warning: the dump '" + (directory / "file") + "/");
    EXPECT_CONTAINS(dump.text, "' cannot be written: Not a directory\n");
    EXPECT_EQ(dump.text.find("warning"), dump.text.rfind("warning")) << "once";
    // The control: where it can be written, it is; a name leads nowhere else.
    const CommandOutput written = cermet(command + graph + " --target host --dump " + (directory / "dump"));
    EXPECT_EQ(written.code, 0) << written.text;
  }
  EXPECT_CONTAINS(runCommand("ls " + (directory / "dump")).text, "nor_.._m-");
}

} // namespace
} // namespace cermet
