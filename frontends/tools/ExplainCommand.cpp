#include "frontends/tools/Commands.h"
#include "runtime/device/Target.h"
#include <cstdio>
#include <nlohmann/json.hpp>

namespace cermet::tools {

using nlohmann::json;

static std::string dimsText(const json& value) {
  std::vector<std::string> dims;
  for (const json& dim : value.at("dims"))
    dims.push_back(dim.is_string() ? dim.get<std::string>() : dim.dump());
  return fmt::format("{}:{}[{}]", value.at("name").get<std::string>(), value.at("dtype").get<std::string>(),
                     fmt::join(dims, "x"));
}

// A view by what it shows.
static std::string originText(const json& value, const json& values) {
  if (value.at("kind") != "view")
    return "";
  const json& source = values.at(value.at("of").get<size_t>());
  const std::string what = value.at("view").get<std::string>();
  return fmt::format(", {}{} of {}{}", what, value.contains("starts") ? " at " + value["starts"].dump() : "",
                     source.at("name").get<std::string>(), originText(source, values));
}

static std::string joined(const json& names) {
  return fmt::format("{}", fmt::join(names.get<std::vector<std::string>>(), " "));
}

static void printFusions(const json& match) {
  const json& regions = match.at("regions");
  fmt::print("patterns matched ({})\n", regions.size());
  for (const json& region : regions)
    fmt::print("  {:<20} {:<20} replaces {}\n", region.at("pattern").get<std::string>(), joined(region.at("results")),
               joined(region.at("replaced")));
  const json& misses = match.at("near_misses");
  fmt::print("near misses ({})\n", misses.size());
  for (const json& miss : misses)
    fmt::print("  {:<20} {:<20} {}\n", miss.at("pattern").get<std::string>(), miss.at("at").get<std::string>(),
               miss.at("condition").get<std::string>());
}

static void printOperands(const json& operands, const json& values) {
  for (const json& operand : operands) {
    const bool index = operand.at("kind") == "index"; // a row's number, no value
    fmt::print("    {:<6} {:<7} {}\n", operand.at("output").get<bool>() ? "writes" : "reads",
               operand.at("kind").get<std::string>(),
               index ? fmt::format("along row dimensions {}", operand.at("dims").dump())
                     : dimsText(values.at(operand.at("value").get<size_t>())) +
                           originText(values.at(operand.at("value").get<size_t>()), values));
  }
}

// A program's way through its rows; `step` has the threads, which all programs of it share.
static std::string scheduleText(const json& program, const json& step) {
  return fmt::format("{}, {} columns, {} threads, vectors of {}{}", program.at("skeleton").get<std::string>(),
                     program.at("columns").dump(), step.at("threads").dump(), program.at("vector").dump(),
                     program.at("accumulators") == 0 ? "" : ", sums over rows");
}

static void printSteps(const json& plan, bool withSpecs) {
  const json& steps = plan.at("steps");
  const json& values = plan.at("values");
  fmt::print("steps for {} ({})\n", plan.at("target").get<std::string>(), steps.size());
  for (const json& step : steps) {
    if (step.at("kind") == "external") {
      fmt::print("  external {} at line {}: the caller runs it{}\n", step.at("op").get<std::string>(),
                 step.at("line").dump(), step.contains("reason") ? ", " + step["reason"].get<std::string>() : "");
      continue;
    }
    const bool isAlone = !step.contains("programs");
    fmt::print("  kernel {:<24} {} operations; {}\n", step.at("name").get<std::string>(), step.value("operations", 0),
               isAlone ? scheduleText(step, step) : fmt::format("{} programs side by side", step["programs"].size()));
    if (withSpecs)
      fmt::print("{}", step.at("spec").get<std::string>());
    if (isAlone)
      printOperands(step.at("operands"), values);
    else
      for (const json& program : step["programs"]) {
        fmt::print("    {}\n", scheduleText(program, step));
        printOperands(program.at("operands"), values);
      }
  }
}

Status explainCommand(const Common& common, const ExplainOptions& options) {
  const auto text = CERMET_TRY(readGraph(options.file));
  const auto context = CERMET_TRY(makeContext(common));
  std::string target = CERMET_TRY(context->resolveTarget(options.target));
  // CUDA text needs no GPU: without one, the text for a common one.
  if (options.source && options.target == "auto" && isHostTarget(target))
    target = std::string("sm_90");
  const auto matchText = CERMET_TRY(context->match(text));
  const auto plan = CERMET_TRY(context->compile(text, target));
  try {
    const json match = json::parse(matchText), planJson = json::parse(plan->json);
    json sources = json::array();
    if (options.source)
      for (const PlanStep& step : plan->steps) {
        if (step.kind != StepKind::Kernel)
          continue;
        sources.push_back(CERMET_TRY(context->compiler().kernelSource(step.spec)));
      }
    if (common.json) {
      fmt::print("{}\n", json{{"match", match}, {"plan", planJson}, {"sources", sources}}.dump(1));
      return dumpStatus(*context);
    }
    printFusions(match);
    printSteps(planJson, options.specs);
    for (const json& source : sources)
      fmt::print("\n{}\n", source.get<std::string>());
  } catch (const json::exception& failure) {
    return error(CERMET_INTERNAL, "the compiler's answer cannot be read: {}", failure.what());
  }
  return dumpStatus(*context);
}

Status targetsCommand(const Common& common) {
  const auto context = CERMET_TRY(makeContext(common));
  const std::string text = context->targetsJson();
  if (common.json) {
    fmt::print("{}\n", text);
    return {};
  }
  const json targets = json::parse(text);
  const auto orNone = [](const json& value) {
    return value.is_string() ? value.get<std::string>() : std::string("none");
  };
  fmt::print("compiles for  {}\n", joined(targets.at("targets")));
  for (const json& device : targets.at("devices"))
    fmt::print("device {}      {}, compute capability {}, {} multiprocessors: {}\n", device.at("ordinal").dump(),
               device.at("name").get<std::string>(), device.at("compute_capability").get<std::string>(),
               device.at("multiprocessors").dump(), orNone(device.at("target")));
  if (targets.at("driver").is_null())
    fmt::print("no CUDA       {}\n", orNone(targets.at("driver_problem")));
  else
    fmt::print("driver        {} (CUDA {}.{})\n", orNone(targets["driver"]["library"]),
               targets["driver"]["version"].get<int>() / 1000, targets["driver"]["version"].get<int>() % 1000 / 10);
  fmt::print("host          {}, {} threads\n", orNone(targets["host"]["target"]), targets["host"]["threads"].dump());
  fmt::print("compiler      {}\n", orNone(targets.at("compiler_library")));
  const std::string nvrtc = orNone(targets.at("nvrtc")), cache = orNone(targets.at("cache_directory"));
  fmt::print("NVRTC         {}\n", nvrtc.empty() ? "found by name" : nvrtc);
  fmt::print("cache         {}\n", cache.empty() ? "memory only" : cache);
  return {};
}

} // namespace cermet::tools
