#include "compiler/cuda/Nvrtc.h"
#include "runtime/abi/Nvrtc.h"
#include <algorithm>
#include <dlfcn.h>
#include <filesystem>
#include <fmt/format.h>
#include <map>
#include <memory>
#include <mutex>
#include <regex>
#include <set>
#include <sstream>
#include <vector>

namespace cermet {
namespace {

using Program = struct ProgramOfNvrtc*;

// The calls in use, by their C declarations; result 0 is success.
struct Library {
  std::string path;
  int version = 0;
  int (*nvrtcVersion)(int*, int*) = nullptr;
  const char* (*nvrtcGetErrorString)(int) = nullptr;
  int (*nvrtcGetNumSupportedArchs)(int*) = nullptr;
  int (*nvrtcGetSupportedArchs)(int*) = nullptr;
  int (*nvrtcCreateProgram)(Program*, const char*, const char*, int, const char* const*, const char* const*) = nullptr;
  int (*nvrtcDestroyProgram)(Program*) = nullptr;
  int (*nvrtcCompileProgram)(Program, int, const char* const*) = nullptr;
  int (*nvrtcGetCUBINSize)(Program, size_t*) = nullptr;
  int (*nvrtcGetCUBIN)(Program, char*) = nullptr;
  int (*nvrtcGetPTXSize)(Program, size_t*) = nullptr;
  int (*nvrtcGetPTX)(Program, char*) = nullptr;
  int (*nvrtcGetProgramLogSize)(Program, size_t*) = nullptr;
  int (*nvrtcGetProgramLog)(Program, char*) = nullptr;
};

// libnvrtc looks for its built-ins by name when it compiles. A PyPI wheel's library has no run path, so the ones beside
// it must already be in the process.
void openBuiltins(const void* symbol) {
  Dl_info info{};
  if (!dladdr(symbol, &info) || !info.dli_fname)
    return;
  std::error_code error;
  std::filesystem::path folder = std::filesystem::path(info.dli_fname).parent_path();
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (entry.path().filename().string().starts_with("libnvrtc-builtins.so."))
      dlopen(entry.path().c_str(), RTLD_NOW | RTLD_GLOBAL);
}

template <typename Function> bool resolve(void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(handle, name));
  return function != nullptr;
}

std::unique_ptr<Library> open(const std::string& request, std::string& error) {
  std::string tried;
  for (const std::string& path : nvrtcCandidates(request)) {
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
      tried += fmt::format("\n  {}", dlerror());
      continue;
    }
    auto library = std::make_unique<Library>();
    Library& it = *library;
    bool complete = resolve(handle, "nvrtcVersion", it.nvrtcVersion) &&
                    resolve(handle, "nvrtcGetErrorString", it.nvrtcGetErrorString) &&
                    resolve(handle, "nvrtcGetNumSupportedArchs", it.nvrtcGetNumSupportedArchs) &&
                    resolve(handle, "nvrtcGetSupportedArchs", it.nvrtcGetSupportedArchs) &&
                    resolve(handle, "nvrtcCreateProgram", it.nvrtcCreateProgram) &&
                    resolve(handle, "nvrtcDestroyProgram", it.nvrtcDestroyProgram) &&
                    resolve(handle, "nvrtcCompileProgram", it.nvrtcCompileProgram) &&
                    resolve(handle, "nvrtcGetCUBINSize", it.nvrtcGetCUBINSize) &&
                    resolve(handle, "nvrtcGetCUBIN", it.nvrtcGetCUBIN) &&
                    resolve(handle, "nvrtcGetPTXSize", it.nvrtcGetPTXSize) &&
                    resolve(handle, "nvrtcGetPTX", it.nvrtcGetPTX) &&
                    resolve(handle, "nvrtcGetProgramLogSize", it.nvrtcGetProgramLogSize) &&
                    resolve(handle, "nvrtcGetProgramLog", it.nvrtcGetProgramLog);
    int major = 0, minor = 0;
    if (!complete || it.nvrtcVersion(&major, &minor) != 0) {
      tried += fmt::format("\n  {}: opened, but it is not NVRTC", path);
      dlclose(handle);
      continue;
    }
    it.path = path;
    it.version = major * 1000 + minor * 10;
    openBuiltins(reinterpret_cast<const void*>(it.nvrtcVersion));
    return library;
  }
  error = fmt::format("NVRTC was not found. Install it (pip install nvidia-cuda-nvrtc, or a CUDA toolkit) or set "
                      "CERMET_NVRTC to libnvrtc.so.13 or a directory that holds it. Tried:{}",
                      tried);
  return nullptr;
}

