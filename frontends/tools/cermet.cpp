// cermet: compile, run and explain graph text, and look after the cache, from a shell.
#include "BuildId.h"
#include "frontends/tools/Commands.h"
#include "frontends/tools/Output.h"
#include "frontends/tools/StandardStreams.h"
#include "runtime/abi/Targets.h"
#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <sstream>
#include <system_error>

using namespace cermet;
using namespace cermet::tools;

namespace {

constexpr int kBadInput = 2, kFailure = 1;

// Bad input is what the user can mend in the command or the graph.
int exitCode(Status status) {
  Status output = finishOutput();
  if (status.ok())
    status = std::move(output);
  if (status.ok())
    return 0;
  complain(status.message());
  return status.code() == CERMET_INVALID_ARGUMENT || status.code() == CERMET_INVALID_GRAPH ? kBadInput : kFailure;
}

// CLI11 takes an empty value of an optional for none; here it is a value.
void addText(CLI::App& command, const char* name, std::optional<std::string>& text, const char* help) {
  command.add_option_function<std::string>(
      name, [&text](const std::string& value) { text = value; }, help);
}

void addCommon(CLI::App& command, Common& common) {
  addText(command, "--cache", common.cacheDirectory,
          "Cache directory; '' for none (default: $CERMET_CACHE_DIR or ~/.cache/cermet)");
  command.add_flag("--no-cache", common.noCache, "Neither read nor write a cache directory");
  addText(command, "--nvrtc", common.nvrtcLibrary,
          "Path of libnvrtc.so.*; '' finds it by name (default: $CERMET_NVRTC, or found by name)");
  addText(command, "--dump", common.dumpDirectory, "Write every text that the compiler makes into this directory");
}

const std::string kTargetHelp = [] {
  std::string names;
  for (const CudaTarget& target : kCudaTargets)
    names += (names.empty() ? "" : " ") + std::string(target.name);
  return names + ", host (this CPU), or auto (the first GPU, else this CPU)";
}();

} // namespace

