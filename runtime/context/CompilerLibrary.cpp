#include "runtime/context/CompilerLibrary.h"
#include "BuildId.h"
#include "runtime/support/Fork.h"
#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <unistd.h>

namespace cermet {

namespace {

constexpr const char* kLibraryName = "libcermet_compiler.so";
constexpr uint32_t kTableVersion = 1;

// A buffer of the compiler library's, released with it.
class Buffer {
public:
  explicit Buffer(const cermet_compiler_table& table) : table_(table) {}
  ~Buffer() {
    if (buffer_.data)
      table_.release(&buffer_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  cermet_buffer* out() { return &buffer_; }
  std::string text() const { return buffer_.data ? std::string(buffer_.data, buffer_.size) : std::string(); }

private:
  const cermet_compiler_table& table_;
  cermet_buffer buffer_{nullptr, 0};
};

Status failure(cermet_status status, const char* what, const Buffer& text) {
  std::string message = text.text();
  if (message.empty())
    message = fmt::format("the compiler library's {} failed without a message", what);
  return {status, std::move(message)};
}

} // namespace

std::string CompilerLibrary::path(const Config& config) {
  if (!config.compilerLibrary.empty())
    return config.compilerLibrary;
  Dl_info self{};
  std::error_code failure;
  std::filesystem::path code;
  if (dladdr(reinterpret_cast<const void*>(&CompilerLibrary::path), &self) && self.dli_fname &&
      std::strchr(self.dli_fname, '/'))
    code = std::filesystem::canonical(self.dli_fname, failure);
  if (code.empty()) // a program that the shell found by its name
    code = std::filesystem::canonical("/proc/self/exe", failure);
  const std::string folder = code.parent_path().string();
  const std::string beside = fmt::format("{}/{}", folder, kLibraryName);
  const std::string installed = fmt::format("{}/" CERMET_LIBRARY_FOLDER "/{}", folder, kLibraryName);
  return access(beside.c_str(), F_OK) != 0 && access(installed.c_str(), F_OK) == 0 ? installed : beside;
}

Result<const cermet_compiler_table*> CompilerLibrary::open() {
  std::lock_guard lock(mutex_);
  if (table_)
    return table_;
  const std::string file = path(config_);
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* cause = dlerror();
    return error(CERMET_NOT_FOUND,
                 "this graph or kernel is in no cache and the compiler library cannot be opened: {}; install {} beside "
                 "libcermet or set CERMET_COMPILER_LIBRARY",
                 cause ? cause : file, kLibraryName);
  }
  using TableFunction = const cermet_compiler_table* (*)();
  const auto function = reinterpret_cast<TableFunction>(dlsym(library, "cermet_compiler_table_v1"));
  const cermet_compiler_table* table = function ? function() : nullptr;
  if (!table || table->table_version != kTableVersion)
    return error(CERMET_NOT_FOUND, "'{}' is no compiler library of this version; install both from one build", file);
  if (std::string_view(table->build_id) != CERMET_BUILD_ID)
    return error(CERMET_NOT_FOUND, "'{}' is of build {}, libcermet is of build {}; install both from one build", file,
                 table->build_id, CERMET_BUILD_ID);
  table_ = table;
  return table;
}

template <typename Call> Result<std::string> CompilerLibrary::ask(const char* what, const Call& call) {
  // The compiler's own locks and threads would not survive a fork.
  const ForkSection section;
  CERMET_RETURN_IF_ERROR(checkNotCutByFork());
  const auto table = CERMET_TRY(open());
  const auto dumpFailed = [](void* user, const char* what) noexcept {
    try {
      static_cast<CompilerLibrary*>(user)->dumpFailed_(what);
    } catch (...) { // no memory for the message
    }
  };
  const cermet_compiler_options options{config_.nvrtcLibrary.c_str(), config_.dumpDirectory.c_str(), dumpFailed, this};
  Buffer answer(*table), text(*table);
  const cermet_status status = call(*table, &options, answer.out(), text.out());
  if (status != CERMET_OK)
    return failure(status, what, text);
  return answer.text();
}

Result<std::string> CompilerLibrary::compile(std::string_view text, const std::string& target) {
  return ask("compile", [&](auto& table, auto* options, cermet_buffer* answer, cermet_buffer* failure) {
    return table.compile(text.data(), text.size(), target.c_str(), options, answer, failure);
  });
}

Result<std::string> CompilerLibrary::match(std::string_view text) {
  return ask("match", [&](auto& table, auto* options, cermet_buffer* answer, cermet_buffer* failure) {
    return table.match(text.data(), text.size(), options, answer, failure);
  });
}

Result<std::string> CompilerLibrary::differentiate(std::string_view text, const std::vector<uint8_t>& wanted) {
  return ask("differentiate", [&](auto& table, auto* options, cermet_buffer* answer, cermet_buffer* failure) {
    return table.differentiate(text.data(), text.size(), wanted.data(), static_cast<int32_t>(wanted.size()), options,
                               answer, failure);
  });
}

Result<std::string> CompilerLibrary::linearLoss(std::string_view text, const std::vector<uint8_t>& wanted) {
  return ask("linear_loss", [&](auto& table, auto* options, cermet_buffer* answer, cermet_buffer* failure) {
    return table.linear_loss(text.data(), text.size(), wanted.data(), static_cast<int32_t>(wanted.size()), options,
                             answer, failure);
  });
}

Result<CompilerLibrary::Image> CompilerLibrary::buildKernel(const std::string& spec) {
  Image image;
  Result<std::string> bytes =
      ask("build_kernel", [&](auto& table, auto* options, cermet_buffer* answer, cermet_buffer* failure) {
        return table.build_kernel(spec.data(), spec.size(), options, answer, &image.nvrtcVersion, failure);
      });
  if (!bytes.ok())
    return bytes.status();
  image.bytes = std::move(*bytes);
  return image;
}

Result<std::string> CompilerLibrary::kernelSource(const std::string& spec) {
  return ask("kernel_source", [&](auto& table, auto*, cermet_buffer* answer, cermet_buffer* failure) {
    return table.kernel_source(spec.data(), spec.size(), answer, failure);
  });
}

Status CompilerLibrary::interpret(std::string_view text, bool honourCasts, const std::vector<cermet_tensor>& tensors) {
  return ask("interpret",
             [&](auto& table, auto*, cermet_buffer*, cermet_buffer* failure) {
               return table.interpret(text.data(), text.size(), honourCasts ? 1 : 0, tensors.data(),
                                      static_cast<int32_t>(tensors.size()), failure);
             })
      .status();
}

} // namespace cermet
