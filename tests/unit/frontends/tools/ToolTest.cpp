// The command-line tool, the example and a warm start, with the real compiler library where it was built.
#include "runtime/abi/Targets.h"
#include "tests/unit/frontends/tools/ToolFixture.h"
#include "tests/unit/runtime/cache/StoredEntry.h"
#include <nlohmann/json.hpp>

namespace cermet {
namespace {

struct Tool : ToolFixture {
  Tool() : ToolFixture("norm") { environment += "CERMET_LOG=warn "; }
};

TEST_F(Tool, CompilesOnceAndKeepsIt) {
  CommandOutput first = cermet("compile " + graph + " -t host -o " + (directory / "out"));
  EXPECT_EQ(first.code, 0) << first.text;
  EXPECT_CONTAINS(first.text, "norm for host:x86-64-v");
  EXPECT_CONTAINS(first.text, "compiled in");
  CommandOutput second = cermet("compile " + graph + " -t host -o " + (directory / "out"));
  EXPECT_CONTAINS(second.text, "from the cache");
  EXPECT_CONTAINS(first.text, "plans: 1 made in ");
  EXPECT_CONTAINS(second.text, "plans: 0 made in 0 ms, 0 from packs, 1 from the directory; kernels: 0 made in 0 ms, "
                               "0 from packs, 1 from the directory; 0 waits, 0 removals, ");
  EXPECT_EQ(cermet("cache verify --cache " + (directory / "out")).code, 0);
  CommandOutput listed = cermet("cache ls --cache " + (directory / "out"));
  EXPECT_CONTAINS(listed.text, "@norm");
  EXPECT_CONTAINS(listed.text, "2 entries");
  EXPECT_CONTAINS(cermet("cache clear --cache " + (directory / "out")).text, "removed 2 files");
  EXPECT_CONTAINS(cermet("cache ls --cache " + (directory / "out")).text, "0 entries");
  EXPECT_EQ(cermet("compile " + graph + " -t host -o " + (directory / "plan.json")).code, 0);
  EXPECT_EQ(nlohmann::json::parse(std::ifstream(directory / "plan.json"))["format"], "cermet.plan.1");
}

TEST_F(Tool, RunsAndChecks) {
  for (const char* rows : {"1", "7", "300", "0"}) {
    const CommandOutput run =
        cermet("run " + graph + " --target host --check --repeat 3 --seed 5 --json --size rows=" + rows);
    ASSERT_EQ(run.code, 0) << run.text;
    const auto report = nlohmann::json::parse(run.text);
    EXPECT_EQ(report["outputs"].size(), 1u);
    EXPECT_TRUE(report["outputs"][0]["ok"].get<bool>());
  }
  EXPECT_CONTAINS(cermet("run " + graph + " --target host --check").text, "ok");
}

TEST_F(Tool, Explains) {
  const CommandOutput table = cermet("explain " + graph + " --target host");
  EXPECT_EQ(table.code, 0) << table.text;
  EXPECT_CONTAINS(table.text, "near misses (");
  EXPECT_CONTAINS(table.text, "kernel norm");
  EXPECT_CONTAINS(table.text, "x:bf16[rowsx256]");
  EXPECT_CONTAINS(cermet("explain --cuda " + graph).text, "__global__");
  const CommandOutput json = cermet("explain --json --target sm_80 " + graph);
  EXPECT_EQ(nlohmann::json::parse(json.text)["plan"]["target"], "sm_80");
}

TEST_F(Tool, NamesTargets) {
  const CommandOutput targets = cermet("targets");
  EXPECT_EQ(targets.code, 0);
  EXPECT_CONTAINS(targets.text, "sm_120");
  EXPECT_CONTAINS(targets.text, "libno-such-driver.so");
  EXPECT_EQ(nlohmann::json::parse(cermet("targets --json").text)["devices"].size(), 0u);
}

TEST_F(Tool, BadInputIsOneLineAndTwo) {
  std::ofstream(directory / "bad.mlir") << "module {";
  const std::pair<std::string, std::string> cases[] = {
      {"run /nowhere.mlir", "cermet: cannot read '/nowhere.mlir': No such file or directory"},
      {"run " + directory.path(), "cermet: cannot read '" + directory.path() + "'"},
      {"run " + graph + " --target sm_91", "cermet: unknown target 'sm_91', expected one of"},
      {"run " + graph + " --target host --size rows", "cermet: --size is 'rows', expected a symbol and a number"},
      {"run " + graph + " --target host --size cols=3", "cermet: --size names 'cols', the graph has: rows"},
      {"run " + graph + " --target host --size rows=99999999999999", "would have more than 16 GiB"},
      {"compile " + (directory / "bad.mlir"), "cermet: graph:1:"},
      {"cache ls --cache /nowhere", "cermet: there is no cache directory '/nowhere'"},
      {"frobnicate", "frobnicate"},
  };
  for (const auto& [arguments, message] : cases) {
    const CommandOutput output = cermet(arguments);
    EXPECT_EQ(output.code, 2) << arguments << "\n" << output.text;
    EXPECT_CONTAINS(output.text, message);
  }
  const CommandOutput noDevice = cermet("run " + graph + " --target cuda");
  EXPECT_EQ(noDevice.code, 1);
  EXPECT_CONTAINS(noDevice.text, "no CUDA driver");
}

TEST_F(Tool, DamageIsFound) {
  ASSERT_EQ(cermet("compile " + graph + " -t host").code, 0);
  runCommand("sh -c 'for f in " + (directory / "cache/kernel") +
             "/*; do printf x | dd of=$f bs=1 seek=50 conv=notrunc; done'");
  const CommandOutput verify = cermet("cache verify");
  EXPECT_EQ(verify.code, 1);
  EXPECT_CONTAINS(verify.text, "its checksum is wrong");
  EXPECT_CONTAINS(verify.text, "1 of 2 entries are damaged");
  EXPECT_EQ(cermet("compile " + graph + " -t host").code, 0);
  EXPECT_CONTAINS(cermet("cache verify").text, "2 entries");
}

TEST_F(Tool, AnEntryThatIsWholeAndNoAnswerIsFound) {
  ASSERT_EQ(cermet("compile " + graph + " -t host").code, 0);
  const std::string plan = storedFiles(directory / "cache/plan")[0],
                    kernel = storedFiles(directory / "cache/kernel")[0];
  replacePayload(plan, "{}");
  replacePayload(kernel, "no ELF");
  const CommandOutput verify = cermet("cache verify");
  EXPECT_EQ(verify.code, 1);
  EXPECT_CONTAINS(verify.text, kernel + ": a host kernel cannot be loaded: its payload is no ELF image");
  EXPECT_CONTAINS(verify.text, plan + ": ");
  EXPECT_CONTAINS(verify.text, "2 of 2 entries are damaged");
  EXPECT_EQ(cermet("run " + graph + " --target host").code, 0);
  EXPECT_CONTAINS(cermet("cache verify").text, "2 entries");
  EXPECT_EQ(cermet("cache verify").code, 0);
}

TEST_F(Tool, EntriesAreShownAndCounted) {
  ASSERT_EQ(cermet("compile " + graph + " -t host").code, 0);
  const std::string plan = storedFiles(directory / "cache/plan")[0],
                    kernel = storedFiles(directory / "cache/kernel")[0];
  const auto hash = [](const std::string& path) { return path.substr(path.rfind('/') + 1, 12); };
  EXPECT_CONTAINS(cermet("cache ls").text, hash(plan));
  const CommandOutput shown = cermet("cache show " + hash(plan));
  EXPECT_EQ(shown.code, 0) << shown.text;
  EXPECT_CONTAINS(shown.text, plan);
  EXPECT_CONTAINS(shown.text, "kind      plan");
  EXPECT_CONTAINS(shown.text, ", this one\n");
  EXPECT_CONTAINS(shown.text, "func.func @norm");
  EXPECT_CONTAINS(shown.text, "\"format\": \"cermet.plan.1\"");
  EXPECT_CONTAINS(cermet("cache show " + hash(kernel)).text, "program norm");
  EXPECT_CONTAINS(cermet("cache show nothing").text, "0 entries have names that begin with 'nothing', expected one");
  EXPECT_EQ(cermet("cache show ''").code, 2) << "two entries";
  const CommandOutput counted = cermet("cache stats");
  EXPECT_EQ(counted.code, 0);
  EXPECT_CONTAINS(counted.text, "kernel            1 files");
  EXPECT_CONTAINS(counted.text, "all               2 files");
  EXPECT_CONTAINS(counted.text, " of at most 2147483648");
  EXPECT_CONTAINS(counted.text, "by 1 build\n");
}

TEST_F(Tool, TheDirectoryIsBroughtWithinItsBound) {
  ASSERT_EQ(cermet("compile " + graph + " -t host").code, 0);
  runCommand("sh -c 'touch -d \"2 hours ago\" " + (directory / "cache/plan") + "/*.entry'");
  std::ofstream(directory / "cache/kernel/.tmp.1.0.1") << "left";
  runCommand("touch -d '1 minute ago' " + (directory / "cache/kernel/.tmp.1.0.1"));
  EXPECT_CONTAINS(cermet("cache gc").text, "removed 1 files, 4 bytes");
  const auto size = std::filesystem::file_size(storedFiles(directory / "cache/kernel")[0]);
  const CommandOutput collected = cermet("cache gc --bytes " + std::to_string(size));
  EXPECT_EQ(collected.code, 0) << collected.text;
  EXPECT_CONTAINS(collected.text, fmt::format("{} bytes are left of at most {}", size, size));
  EXPECT_EQ(storedFiles(directory / "cache/plan").size(), 0u) << "used longest ago";
  environment += "CERMET_CACHE_BYTES=1 ";
  EXPECT_CONTAINS(cermet("cache gc").text, "removed 1 files");
  EXPECT_EQ(cermet("cache gc --bytes -3").code, 2);
}

TEST_F(Tool, AnEmptyDirectoryIsNone) {
  ASSERT_EQ(cermet("compile " + graph + " -t host").code, 0);
  const CommandOutput clear = cermet("cache clear --cache ''");
  EXPECT_EQ(clear.code, 2);
  EXPECT_CONTAINS(clear.text, "there is no cache directory; set CERMET_CACHE_DIR or give --cache");
  EXPECT_CONTAINS(cermet("cache ls").text, "2 entries");
  for (int turn = 0; turn < 2; ++turn)
    EXPECT_CONTAINS(cermet("compile " + graph + " -t host --cache ''").text, "compiled in");
  const CommandOutput output = cermet("compile " + graph + " -t host -o ''");
  EXPECT_EQ(output.code, 2);
  EXPECT_CONTAINS(output.text, "--output is '', expected a directory or a name that ends in .json or .cpack");
  environment += "CERMET_DUMP=" + (directory / "dump") + " ";
  EXPECT_EQ(cermet("compile " + graph + " -t host --dump ''").code, 0);
  EXPECT_NE(runCommand("ls " + (directory / "dump")).code, 0) << "nothing is dumped";
}

TEST_F(Tool, ClearingGoesOnWhereSomethingIsInTheWay) {
  ASSERT_EQ(cermet("compile " + graph + " -t host").code, 0);
  runCommand("mkdir " + (directory / "cache/plan/00000000000000000000000000000000.entry"));
  const CommandOutput clear = cermet("cache clear");
  EXPECT_EQ(clear.code, 1);
  EXPECT_CONTAINS(clear.text, "removed 2 files");
  EXPECT_CONTAINS(clear.text, "00000000000000000000000000000000.entry': Is a directory");
  EXPECT_CONTAINS(clear.text, "1 could not be removed");
}

TEST_F(Tool, ADirectoryThatOthersCanWriteIsNamed) {
  ASSERT_EQ(cermet("compile " + graph + " -t host").code, 0);
  runCommand("chmod g+w " + (directory / "cache"));
  const CommandOutput verify = cermet("cache verify");
  EXPECT_EQ(verify.code, 2);
  EXPECT_CONTAINS(verify.text, "its mode is 0720, so that others may write it; chmod go-w");
}

TEST_F(Tool, TheTorchFrontendsTimingsAreListedAndCleared) {
  const std::string gain = directory / "cache/gain";
  runCommand("mkdir -p " + gain);
  std::ofstream(gain + "/0123.json") << R"({"key": "build\n2.13.0\nNVIDIA H200\n7", "ours": 12.5, "unfused": 20})";
  std::ofstream(gain + "/.tmp.abc") << "{";
  std::ofstream(gain + "/notes.txt") << "not ours";
  const CommandOutput listed = cermet("cache ls");
  EXPECT_EQ(listed.code, 0);
  EXPECT_CONTAINS(listed.text, "NVIDIA H200: 12.5 us fused, 20.0 us as it was");
  EXPECT_CONTAINS(listed.text, "1 entries, 70 bytes, 0 damaged, 1 left over");
  for (const char* text : {"[]", "{", R"({"key": 3, "ours": 1, "unfused": 1})", R"({"key": "", "ours": "1"})"}) {
    std::ofstream(gain + "/4567.json") << text;
    const CommandOutput verify = cermet("cache verify");
    EXPECT_EQ(verify.code, 1) << text;
    EXPECT_CONTAINS(verify.text, "4567.json: it is not the JSON of a timing");
  }
  EXPECT_CONTAINS(cermet("cache clear").text, "removed 3 files");
  EXPECT_CONTAINS(runCommand("ls -A " + gain).text, "notes.txt");
}

TEST_F(Tool, TheExampleRuns) {
  const CommandOutput example = runCommand(environment + EXAMPLE);
  EXPECT_EQ(example.code, 0) << example.text;
  EXPECT_CONTAINS(example.text, "host  y[0][0..3] =");
}

// On a GPU it is tests/gpu that runs it; here it must build, start and say what it lacks.
TEST_F(Tool, TheCapturedGraphSaysWhatItLacks) {
  if (*CAPTURED_GRAPH == '\0')
    GTEST_SKIP() << "no CUDA runtime was there when the examples were built";
  const CommandOutput rows = runCommand(environment + CAPTURED_GRAPH " 0");
  EXPECT_EQ(rows.code, 2);
  EXPECT_CONTAINS(rows.text, "captured_graph: usage: captured_graph [ROWS]; ROWS is at least 1");
  const CommandOutput none = runCommand(environment + "CUDA_VISIBLE_DEVICES= " CAPTURED_GRAPH);
  EXPECT_EQ(none.code, 2);
  EXPECT_CONTAINS(none.text, "captured_graph: cudaGetDevice: ");
}

TEST_F(Tool, AGraphFileRunsFromC) {
  const CommandOutput cold = runCommand(environment + RUN_GRAPH " " + graph + " auto rows=6");
  EXPECT_EQ(cold.code, 0) << cold.text;
  EXPECT_CONTAINS(cold.text, "input  x                bf16[rows, 256]");
  EXPECT_CONTAINS(cold.text, " = 1 1 1 1 ... (1536 elements)"); // a row of ones has the norm 1
  EXPECT_CONTAINS(cold.text, " = 1 1 1 1 ... (1792 elements)");
  EXPECT_CONTAINS(cold.text, "kernels: 1 compiled in");
  EXPECT_CONTAINS(cold.text, "launches: 2");
  const CommandOutput warm = runCommand(environment + RUN_GRAPH " " + graph + " host rows=0");
  EXPECT_EQ(warm.code, 0) << warm.text;
  EXPECT_CONTAINS(warm.text, " = (0 elements)");
  EXPECT_CONTAINS(warm.text,
                  "plans: 0 compiled, 1 from the directory; kernels: 0 compiled in 0 us, 1 from the directory");
}

TEST_F(Tool, FailuresReachAProgramInC) {
  std::ofstream(directory / "bad.mlir") << "module {\n  frob\n}";
  std::ofstream(directory / "product.mlir") << R"(module attributes {cermet.version = 1 : i64} {
  func.func @product(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>) -> tensor<4x8xf32> {
    %y = cermet.matmul %x, %w : tensor<4x8xf32>, tensor<8x8xf32> to tensor<4x8xf32>
    return %y : tensor<4x8xf32>
  }
})";
  const CommandOutput bad = runCommand(environment + RUN_GRAPH " " + (directory / "bad.mlir") + " host");
  EXPECT_EQ(bad.code, 1);
  EXPECT_CONTAINS(bad.text, "compile: INVALID_GRAPH: graph:2:3: ");
  const CommandOutput product = runCommand(environment + RUN_GRAPH " " + (directory / "product.mlir") + " host");
  EXPECT_EQ(product.code, 1);
  EXPECT_CONTAINS(product.text, "external step cermet.matmul: 2 operands, 1 results; this program runs none");
  EXPECT_CONTAINS(product.text, "launch: UNSUPPORTED: ");
  EXPECT_CONTAINS(product.text, "the callback of the external step cermet.matmul failed");
  EXPECT_EQ(runCommand(environment + RUN_GRAPH " /nowhere.mlir host").code, 2);
}