int main(int count, char** arguments) {
  openStandardStreams();
  CLI::App app{"Cermet fuses the bandwidth-bound parts of a transformer into kernels of its own. A graph is a text "
               "file with one\n"
               "function (docs/ir.md); '-' reads standard input. Exit code: 0 done, 1 failed, 2 the input is wrong."};
  app.set_version_flag("--version", "cermet 0.1.0+" CERMET_BUILD_ID);
  app.require_subcommand(0, 1); // none: help, below; a wrong one is then named
  Common common;
  Status status;

  CompileOptions compile;
  CLI::App* command = app.add_subcommand("compile", "Compile a graph's plan and all its kernels, without a GPU");
  command->add_option("files", compile.files, "Graph texts")->required();
  command->add_option("-t,--target", compile.targets, "One or more of " + kTargetHelp + ", or all")
      ->default_val(std::vector<std::string>{"auto"});
  addText(*command, "-o,--output", compile.output,
          "A directory: becomes a cache directory that serves CERMET_CACHE_DIR. A name that ends in .cpack: a pack for "
          "CERMET_PACKS. One that ends in .json: the plan");
  command->add_flag("--frontend", compile.frontend,
                    "Also what a frontend asks: regions, and the gradients of them and of the whole");
  addCommon(*command, common);
  command->callback([&] { status = compileCommand(common, compile); });

  RunOptions run;
  command = app.add_subcommand("run", "Run a graph on random inputs: time, bandwidth and, with --check, the error");
  command->add_option("file", run.file, "Graph text")->required();
  command->add_option("-t,--target", run.target, kTargetHelp + ", or cuda (the GPU of --device)")
      ->capture_default_str();
  command->add_option("-s,--size", run.sizes, "Size of a symbolic dimension, as in r0=4096; 128 where not given");
  command->add_option("--device", run.device, "CUDA device")->capture_default_str();
  command->add_option("--seed", run.seed, "Seed of the random inputs")->capture_default_str();
  command->add_option("--repeat", run.repeat, "Launches that are timed (default: a quarter of a second's worth)");
  command->add_flag("--check", run.check,
                    "Compare with the float64 interpreter; fails if the result is worse than the traced program");
  command->add_flag("--json", common.json, "Print JSON");
  addCommon(*command, common);
  command->callback([&] { status = runCommand(common, run); });

  ExplainOptions explain;
  command =
      app.add_subcommand("explain", "Say what is fused, what nearly was and why not, and the kernels that result");
  command->add_option("file", explain.file, "Graph text")->required();
  command->add_option("-t,--target", explain.target, kTargetHelp)->capture_default_str();
  command->add_flag("--specs", explain.specs, "Also print each kernel's spec: its row program and schedule");
  command->add_flag("--cuda", explain.source, "Also print each kernel's CUDA C++ (LLVM IR for host)");
  command->add_flag("--json", common.json, "Print JSON");
  addCommon(*command, common);
  command->callback([&] { status = explainCommand(common, explain); });

  command = app.add_subcommand("targets", "List what can be compiled for and run here");
  command->add_flag("--json", common.json, "Print JSON");
  addCommon(*command, common);
  command->callback([&] { status = targetsCommand(common); });

  CLI::App* cache = app.add_subcommand("cache", "Look after a cache directory");
  cache->require_subcommand(1);
  PackOptions packOptions;
  CLI::App* pack = app.add_subcommand("pack", "Make and look at packs: many entries in one file that nobody changes");
  pack->require_subcommand(1);
  const std::tuple<const char*, const char*, PackAction> packActions[] = {
      {"make", "Make a pack of what this build has in a cache directory", PackAction::Make},
      {"ls", "List the entries, and say the digest", PackAction::List},
      {"show", "Print one entry: what it is for, its key and, of a plan, what it holds", PackAction::Show},
      {"verify", "Check every entry; fails if one is damaged", PackAction::Verify},
      {"merge", "Make one pack of several; of equal keys the first pack's entry", PackAction::Merge}};
  for (auto [name, help, action] : packActions) {
    command = pack->add_subcommand(name, help);
    const bool writes = action == PackAction::Make || action == PackAction::Merge;
    const bool takesOne = action == PackAction::Make || action == PackAction::Show;
    if (takesOne)
      command->add_option("file", packOptions.file, action == PackAction::Make ? "Cache directory" : "Pack")
          ->required();
    else
      command->add_option("files", packOptions.files, "Packs")->required();
    if (writes)
      command->add_option("-o,--output", packOptions.output, "The pack: a name that ends in .cpack")->required();
    if (action == PackAction::Show)
      command->add_option("entry", packOptions.entry, "How its name in `cermet pack ls` begins")->required();
    command->callback([&, action = action] {
      packOptions.action = action;
      status = packCommand(packOptions);
    });
  }

  CacheOptions cacheOptions;
  const std::tuple<const char*, const char*, CacheAction> actions[] = {
      {"ls", "List the entries", CacheAction::List},
      {"show", "Print one entry: what it is for, its key and, of a plan, what it holds", CacheAction::Show},
      {"verify", "Read every entry and check its checksum and key; fails if one is damaged", CacheAction::Verify},
      {"gc", "Remove what broken processes left and, above the bound, what was used longest ago", CacheAction::Collect},
      {"stats", "Say how much there is of each kind, and when it was used", CacheAction::Statistics},
      {"clear", "Remove all entries and what broken processes left", CacheAction::Clear}};
  for (auto [name, help, action] : actions) {
    command = cache->add_subcommand(name, help);
    if (action == CacheAction::Show)
      command->add_option("entry", cacheOptions.entry, "How its name in `cermet cache ls` begins")->required();
    if (action == CacheAction::Collect)
      command->add_option("--bytes", cacheOptions.bytes, "What may be left (default: $CERMET_CACHE_BYTES or 2 GiB)")
          ->check(CLI::NonNegativeNumber);
    addCommon(*command, common);
    command->callback([&, action = action] {
      cacheOptions.action = action;
      status = cacheCommand(common, cacheOptions);
    });
  }

  try {
    app.parse(count, arguments);
  } catch (const CLI::ParseError& failure) {
    if (failure.get_exit_code() == 0) { // --help, --version
      std::ostringstream text;
      app.exit(failure, text, text);
      return exitCode(std::fputs(text.str().c_str(), stdout) < 0 ? outputFailed(errno) : Status());
    }
    return exitCode(error(CERMET_INVALID_ARGUMENT, "{}; see cermet --help", failure.what()));
  } catch (const std::system_error& failure) {
    status = std::ferror(stdout) ? outputFailed(failure.code().value()) : error(CERMET_INTERNAL, "{}", failure.what());
  } catch (const std::exception& failure) {
    status = error(CERMET_INTERNAL, "{}", failure.what());
  }
  if (app.get_subcommands().empty()) {
    std::fputs(app.help().c_str(), stderr);
    return kBadInput;
  }
  return exitCode(status);
}
