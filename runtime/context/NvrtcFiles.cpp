#include "runtime/context/NvrtcFiles.h"
#include "runtime/abi/Nvrtc.h"
#include "runtime/support/File.h"
#include <charconv>
#include <cstring>
#include <dlfcn.h>
#include <link.h>
#include <optional>
#include <set>

namespace cermet {

namespace files = std::filesystem;

namespace {

constexpr std::string_view kLibraryPrefix = "libnvrtc.so.", kBuiltinsPrefix = "libnvrtc-builtins.so.";

// The numbers of "13.0.88" after `prefix`; what is no number ends them.
std::vector<int> versionIn(std::string_view name, std::string_view prefix) {
  std::vector<int> numbers;
  if (!name.starts_with(prefix))
    return numbers;
  const char *at = name.data() + prefix.size(), *const end = name.data() + name.size();
  for (int number = 0; at < end; ++at) {
    const auto [next, failure] = std::from_chars(at, end, number);
    if (failure != std::errc() || number < 0 || number > 999)
      break;
    numbers.push_back(number);
    if ((at = next) == end || *at != '.')
      break;
  }
  return numbers;
}

int versionOf(const std::vector<int>& numbers) {
  return numbers[0] * 1000 + numbers[1] * 10;
}

int versionOfFile(const files::path& path) {
  std::error_code failure;
  const files::path real = files::canonical(path, failure);
  if (failure)
    return 0;
  if (const auto numbers = versionIn(real.filename().string(), kLibraryPrefix); numbers.size() >= 2)
    return versionOf(numbers);
  const auto major = versionIn(path.filename().string(), kLibraryPrefix);
  std::set<int> versions;
  for (files::directory_iterator entry(path.parent_path(), failure), end; !failure && entry != end;
       entry.increment(failure)) {
    const auto numbers = versionIn(entry->path().filename().string(), kBuiltinsPrefix);
    if (numbers.size() >= 2 && (major.empty() || numbers[0] == major[0]))
      versions.insert(versionOf(numbers));
  }
  return versions.size() == 1 ? *versions.begin() : 0; // of several, nobody knows whose
}

// Of a library that is in the process; nothing is loaded for the question.
std::optional<int> versionInProcess(const std::string& candidate) {
  void* library = dlopen(candidate.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (!library)
    return std::nullopt;
  int major = 0, minor = 0;
  const auto ask = reinterpret_cast<int (*)(int*, int*)>(dlsym(library, "nvrtcVersion"));
  const bool told = ask && ask(&major, &minor) == 0;
  dlclose(library);
  return told ? std::optional(versionOf({major, minor})) : std::nullopt;
}

// glibc's cache of libraries by name (ldconfig writes it): a header, entries, then the texts that those point to.
std::string inLoaderCache(const std::string& cache, const std::string& name) {
  constexpr std::string_view kMagic = "glibc-ld.so.cache1.1";
  constexpr size_t kHeaderBytes = 48;
  constexpr int32_t kX86Library = 0x0303;
  struct Listed {
    int32_t flags;
    uint32_t name, path; // offsets from the magic
    uint32_t unused;
    uint64_t capabilities;
  };
  const Result<std::string> bytes = readFile(cache);
  const size_t start = bytes.ok() ? bytes->find(kMagic) : std::string::npos;
  if (start == std::string::npos || bytes->size() - start < kHeaderBytes)
    return "";
  const std::string_view text = std::string_view(*bytes).substr(start);
  uint32_t count = 0;
  std::memcpy(&count, text.data() + kMagic.size(), sizeof(count));
  const auto textAt = [&](uint32_t offset) {
    const size_t end = text.find('\0', offset);
    return offset < text.size() && end != text.npos ? text.substr(offset, end - offset) : std::string_view();
  };
  for (size_t index = 0; index < count && (text.size() - kHeaderBytes) / sizeof(Listed) > index; ++index) {
    Listed listed;
    std::memcpy(&listed, text.data() + kHeaderBytes + index * sizeof(Listed), sizeof(listed));
    if (listed.flags == kX86Library && textAt(listed.name) == name)
      return std::string(textAt(listed.path));
  }
  return "";
}

} // namespace

std::string fileOfLibrary(const std::string& name, const std::string& loaderCache) {
  std::error_code ignored;
  Dl_serinfo size{};
  void* const self = dlopen(nullptr, RTLD_LAZY);
  if (self && dlinfo(self, RTLD_DI_SERINFOSIZE, &size) == 0) {
    std::vector<char> bytes(size.dls_size);
    auto* const directories = reinterpret_cast<Dl_serinfo*>(bytes.data());
    directories->dls_size = size.dls_size;
    directories->dls_cnt = size.dls_cnt;
    if (dlinfo(self, RTLD_DI_SERINFO, directories) == 0)
      for (unsigned index = 0; index < directories->dls_cnt; ++index)
        if (const files::path path = files::path(directories->dls_serpath[index].dls_name) / name;
            files::exists(path, ignored))
          return path;
  }
  return inLoaderCache(loaderCache, name);
}

int nvrtcVersionByName(const std::string& request) {
  for (const std::string& candidate : nvrtcCandidates(request)) {
    if (const std::optional<int> version = versionInProcess(candidate))
      return *version;
    std::error_code ignored;
    const std::string file = candidate.find('/') == std::string::npos ? fileOfLibrary(candidate) : candidate;
    if (!file.empty() && files::exists(file, ignored))
      return versionOfFile(file);
  }
  return 0;
}

} // namespace cermet
