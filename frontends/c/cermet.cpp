// The C interface: checks of pointers, handles, and the last failure's text. What it does is the runtime's.
#include "frontends/c/cermet.h"
#include "BuildId.h"
#include "frontends/c/Guard.h"
#include "frontends/c/Sized.h"
#include "runtime/context/Facts.h"
#include <cstdlib>
#include <cstring>
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace {

using namespace cermet::guard;
using cermet::Config;
using cermet::error;
using cermet::Handles;
using cermet::readSized;
using cermet::Result;
using cermet::Status;
using cermet::writeSized;

Status giveString(const std::string& text, char** out) {
  char* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (!copy)
    return {CERMET_INTERNAL, "out of memory"};
  std::memcpy(copy, text.c_str(), text.size() + 1);
  *out = copy;
  return {};
}

void override(std::string& setting, const char* value) {
  if (value)
    setting = value;
}

Status describeValue(const char* function, const cermet::Plan& plan, int32_t index, int first, int count,
                     const char* kind, cermet_value_info* info) {
  if (index < 0 || index >= count)
    return error(CERMET_INVALID_ARGUMENT, "{}: {} {} does not exist, the plan has {}", plan.name, kind, index, count);
  const cermet::PlanValue& value = plan.values[first + index];
  cermet_value_info described{};
  described.name = value.name.c_str();
  described.dtype = value.dtype;
  described.rank = value.rank;
  for (int dim = 0; dim < value.rank; ++dim) {
    described.sizes[dim] = value.dims[dim].size;
    described.symbols[dim] = value.dims[dim].symbolic() ? plan.symbols[value.dims[dim].symbol].c_str() : nullptr;
  }
  return writeSized(function, "cermet_value_info", described, info);
}

} // namespace

const char* cermet_error_message(void) {
  return lastMessage().c_str();
}

const char* cermet_status_name(cermet_status status) {
  switch (status) {
  case CERMET_OK:
    return "OK";
  case CERMET_INVALID_ARGUMENT:
    return "INVALID_ARGUMENT";
  case CERMET_INVALID_GRAPH:
    return "INVALID_GRAPH";
  case CERMET_UNSUPPORTED:
    return "UNSUPPORTED";
  case CERMET_NOT_FOUND:
    return "NOT_FOUND";
  case CERMET_COMPILE_FAILED:
    return "COMPILE_FAILED";
  case CERMET_DRIVER_ERROR:
    return "DRIVER_ERROR";
  case CERMET_CAPTURING:
    return "CAPTURING";
  case CERMET_INTERNAL:
    return "INTERNAL";
  case CERMET_OUT_OF_RANGE:
    return "OUT_OF_RANGE";
  case CERMET_NOT_STORED:
    return "NOT_STORED";
  }
  return "unknown status";
}

int32_t cermet_error_index(int64_t* row, int64_t* number, int64_t* bound) {
  if (lastFailure() != CERMET_OUT_OF_RANGE || !row || !number || !bound)
    return -1;
  const cermet::HostFault& fault = cermet::Executable::lastFault();
  if (fault.row < 0)
    return -1;
  *row = fault.row;
  *number = fault.number;
  *bound = fault.bound;
  return fault.isColumn ? 1 : 0;
}

const char* cermet_version(void) {
  return "0.1.0+" CERMET_BUILD_ID;
}

cermet_status cermet_context_create(const cermet_context_options* options, cermet_context** context) {
  return guarded([&]() -> Status {
    CERMET_REQUIRE_IN("cermet_context_create", context);
    cermet_context_options chosen{};
    if (options)
      CERMET_RETURN_IF_ERROR(readSized("cermet_context_create: options", "cermet_context_options", options, chosen));
    const cermet::ForkSection section; // a fork does not find the environment half read
    const Result<Config>& environment = Config::environment();
    if (!environment.ok())
      return environment.status();
    Config config = *environment;
    override(config.cacheDirectory, chosen.cache_directory);
    if (chosen.cache_directory)
      config.cacheProblem.clear();
    override(config.nvrtcLibrary, chosen.nvrtc_library);
    override(config.dumpDirectory, chosen.dump_directory);
    override(config.packs, chosen.packs);
    if (chosen.cache)
      CERMET_RETURN_IF_ERROR(cermet::parseCache(chosen.cache, config, "cermet_context_create: options->cache"));
    if (chosen.log)
      CERMET_RETURN_IF_ERROR(cermet::parseLog(chosen.log, config, "cermet_context_create: options->log"));
    config.events = {chosen.on_event, chosen.event_user};
    auto created = CERMET_TRY(cermet::Context::create(std::move(config)));
    *context = Handles<cermet_context>::make(std::move(created));
    return {};
  });
}

