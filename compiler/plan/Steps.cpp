#include "compiler/plan/Steps.h"
#include "compiler/cuda/Emit.h"
#include "compiler/host/HostTarget.h"
#include "compiler/program/Target.h"
#include "runtime/abi/RowArguments.h"
#include "llvm/ADT/STLExtras.h"

namespace cermet {
namespace {

constexpr size_t kMaxBetween =
    128; // steps between two that may become one: what they share is far in the past behind more

bool meet(const std::vector<int>& a, const std::vector<int>& b) {
  return llvm::any_of(a, [&](int value) { return llvm::is_contained(b, value); });
}

} // namespace

void PlanSteps::addExternal(Json step) {
  steps.emplace_back().external = std::move(step);
}

void PlanSteps::addKernel(ScheduledProgram program, size_t operations, Json operands) {
  Step& step = steps.emplace_back();
  step.operations = operations;
  step.programs.push_back({std::move(program), std::move(operands)});
}

// Programs of one kind: streams keep no row, and a row's registers would cost a stream its resident blocks. What they
// share must be worth it: a tensor that both read, or have parts of; a column or a scalar is cheap to read twice.
bool PlanSteps::mayJoin(const Step& first, const Step& second) {
  if (first.programs.size() + second.programs.size() > size_t(kMaxPrograms) || !meet(first.rows, second.rows))
    return false;
  size_t bytes = 0; // of their argument
  for (const Step* step : {&first, &second})
    for (const Program& each : step->programs)
      bytes += argumentBytes(each.scheduled.program.operands.size());
  if (bytes > kMaxArgumentBytes)
    return false;
  const ScheduledProgram& like = first.programs[0].scheduled;
  auto fits = [&](const Program& each) {
    return mayStandBeside(each.scheduled, like) && each.scheduled.program.reduces() == like.program.reduces();
  };
  return llvm::all_of(first.programs, fits) && llvm::all_of(second.programs, fits);
}

void PlanSteps::join(Step& into, Step& from) {
  for (Program& program : from.programs)
    into.programs.push_back(std::move(program));
  into.operations += from.operations;
  llvm::append_range(into.reads, from.reads);
  llvm::append_range(into.writes, from.writes);
  llvm::append_range(into.rows, from.rows);
}

// Joins the kernel with a later one: that one is brought forward where it needs nothing in between, or else this one is
// held back where nothing in between needs it. Not past an external step: that may write what this one reads.
bool PlanSteps::joinNext(std::list<Step>::iterator first) {
  Step& step = *first;
  bool mayWait = true;
  size_t distance = 0;
  for (auto next = std::next(first); next != steps.end() && distance < kMaxBetween; ++next, ++distance) {
    Step& other = *next;
    mayWait = mayWait && !other.programs.empty() && !meet(step.writes, other.reads);
    if (other.programs.empty() || !mayJoin(step, other))
      continue;
    auto between = llvm::make_range(first, next);
    if (llvm::none_of(between, [&](const Step& it) { return meet(it.writes, other.reads); })) {
      join(step, other);
      steps.erase(next);
      return true;
    }
    if (mayWait) {
      join(step, other);
      other = std::move(step);
      return true;
    }
  }
  return false;
}

void PlanSteps::joinKernels(llvm::function_ref<int(int)> rootOf) {
  for (Step& step : steps) {
    for (const Program& program : step.programs)
      for (const Json& operand : program.operands) {
        if (!operand.contains("value"))
          continue;
        const int root = rootOf(operand["value"].get<int>());
        (operand["output"].get<bool>() ? step.writes : step.reads).push_back(root);
        if (operand["kind"] != "column" && operand["kind"] != "scalar")
          step.rows.push_back(root);
      }
    if (!step.programs.empty())
      continue;
    for (const Json& value : step.external["operands"])
      step.reads.push_back(rootOf(value.get<int>()));
    for (const Json& value : step.external["results"])
      step.writes.push_back(rootOf(value.get<int>()));
  }
  for (auto step = steps.begin(); step != steps.end();) {
    const bool isKernel = !step->programs.empty();
    if (!isKernel || !joinNext(step))
      ++step;
    else if (step->programs.empty()) // it was held back
      step = steps.erase(step);
  }
}

std::string PlanSteps::programs() const {
  std::string text;
  for (const Step& step : steps)
    for (const Program& program : step.programs)
      text += print(program.scheduled.program) + "\n";
  return text;
}

PlanSteps::Json PlanSteps::kernelJson(const Step& step, const std::string& target) {
  KernelSpec spec{target, "traced", {}};
  Json programs = Json::array();
  for (const Program& each : step.programs) {
    const auto& [program, schedule] = each.scheduled;
    const bool inGroups = schedule.skeleton != Skeleton::Flat;
    const auto accumulators =
        !each.scheduled.folds() ? 0 : llvm::count_if(program.operands, [](const Operand& operand) {
          return operand.isOutput && operand.kind == OperandKind::Column;
        });
    spec.programs.push_back(each.scheduled);
    programs.push_back({{"skeleton", name(schedule.skeleton)},
                        {"columns", program.columns},
                        {"rows_per_block", inGroups ? schedule.threads / schedule.threadsPerRow : 1},
                        {"vector", schedule.vector},
                        {"blocks_per_sm", schedule.blocksPerSm},
                        {"accumulators", accumulators},
                        {"operands", each.operands}});
  }
  Json entries;
  if (isHostTarget(target)) {
    const HostEntries host = hostEntries(spec);
    entries = {{"vector", host.main}, {"scalar", host.main}, {"fold", host.fold}};
  } else {
    const KernelEntries cuda = kernelEntries(spec);
    entries = {{"vector", cuda.vector}, {"scalar", cuda.scalar}, {"fold", cuda.fold}};
  }
  Json json{{"kind", "kernel"},
            {"name", spec.name()},
            {"operations", step.operations},
            {"spec", print(spec)},
            {"threads", spec.programs[0].schedule.threads},
            {"shared_bytes", spec.sharedBytes()},
            {"entries", entries}};
  if (programs.size() == 1)
    json.update(programs[0]);
  else
    json["programs"] = programs;
  return json;
}

PlanSteps::Json PlanSteps::take(const std::string& target) {
  Json result = Json::array();
  for (Step& step : steps)
    result.push_back(step.programs.empty() ? std::move(step.external) : kernelJson(step, target));
  return result;
}

} // namespace cermet
