#include "frontends/tools/Commands.h"
#include "frontends/tools/Output.h"
#include "runtime/device/Target.h"
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

namespace cermet::tools {

Result<std::shared_ptr<Context>> makeContext(const Common& common) {
  const Result<Config>& environment = Config::environment();
  if (!environment.ok())
    return environment.status();
  Config config = *environment;
  if (common.cacheDirectory || common.noCache) {
    config.cacheDirectory = common.noCache ? "" : *common.cacheDirectory;
    config.cacheProblem.clear();
  }
  config.nvrtcLibrary = common.nvrtcLibrary.value_or(config.nvrtcLibrary);
  config.dumpDirectory = common.dumpDirectory.value_or(config.dumpDirectory);
  return std::make_shared<Context>(std::move(config));
}

Status dumpStatus(Context& context) {
  std::string problem = context.dumpProblem();
  return problem.empty() ? Status() : Status(CERMET_INTERNAL, std::move(problem));
}

Result<std::string> readGraph(const std::string& file) {
  std::ifstream opened;
  if (file != "-")
    opened.open(file, std::ios::binary);
  std::ostringstream text;
  text << (file == "-" ? std::cin : opened).rdbuf();
  if (file != "-" && (!opened.is_open() || std::filesystem::is_directory(file)))
    return error(CERMET_INVALID_ARGUMENT, "cannot read '{}': {}", file,
                 opened.is_open() ? "it is a directory" : std::generic_category().message(errno));
  return text.str();
}

using Plans = std::vector<std::shared_ptr<const Plan>>;

// All kernels of all plans, several at once.
static Result<std::vector<Context::KernelImage>> compileKernels(Context& context, const Plans& plans) {
  std::vector<std::string> specs;
  for (const auto& plan : plans)
    for (const PlanStep& step : plan->steps)
      if (step.kind == StepKind::Kernel)
        specs.push_back(step.spec);
  return context.kernelImages(specs);
}

static void printPlans(const Plans& plans, const std::vector<Context::KernelImage>& images) {
  auto image = images.begin();
  for (const auto& plan : plans) {
    fmt::print("{} for {}: {} step{}\n", plan->name, plan->target, plan->steps.size(),
               plan->steps.size() == 1 ? "" : "s");
    for (const PlanStep& step : plan->steps) {
      if (step.kind == StepKind::External) {
        fmt::print("  {:<28} external, run by the caller\n", step.name);
        continue;
      }
      const int64_t took = image->compileMicroseconds;
      fmt::print("  {:<28} {:>8} bytes, {}\n", step.name, image->payload->size(),
                 took < 0 ? "from the cache" : fmt::format("compiled in {} ms", (took + 500) / 1000));
      ++image;
    }
  }
}

static void printCounters(const cermet_counters& counters) {
  fmt::print("plans: {} made in {} ms, {} from the directory; kernels: {} made in {} ms, {} from the directory; "
             "{} waits, {} removals, {} bytes read, {} written\n",
             counters.plans_compiled, counters.plan_compile_microseconds / 1000, counters.plans_from_directory,
             counters.kernels_compiled, counters.kernel_compile_microseconds / 1000, counters.kernels_from_directory,
             counters.cache_waits, counters.cache_removals, counters.cache_bytes_read, counters.cache_bytes_written);
}

Status compileCommand(const Common& common, const CompileOptions& options) {
  if (options.output && options.output->empty())
    return error(CERMET_INVALID_ARGUMENT, "--output is '', expected a directory or a name that ends in .json");
  const bool writesPlan = options.output && options.output->ends_with(".json");
  Common with = common;
  if (options.output && !writesPlan)
    with.cacheDirectory = options.output;
  const auto text = CERMET_TRY(readGraph(options.file));
  const auto context = CERMET_TRY(makeContext(with));
  std::vector<std::string> targets;
  for (const std::string& target : options.targets) {
    if (target != "all")
      targets.push_back(target);
    else
      for (const CudaTarget& each : kCudaTargets)
        targets.push_back(each.name);
  }
  if (writesPlan && targets.size() != 1)
    return error(CERMET_INVALID_ARGUMENT, "{} targets given, expected one when the plan is written to '{}'",
                 targets.size(), *options.output);
  Plans plans;
  for (const std::string& target : targets) {
    plans.push_back(CERMET_TRY(context->compile(text, target)));
  }
  const auto images = CERMET_TRY(compileKernels(*context, plans));
  printPlans(plans, images);
  printCounters(context->counters().snapshot());
  if (writesPlan)
    CERMET_RETURN_IF_ERROR(writeText(*options.output, plans.front()->json + '\n'));
  if (context->counters().cacheFailures > 0 && options.output)
    return error(CERMET_INTERNAL, "the cache directory '{}' could not be used", context->config().cacheDirectory);
  return dumpStatus(*context);
}

} // namespace cermet::tools