void cermet_context_destroy(cermet_context* context) {
  Handles<cermet_context>::destroy(context);
}

const char* cermet_context_cache_directory(const cermet_context* context) {
  return isAlive(context) ? (*context)->config().cacheDirectory.c_str() : "";
}

cermet_status cermet_context_write_pack(cermet_context* context, const char* path, char** json) {
  return guarded([&]() -> Status {
    CERMET_REQUIRE_CONTEXT("cermet_context_write_pack");
    CERMET_REQUIRE_IN("cermet_context_write_pack", path);
    CERMET_REQUIRE_IN("cermet_context_write_pack", json);
    const auto written = CERMET_TRY((*context)->writePack(path));
    return giveString(fmt::format(R"({{"entries": {}, "bytes": {}, "digest": "{}"}})", written.entries, written.bytes,
                                  written.digest),
                      json);
  });
}

cermet_status cermet_context_counters(const cermet_context* context, cermet_counters* counters) {
  return guarded([&]() -> Status {
    CERMET_REQUIRE_HANDLE("cermet_context_counters", context);
    CERMET_REQUIRE_IN("cermet_context_counters", counters);
    return writeSized("cermet_context_counters: counters", "cermet_counters", (*context)->counters().snapshot(),
                      counters);
  });
}

cermet_status cermet_compile(cermet_context* context, const char* text, size_t length, const char* target,
                             cermet_plan** plan) {
  return guarded([&]() -> Status {
    CERMET_REQUIRE_CONTEXT("cermet_compile");
    CERMET_REQUIRE_IN("cermet_compile", text);
    CERMET_REQUIRE_IN("cermet_compile", target);
    CERMET_REQUIRE_IN("cermet_compile", plan);
    auto compiled = CERMET_TRY((*context)->compile({text, length}, target));
    *plan = Handles<cermet_plan>::make(std::move(compiled));
    return {};
  });
}

void cermet_plan_destroy(cermet_plan* plan) {
  Handles<cermet_plan>::destroy(plan);
}

const char* cermet_plan_json(const cermet_plan* plan) {
  return isAlive(plan) ? (*plan)->json.c_str() : "";
}
int32_t cermet_plan_input_count(const cermet_plan* plan) {
  return isAlive(plan) ? (*plan)->inputs : 0;
}
int32_t cermet_plan_output_count(const cermet_plan* plan) {
  return isAlive(plan) ? (*plan)->outputs : 0;
}

cermet_status cermet_plan_input(const cermet_plan* plan, int32_t index, cermet_value_info* info) {
  return guarded([&]() -> Status {
    CERMET_REQUIRE_HANDLE("cermet_plan_input", plan);
    CERMET_REQUIRE_IN("cermet_plan_input", info);
    return describeValue("cermet_plan_input: info", **plan, index, 0, (*plan)->inputs, "input", info);
  });
}

cermet_status cermet_plan_output(const cermet_plan* plan, int32_t index, cermet_value_info* info) {
  return guarded([&]() -> Status {
    CERMET_REQUIRE_HANDLE("cermet_plan_output", plan);
    CERMET_REQUIRE_IN("cermet_plan_output", info);
    return describeValue("cermet_plan_output: info", **plan, index, (*plan)->inputs, (*plan)->outputs, "output", info);
  });
}

cermet_status cermet_match(cermet_context* context, const char* text, size_t length, char** json) {
  return guarded([&]() -> Status {
    CERMET_REQUIRE_CONTEXT("cermet_match");
    CERMET_REQUIRE_IN("cermet_match", text);
    CERMET_REQUIRE_IN("cermet_match", json);
    const Result<std::string> answer = (*context)->match({text, length});
    return answer.ok() ? giveString(*answer, json) : answer.status();
  });
}

cermet_status cermet_differentiate(cermet_context* context, const char* text, size_t length, const uint8_t* wanted,
                                   int32_t count, char** json) {
  return guarded([&]() -> Status {
    CERMET_REQUIRE_CONTEXT("cermet_differentiate");
    CERMET_REQUIRE_IN("cermet_differentiate", text);
    CERMET_REQUIRE_IN("cermet_differentiate", json);
    CERMET_REQUIRE_ARRAY("cermet_differentiate", wanted, count);
    if (count < 0 || static_cast<size_t>(count) > length) // an input takes more than a byte of text
      return error(CERMET_INVALID_ARGUMENT, "cermet_differentiate: count is {}, expected one for each input", count);
    const Result<std::string> answer =
        (*context)->differentiate({text, length}, std::vector<uint8_t>(wanted, wanted + count));
    return answer.ok() ? giveString(*answer, json) : answer.status();
  });
}

