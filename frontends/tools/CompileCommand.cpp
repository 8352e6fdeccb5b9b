#include "frontends/tools/Commands.h"
#include "frontends/tools/Entries.h"
#include "frontends/tools/Output.h"
#include "runtime/abi/ElementType.h"
#include "runtime/device/Target.h"
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
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
  return Context::create(std::move(config));
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
    for (std::string& spec : plan->specs())
      specs.push_back(std::move(spec));
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
  fmt::print("plans: {} made in {} ms, {} from packs, {} from the directory; kernels: {} made in {} ms, {} from packs, "
             "{} from the directory; {} waits, {} removals, {} bytes read, {} written\n",
             counters.plans_compiled, counters.plan_compile_microseconds / 1000, counters.plans_from_packs,
             counters.plans_from_directory, counters.kernels_compiled, counters.kernel_compile_microseconds / 1000,
             counters.kernels_from_packs, counters.kernels_from_directory, counters.cache_waits,
             counters.cache_removals, counters.cache_bytes_read, counters.cache_bytes_written);
}

namespace {

// What one command compiles: the plans of all texts for all targets, and what frontends ask beside them.
class Compilation {
public:
  Compilation(Context& context, const std::vector<std::string>& given) : context_(context) {
    for (const std::string& target : given) {
      if (target != "all")
        targets.push_back(target);
      else
        for (const CudaTarget& each : kCudaTargets)
          targets.push_back(each.name);
    }
  }

  Status add(const std::string& text) {
    for (const std::string& target : targets)
      plans.push_back(CERMET_TRY(context_.compile(text, target)));
    return {};
  }

  // What a frontend asks of a graph: its regions, and of the whole and of each region the plan, the gradient for all
  // inputs that have one, and the plans of that.
  Status addForFrontend(const std::string& text) {
    CERMET_RETURN_IF_ERROR(addWithGradient(text));
    const auto match = nlohmann::json::parse(CERMET_TRY(context_.match(text)));
    for (const auto& region : match.at("regions"))
      CERMET_RETURN_IF_ERROR(addWithGradient(region.at("text")));
    return {};
  }

  std::vector<std::string> targets;
  Plans plans;

private:
  Status addWithGradient(const std::string& text) {
    const size_t first = plans.size();
    CERMET_RETURN_IF_ERROR(add(text));
    const Plan& plan = *plans[first];
    std::vector<uint8_t> wanted;
    for (int input = 0; input < plan.inputs; ++input)
      wanted.push_back(kElementTypes[plan.values[input].dtype].format.valueClass == ValueClass::Real);
    if (std::find(wanted.begin(), wanted.end(), 1) == wanted.end())
      return {};
    const Result<std::string> answer = context_.differentiate(text, wanted);
    if (!answer.ok()) { // which a frontend is told, too, and leaves the region to others
      fmt::print("{} has no gradient: {}\n", plan.name, answer.status().message());
      return {};
    }
    const auto gradient = nlohmann::json::parse(*answer);
    CERMET_RETURN_IF_ERROR(add(gradient.at("forward")));
    CERMET_RETURN_IF_ERROR(add(gradient.at("backward")));
    for (const auto& parts : gradient.value("row_parts", nlohmann::json::object()))
      if (parts.is_object())
        for (const auto& part : parts)
          CERMET_RETURN_IF_ERROR(add(part.at("text")));
    return {};
  }

  Context& context_;
};

enum class Output { Nowhere, Directory, Plan, Pack };

Output kindOf(const std::optional<std::string>& output) {
  if (!output)
    return Output::Nowhere;
  if (output->ends_with(".json"))
    return Output::Plan;
  return output->ends_with(kPackSuffix) ? Output::Pack : Output::Directory;
}

} // namespace

Status compileCommand(const Common& common, const CompileOptions& options) {
  if (options.output && options.output->empty())
    return error(CERMET_INVALID_ARGUMENT, "--output is '', expected a directory or a name that ends in .json or {}",
                 kPackSuffix);
  const Output output = kindOf(options.output);
  Common with = common;
  if (output == Output::Directory)
    with.cacheDirectory = options.output;
  std::vector<std::string> texts;
  for (const std::string& file : options.files)
    texts.push_back(CERMET_TRY(readGraph(file)));
  const auto context = CERMET_TRY(makeContext(with));
  Compilation work(*context, options.targets);
  if (output == Output::Plan && (work.targets.size() != 1 || texts.size() != 1 || options.frontend))
    return error(CERMET_INVALID_ARGUMENT,
                 "{} targets and {} graphs given{}, expected one of each when the plan is written to '{}'",
                 work.targets.size(), texts.size(), options.frontend ? " with --frontend" : "", *options.output);
  for (const std::string& text : texts)
    CERMET_RETURN_IF_ERROR(options.frontend ? work.addForFrontend(text) : work.add(text));
  const auto images = CERMET_TRY(compileKernels(*context, work.plans));
  printPlans(work.plans, images);
  printCounters(context->counters().snapshot());
  if (output == Output::Plan)
    CERMET_RETURN_IF_ERROR(writeText(*options.output, work.plans.front()->json + '\n'));
  if (output == Output::Pack)
    printWritten(*options.output, CERMET_TRY(context->writePack(*options.output)));
  if (context->counters().cacheFailures > 0 && output == Output::Directory)
    return error(CERMET_INTERNAL, "the cache directory '{}' could not be used", context->config().cacheDirectory);
  return dumpStatus(*context);
}

} // namespace cermet::tools
