// Caller: calls of the C interface in any order with any arguments, as numbers say that come from a seed or from a
// fuzzer: live handles, destroyed ones, NULL, counts and sizes that are wrong. Each must end in a status; a failure has
// a message and leaves its outputs as they were.
#pragma once
#include "tests/unit/frontends/c/Draws.h"
#include "tests/unit/frontends/c/LossCalls.h"
#include "tests/unit/runtime/Plans.h"
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace cermet {

class Caller : public Draws {
public:
  // Handles that are used like its own and destroyed by their owner, so that the first call may be a launch.
  struct Lent {
    std::vector<cermet_context*> contexts;
    std::vector<cermet_plan*> plans;
    std::vector<cermet_executable*> executables;
    std::vector<LossCalls::Loss> losses;
  };
  explicit Caller(Numbers numbers, Lent lent = {})
      : Draws(std::move(numbers)), lent_(std::move(lent)), contexts_(lent_.contexts), plans_(lent_.plans),
        executables_(lent_.executables), losses_(*this, lent_.losses) {}
  ~Caller() {
    for (auto* each : made(executables_, lent_.executables))
      cermet_executable_destroy(each);
    for (auto* each : made(plans_, lent_.plans))
      cermet_plan_destroy(each);
    for (auto* each : made(contexts_, lent_.contexts))
      cermet_context_destroy(each);
  }

  void call() {
    switch (below(18)) {
    case 0:
      return create();
    case 1:
      return destroy(made(contexts_, lent_.contexts), cermet_context_destroy, 6);
    case 2:
      return destroy(made(plans_, lent_.plans), cermet_plan_destroy, 2);
    case 3:
      return destroy(made(executables_, lent_.executables), cermet_executable_destroy, 2);
    case 4:
    case 5:
      return compile();
    case 6:
    case 7:
      return prepare();
    case 8:
      return describe();
    case 9:
      return ask();
    case 10:
      return external();
    case 11:
      return losses_.destroy();
    case 12:
      return losses_.prepare(any(contexts_));
    case 13:
    case 14:
      return losses_.launch();
    default:
      return launch();
    }
  }
  int lossesLaunched() const { return losses_.launched; }

private:
  void create() {
    cermet_context_options options{};
    options.size = someSize(sizeof(options));
    options.cache_directory = "";
    options.cache = rarely() ? "off" : below(2) ? "on" : nullptr;
    options.packs = rarely() ? "/nowhere/a.cpack" : nullptr;
    auto* context = untouched<cermet_context*>();
    if (ended(cermet_context_create(&options, rarely() ? nullptr : &context), "create", context,
              untouched<cermet_context*>()))
      contexts_.push_back(context);
  }
  // One in so many is destroyed; handles stay in the list, so they are used and destroyed again.
  template <typename Handle> void destroy(const std::vector<Handle*>& handles, void (*end)(Handle*), int in) {
    if (below(in) == 0)
      end(any(handles));
  }
  void compile() {
    static const std::string texts[] = {scalePlan().dump(), sumPlan().dump(), gatherPlan().dump(), externalPlan(),
                                        "fail 2 no",        "fail 3 never",   "fail 4 not here",   "fail 5 refused"};
    const std::string& text = texts[below(below(2) ? 8 : 4)];
    const char* targets[] = {"host", "auto", "sm_90", "sm_1", ""};
    auto* plan = untouched<cermet_plan*>();
    if (ended(cermet_compile(any(contexts_), rarely() ? nullptr : text.data(),
                             rarely() ? std::max<size_t>(number(64), CERMET_MAX_TEXT + 1) : text.size(),
                             targets[below(2) ? 0 : below(5)], rarely() ? nullptr : &plan),
              "compile", plan, untouched<cermet_plan*>()))
      plans_.push_back(plan);
  }
  void prepare() {
    auto* executable = untouched<cermet_executable*>();
    if (ended(cermet_prepare(any(contexts_), any(plans_), rarely() ? static_cast<int32_t>(number(32)) : 0,
                             rarely() ? nullptr : &executable),
              "prepare", executable, untouched<cermet_executable*>()))
      executables_.push_back(executable);
  }
  void describe() {
    cermet_value_info info{};
    info.size = someSize(sizeof(info));
    ended((below(2) ? cermet_plan_input : cermet_plan_output)(any(plans_), below(5) - 1, rarely() ? nullptr : &info),
          "describe", info.name, static_cast<const char*>(nullptr));
    cermet_plan_json(any(plans_));
    cermet_plan_input_count(any(plans_));
    cermet_context_cache_directory(any(contexts_));
  }
  void ask() {
    cermet_counters counters{};
    counters.size = rarely() ? 8 * static_cast<size_t>(below(20)) : sizeof(counters);
    ended(cermet_context_counters(any(contexts_), rarely() ? nullptr : &counters), "counters");
    const uint8_t wanted[4] = {1, 0, 1, 1};
    char* json = untouched<char*>();
    cermet_context* context = any(contexts_);
    const cermet_status status =
        below(2) ? cermet_match(context, rarely() ? nullptr : "a graph", 7, rarely() ? nullptr : &json)
                 : cermet_differentiate(context, "a graph", 7, rarely() ? nullptr : wanted, below(6) - 1, &json);
    if (ended(status, "ask", json, untouched<char*>()))
      cermet_string_free(json);
  }
  void external() {
    const auto runs = [](void*, const char*, const cermet_tensor*, int32_t, int32_t, void*) { return CERMET_OK; };
    ended(cermet_executable_set_external(any(executables_), rarely() ? nullptr : +runs, nullptr), "external");
  }
  void launch() {
    alignas(256) static float memory[3][1024];
    alignas(256) static char workspace[1 << 14];
    int64_t sizes[3][3], strides[3][3];
    cermet_tensor tensors[3];
    const int64_t extents[] = {1, 2, 2, 8, 8, 8, 0, -1, 9, int64_t(1) << 62};
    const bool right = below(2);
    for (int tensor = 0; tensor < 3; ++tensor) {
      const int rank = right ? (tensor == 1 ? 1 : 3) : below(5) - 1;
      for (int dim = 0; dim < 3; ++dim) {
        sizes[tensor][dim] = !right ? extents[below(10)] : rank == 1 || dim == 2 ? 8 : 2;
        strides[tensor][dim] = !right ? below(18) - 1 : dim == 0 ? 16 : dim == 1 ? 8 : 1;
      }
      if (right && rank == 1)
        strides[tensor][0] = 1;
      tensors[tensor] = {rarely() ? nullptr : memory[tensor], rarely() ? nullptr : sizes[tensor],
                         rarely() ? nullptr : strides[tensor], rank, rarely() ? below(14) - 1 : CERMET_F32};
      // What the launch may believe of a tensor it also reads and writes.
      for (int dim = 0; !right && dim < 3; ++dim)
        if (sizes[tensor][dim] > 8 || strides[tensor][dim] < 0)
          tensors[tensor].data = nullptr;
    }
    cermet_executable* executable = any(executables_);
    const int32_t count = rarely() ? below(6) - 1 : 3;
    size_t bytes = 0x5a5a;
    ended(cermet_workspace_size(executable, rarely() ? nullptr : tensors, std::min(count, 3),
                                rarely() ? nullptr : &bytes),
          "workspace size", bytes, size_t(0x5a5a));
    ended(cermet_launch(executable, nullptr, rarely() ? nullptr : tensors, std::min(count, 3),
                        rarely() ? nullptr : workspace + below(2) * 64, rarely() ? 0 : sizeof(workspace) - 64),
          "launch");
  }
  static std::string externalPlan() {
    Json json = scalePlan();
    json["steps"][0] = {{"kind", "external"}, {"op", "frob"}, {"operands", {0, 1}}, {"results", {2}}};
    return json.dump();
  }

  const Lent lent_; // the first of each of what follows
  std::vector<cermet_context*> contexts_;
  std::vector<cermet_plan*> plans_;
  std::vector<cermet_executable*> executables_;
  LossCalls losses_;
};

} // namespace cermet
