// The commands of `cermet`: one struct of options and one function each. A command prints its answer to stdout and
// returns what went wrong; main() prints that as one line and chooses the exit code.
#pragma once
#include "runtime/context/Context.h"
#include "runtime/support/Status.h"
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace cermet::tools {

// Options that every command has; without one it is the environment's or the default.
struct Common {
  std::optional<std::string> cacheDirectory, nvrtcLibrary, dumpDirectory; // "" switches off, as in the environment
  bool noCache = false;
  bool json = false;
};
Result<std::shared_ptr<Context>> makeContext(const Common& common);
// Whether every text that --dump asks for was written.
Status dumpStatus(Context& context);
// A file's text; "-" is standard input.
Result<std::string> readGraph(const std::string& file);

struct CompileOptions {
  std::vector<std::string> files;
  std::vector<std::string> targets;
  std::optional<std::string> output;
  bool frontend = false; // also what a frontend asks of the graphs
};
Status compileCommand(const Common& common, const CompileOptions& options);

struct RunOptions {
  std::string file;
  std::string target = "auto";
  std::vector<std::string> sizes; // "symbol=number"
  int device = 0;
  uint64_t seed = 0;
  int repeat = 0; // 0: as often as a quarter of a second allows
  bool check = false;
};
Status runCommand(const Common& common, const RunOptions& options);

struct ExplainOptions {
  std::string file;
  std::string target = "auto";
  bool source = false, specs = false;
};
Status explainCommand(const Common& common, const ExplainOptions& options);

Status targetsCommand(const Common& common);

enum class CacheAction { List, Show, Verify, Collect, Statistics, Clear };
struct CacheOptions {
  CacheAction action = CacheAction::List;
  std::string entry;             // of Show: how its file's name begins
  std::optional<uint64_t> bytes; // of Collect: what may be left, instead of the directory's bound
};
Status cacheCommand(const Common& common, const CacheOptions& options);

enum class PackAction { Make, List, Show, Verify, Merge };
struct PackOptions {
  PackAction action = PackAction::List;
  std::string file;               // of Make a cache directory, of Show a pack
  std::vector<std::string> files; // packs of the others
  std::string output;             // of Make and Merge
  std::string entry;              // of Show: how its file's name begins
};
Status packCommand(const PackOptions& options);

} // namespace cermet::tools