cermet_status cermet_kernel_source(cermet_context* context, const char* spec, size_t length, char** source) {
  return guarded([&]() -> Status {
    CERMET_REQUIRE_CONTEXT("cermet_kernel_source");
    CERMET_REQUIRE_IN("cermet_kernel_source", spec);
    CERMET_REQUIRE_IN("cermet_kernel_source", source);
    if (length > CERMET_MAX_TEXT)
      return error(CERMET_INVALID_ARGUMENT, "cermet_kernel_source: the spec has {} bytes, expected at most {}", length,
                   CERMET_MAX_TEXT);
    const Result<std::string> answer = (*context)->compiler().kernelSource({spec, length});
    return answer.ok() ? giveString(*answer, source) : answer.status();
  });
}

const char* cermet_facts(void) {
  try {
    return cermet::factsJson().c_str();
  } catch (...) { // out of memory
    return "";
  }
}

cermet_status cermet_settings(char** json) {
  return guarded([&]() -> Status {
    CERMET_REQUIRE_IN("cermet_settings", json);
    const Result<Config> config = Config::now();
    return config.ok() ? giveString(settingsJson(*config), json) : config.status();
  });
}

int64_t cermet_text_key(const char* text, size_t length) {
  if (!text || length > CERMET_MAX_TEXT)
    return -1;
  return static_cast<int64_t>(XXH3_64bits(text, length) >> 1);
}

void cermet_string_free(char* text) {
  std::free(text);
}

cermet_status cermet_compile_kernels(cermet_context* context, const cermet_plan* plan) {
  return guarded([&]() -> Status {
    CERMET_REQUIRE_CONTEXT("cermet_compile_kernels");
    CERMET_REQUIRE_HANDLE("cermet_compile_kernels", plan);
    return (*context)->kernelImages((*plan)->specs()).status();
  });
}

cermet_status cermet_prepare(cermet_context* context, const cermet_plan* plan, int32_t device,
                             cermet_executable** executable) {
  return guarded([&]() -> Status {
    CERMET_REQUIRE_CONTEXT("cermet_prepare");
    CERMET_REQUIRE_HANDLE("cermet_prepare", plan);
    CERMET_REQUIRE_IN("cermet_prepare", executable);
    auto prepared = CERMET_TRY(cermet::Executable::prepare(context->shared(), plan->shared(), device));
    *executable = Handles<cermet_executable>::make(std::move(prepared));
    return {};
  });
}

void cermet_executable_destroy(cermet_executable* executable) {
  Handles<cermet_executable>::destroy(executable);
}

cermet_status cermet_workspace_size(const cermet_executable* executable, const cermet_tensor* tensors, int32_t count,
                                    size_t* size) {
  return guarded([&]() -> Status {
    CERMET_REQUIRE_HANDLE("cermet_workspace_size", executable);
    CERMET_REQUIRE_ARRAY("cermet_workspace_size", tensors, count);
    CERMET_REQUIRE_IN("cermet_workspace_size", size);
    return (*executable)->workspaceSize(tensors, count, size);
  });
}

cermet_status cermet_launch(const cermet_executable* executable, void* stream, const cermet_tensor* tensors,
                            int32_t count, void* workspace, size_t workspace_size) {
  return guarded([&]() -> Status {
    CERMET_REQUIRE_HANDLE("cermet_launch", executable);
    CERMET_REQUIRE_ARRAY("cermet_launch", tensors, count);
    const auto kept = (*executable)->callsBack() ? executable->shared() : nullptr; // if the callback destroys it
    return (*executable)->launch(stream, tensors, count, workspace, workspace_size);
  });
}

cermet_status cermet_executable_set_external(cermet_executable* executable, cermet_external callback, void* user) {
  return guarded([&]() -> Status {
    CERMET_REQUIRE_HANDLE("cermet_executable_set_external", executable);
    (*executable)->setExternal(callback, user);
    return {};
  });
}

cermet_status cermet_targets(cermet_context* context, char** json) {
  return guarded([&]() -> Status {
    CERMET_REQUIRE_CONTEXT("cermet_targets");
    CERMET_REQUIRE_IN("cermet_targets", json);
    return giveString((*context)->targetsJson(), json);
  });
}