TEST_F(Tool, AllTargetsCompileTogether) {
  // NVRTC from PyPI, in the checkout's environment.
  const CommandOutput found = runCommand("sh -c 'ls -d " SOURCE_DIR "/.venv/lib/*/site-packages/nvidia/cu13/lib'");
  if (found.code != 0)
    GTEST_SKIP() << "NVRTC is not in " SOURCE_DIR "/.venv";
  const std::string folder = found.text.substr(0, found.text.find('\n'));
  const CommandOutput all =
      cermet("compile " + graph + " -t all -t host --nvrtc " + folder + " -o " + (directory / "out"));
  EXPECT_EQ(all.code, 0) << all.text;
  size_t at = 0; // in the order of the targets, whichever was done first
  std::vector<std::string> targets;
  for (const CudaTarget& target : kCudaTargets)
    targets.push_back(target.name);
  targets.push_back("host:");
  for (const std::string& target : targets) {
    const size_t next = all.text.find("norm for " + target, at);
    ASSERT_NE(next, std::string::npos) << all.text;
    at = next;
  }
  EXPECT_CONTAINS(cermet("cache verify --cache " + (directory / "out")).text,
                  std::to_string(2 * targets.size()) + " entries");
}

TEST_F(Tool, AWarmProcessOpensNoCompiler) {
  const CommandOutput cold = runCommand(environment + WARM_PROCESS), warm = runCommand(environment + WARM_PROCESS);
  EXPECT_EQ(cold.code, 0);
  EXPECT_EQ(cold.text, "1 1: cermet_compiler"); // the control: it is seen when it is there
  EXPECT_EQ(warm.code, 0);
  EXPECT_EQ(warm.text, "0 0:");
  const CommandOutput without = runCommand(environment + "CERMET_COMPILER_LIBRARY=/nowhere.so " + WARM_PROCESS);
  EXPECT_EQ(without.text, "0 0:") << "a warm process does not even need it";
}

} // namespace
} // namespace cermet