const Library* library(const std::string& request, std::string& error) {
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<Library>> opened;
  std::lock_guard lock(mutex);
  auto found = opened.find(request);
  if (found == opened.end()) {
    std::unique_ptr<Library> fresh = open(request, error);
    if (!fresh)
      return nullptr;
    found = opened.emplace(request, std::move(fresh)).first;
  }
  return found->second.get();
}

// The lines that a log names, with two around each.
std::string numberedLines(const std::string& source, const std::string& log) {
  std::set<int> wanted;
  static const std::regex place(R"(\((\d{1,7})\): error)");
  for (std::sregex_iterator at(log.begin(), log.end(), place), end; at != end && wanted.size() < 100; ++at)
    for (int line = std::stoi((*at)[1]), offset = -2; offset <= 2; ++offset)
      wanted.insert(line + offset);
  std::string result;
  std::istringstream lines(source);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number)
    if (wanted.count(number))
      result += fmt::format("{:5} | {}\n", number, line);
  return result;
}

template <typename Size, typename Get> std::string take(Program program, Size size, Get get, bool text) {
  size_t bytes = 0;
  if (size(program, &bytes) != 0 || bytes == 0)
    return "";
  std::string result(bytes, '\0');
  if (get(program, result.data()) != 0)
    return "";
  if (text && result.back() == '\0')
    result.pop_back();
  return result;
}

std::string architectures(const Library& it, const std::string& wanted, bool& supported) {
  int count = 0;
  it.nvrtcGetNumSupportedArchs(&count);
  std::vector<int> all(std::max(count, 0));
  if (count > 0)
    it.nvrtcGetSupportedArchs(all.data());
  std::string list;
  for (int one : all) {
    std::string name = fmt::format("sm_{}", one);
    supported |= name == wanted;
    list += (list.empty() ? "" : " ") + name;
  }
  return list;
}

} // namespace

cermet_status compileCuda(const std::string& source, const std::string& name, const std::string& architecture,
                          const std::string& libraryPath, CudaBinary& binary, std::string& error,
                          const std::vector<const char*>& more) {
  const Library* it = library(libraryPath, error);
  if (!it)
    return CERMET_NOT_FOUND;
  binary.nvrtcVersion = it->version;
  std::string versions = fmt::format("NVRTC {}.{} ({})", it->version / 1000, it->version % 1000 / 10, it->path);
  bool supported = false;
  if (std::string list = architectures(*it, architecture, supported); !supported) {
    error = fmt::format("{}: {} does not compile for {}; it knows {}. Use a newer one (12.8 knows sm_120).", name,
                        versions, architecture, list);
    return CERMET_UNSUPPORTED;
  }
  Program program = nullptr;
  if (int code = it->nvrtcCreateProgram(&program, source.c_str(), (name + ".cu").c_str(), 0, nullptr, nullptr)) {
    error = fmt::format("{}: nvrtcCreateProgram: {}; {}", name, it->nvrtcGetErrorString(code), versions);
    return CERMET_COMPILE_FAILED;
  }
  std::string target = "--gpu-architecture=" + architecture;
  std::vector<const char*> options = {"--std=c++17", target.c_str(), "-default-device",
                                      "--no-cache",  "--fmad=true",  "-DNDEBUG"};
  options.insert(options.end(), more.begin(), more.end());
  int code = it->nvrtcCompileProgram(program, static_cast<int>(options.size()), options.data());
  binary.log = take(program, it->nvrtcGetProgramLogSize, it->nvrtcGetProgramLog, true);
  if (code == 0) {
    binary.cubin = take(program, it->nvrtcGetCUBINSize, it->nvrtcGetCUBIN, false);
    binary.ptx = take(program, it->nvrtcGetPTXSize, it->nvrtcGetPTX, true);
  }
  it->nvrtcDestroyProgram(&program);
  if (code != 0 || binary.cubin.empty()) {
    error = fmt::format("{} for {}: {}\n{}{}{}", name, architecture,
                        code ? it->nvrtcGetErrorString(code) : "NVRTC gave no cubin", binary.log,
                        numberedLines(source, binary.log), versions);
    return CERMET_COMPILE_FAILED;
  }
  return CERMET_OK;
}

} // namespace cermet
