// The table of libcermet_compiler (runtime/abi/CompilerApi.h). Every call has an MLIR context of its own, so calls from
// several threads share nothing but NVRTC. No exception leaves: what is not an answer becomes CERMET_INTERNAL.
#include "BuildId.h"
#include "runtime/abi/CompilerApi.h"
#include "compiler/program/Dump.h"
#include "compiler/cuda/Emit.h"
#include "compiler/Queries.h"
#include "compiler/host/HostTarget.h"
#include "compiler/cuda/Nvrtc.h"
#include "compiler/plan/Plan.h"
#include "compiler/program/Target.h"
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fmt/format.h>

namespace {

using namespace cermet;

// False where there is no memory.
bool fill(cermet_buffer* buffer, const std::string& content) noexcept {
  if (!buffer)
    return true;
  buffer->data = static_cast<char*>(std::malloc(content.size() + 1));
  buffer->size = buffer->data ? content.size() : 0;
  if (buffer->data)
    std::memcpy(buffer->data, content.c_str(), content.size() + 1);
  return buffer->data != nullptr;
}

// Runs one entry of the table: `body` fills the answer or the error and returns the status.
template <typename Body>
cermet_status answering(cermet_buffer* answer, cermet_buffer* error, const Body& body) noexcept {
  try {
    std::string result, message;
    cermet_status status = CERMET_INTERNAL;
    try {
      status = body(result, message);
    } catch (const std::exception& exception) {
      message = fmt::format("the compiler failed: {}", exception.what());
    } catch (...) {
      message = "the compiler failed: something that is no std::exception was thrown";
    }
    if (status == CERMET_OK && fill(answer, result))
      return status;
    if (status == CERMET_OK)
      fill(error, "out of memory"); // short enough for no allocation
    else
      fill(error, message.empty() ? "the compiler gave no reason" : message);
    return status == CERMET_OK ? CERMET_INTERNAL : status;
  } catch (...) { // not even a message could be made
    return CERMET_INTERNAL;
  }
}

Dump dumpOf(const cermet_compiler_options* options) {
  if (!options || !options->dump_directory)
    return {};
  return {options->dump_directory, [told = options->dump_failed, user = options->user](const std::string& what) {
            if (told)
              told(user, what.c_str());
          }};
}

cermet_status readSpec(const char* text, size_t length, KernelSpec& spec, std::string& message) {
  message = parse(std::string(text, length), spec);
  if (!message.empty())
    return CERMET_INVALID_ARGUMENT;
  message = checkTarget(spec.target);
  return message.empty() ? CERMET_OK : CERMET_UNSUPPORTED;
}

cermet_status compile(const char* text, size_t length, const char* target, const cermet_compiler_options* options,
                      cermet_buffer* answer, cermet_buffer* error) {
  return answering(answer, error, [&](std::string& json, std::string& message) {
    return compileGraph({text, length}, target, dumpOf(options), json, message);
  });
}

cermet_status match(const char* text, size_t length, const cermet_compiler_options* options, cermet_buffer* answer,
                    cermet_buffer* error) {
  return answering(answer, error, [&](std::string& json, std::string& message) {
    return matchGraph({text, length}, dumpOf(options), json, message);
  });
}

cermet_status differentiate(const char* text, size_t length, const uint8_t* wanted, int32_t count,
                            const cermet_compiler_options* options, cermet_buffer* answer, cermet_buffer* error) {
  return answering(answer, error, [&](std::string& json, std::string& message) {
    return differentiateGraph({text, length}, wanted, count, dumpOf(options), json, message);
  });
}

cermet_status linearLoss(const char* text, size_t length, const uint8_t* wanted, int32_t count,
                         const cermet_compiler_options* options, cermet_buffer* answer, cermet_buffer* error) {
  return answering(answer, error, [&](std::string& json, std::string& message) {
    return linearLossOf({text, length}, wanted, count, dumpOf(options), json, message);
  });
}

cermet_status buildKernel(const char* text, size_t length, const cermet_compiler_options* options, cermet_buffer* image,
                          int32_t* nvrtcVersion, cermet_buffer* error) {
  return answering(image, error, [&](std::string& result, std::string& message) {
    KernelSpec spec;
    if (cermet_status status = readSpec(text, length, spec, message))
      return status;
    Dump dump = dumpOf(options);
    *nvrtcVersion = 0;
    if (isHostTarget(spec.target)) {
      bool built = buildHostKernel(spec, dump, result, message);
      if (dump.enabled()) {
        std::string ignored;
        dump.writeKernel(spec, hostKernelSource(spec, ignored), message, "", result);
      }
      return built ? CERMET_OK : CERMET_COMPILE_FAILED;
    }
    CudaBinary binary;
    std::string source = emitCuda(spec);
    std::string library = options && options->nvrtc_library ? options->nvrtc_library : "";
    cermet_status status = compileCuda(source, spec.name(), spec.target, library, binary, message);
    dump.writeKernel(spec, source, binary.log, binary.ptx, binary.cubin);
    *nvrtcVersion = binary.nvrtcVersion;
    result = std::move(binary.cubin);
    return status;
  });
}

cermet_status kernelSource(const char* text, size_t length, cermet_buffer* answer, cermet_buffer* error) {
  return answering(answer, error, [&](std::string& result, std::string& message) {
    KernelSpec spec;
    if (cermet_status status = readSpec(text, length, spec, message))
      return status;
    result = isHostTarget(spec.target) ? hostKernelSource(spec, message) : emitCuda(spec);
    return result.empty() ? CERMET_COMPILE_FAILED : CERMET_OK;
  });
}

cermet_status interpret(const char* text, size_t length, int32_t honourCasts, const cermet_tensor* tensors,
                        int32_t count, cermet_buffer* error) {
  return answering(nullptr, error, [&](std::string&, std::string& message) {
    return interpretGraph({text, length}, honourCasts != 0, tensors, count, message);
  });
}

void release(cermet_buffer* buffer) {
  if (!buffer)
    return;
  std::free(buffer->data);
  *buffer = {nullptr, 0};
}

} // namespace

extern "C" const cermet_compiler_table* cermet_compiler_table_v1(void) {
  static const cermet_compiler_table table = {1,          CERMET_BUILD_ID, compile,      match,     differentiate,
                                              linearLoss, buildKernel,     kernelSource, interpret, release};
  return &table;
}
