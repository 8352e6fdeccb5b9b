#include "compiler/program/Dump.h"
#include "compiler/program/Target.h"
#include <atomic>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <sstream>
#include <system_error>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace cermet {

constexpr size_t kLongestName = 100;

namespace {

std::string findOnPath(const char* program) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  std::error_code ignored;
  for (std::string folder; std::getline(folders, folder, ':');)
    if (std::filesystem::is_regular_file(folder + "/" + program, ignored))
      return folder + "/" + program;
  return "";
}

std::string quoted(const std::string& text) {
  std::string result = "'";
  for (char c : text)
    result += c == '\'' ? "'\\''" : std::string(1, c);
  return result + "'";
}

std::string reproduction(const std::string& stem, const KernelSpec& spec) {
  std::string text = fmt::format("#!/bin/sh\n# Compiles {} for {} again, from the source beside this file.\n"
                                 "cd \"$(dirname \"$0\")\" || exit 1\n",
                                 spec.name(), spec.target);
  if (isCudaTarget(spec.target))
    return text + fmt::format("nvcc -std=c++17 -arch={1} -DNDEBUG -cubin -Xptxas -v -o {0}.nvcc.cubin {0}.cu\n", stem,
                              spec.target);
  return text + fmt::format("clang -O3 -march={1} -shared -fPIC -nostdlib -o {0}.clang.so {0}.ll\n", stem,
                            spec.target.substr(spec.target.find(':') + 1));
}

std::error_code writeFile(const std::string& path, std::string_view content) {
  const auto lastError = [] { return std::error_code(errno, std::generic_category()); };
  std::FILE* file = std::fopen(path.c_str(), "wbxe");
  if (!file)
    return lastError();
  std::error_code failure;
  if (std::fwrite(content.data(), 1, content.size(), file) != content.size())
    failure = lastError();
  if (std::fclose(file) != 0 && !failure) // a full disk is often found here
    failure = lastError();
  return failure;
}

} // namespace

std::string dumpStem(const std::string& name, std::string_view text) {
  std::string stem = name.substr(0, kLongestName);
  for (char& c : stem)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '.' && c != '-')
      c = '_';
  return fmt::format("{}-{:016x}", stem, XXH3_64bits(text.data(), text.size()));
}

void Dump::write(const std::string& stem, std::string_view extension, std::string_view content) const {
  if (!enabled())
    return;
  std::error_code failure;
  std::filesystem::create_directories(directory, failure);
  static std::atomic<unsigned> count{0};
  // Processes that dump the same kernel write the same bytes, but a reader must not see half of them.
  const std::string path = fmt::format("{}/{}.{}", directory, stem, extension);
  const std::string fresh = fmt::format("{}.{}.{}.new", path, getpid(), count++);
  if (!failure)
    failure = writeFile(fresh, content);
  if (!failure)
    std::filesystem::rename(fresh, path, failure);
  if (!failure)
    return;
  std::error_code ignored;
  std::filesystem::remove(fresh, ignored);
  if (failed)
    failed(fmt::format("the dump '{}' cannot be written: {}", path, failure.message()));
}

void Dump::writeKernel(const KernelSpec& spec, const std::string& source, const std::string& log,
                       const std::string& ptx, const std::string& image) const {
  if (!enabled())
    return;
  bool cuda = isCudaTarget(spec.target);
  std::string text = print(spec);
  std::string stem = dumpStem(spec.name(), text);
  write(stem, "spec", text);
  write(stem, cuda ? "cu" : "ll", source);
  write(stem, "sh", reproduction(stem, spec));
  if (!log.empty())
    write(stem, "log", log);
  if (!ptx.empty())
    write(stem, "ptx", ptx);
  if (image.empty())
    return;
  write(stem, cuda ? "cubin" : "so", image);
  static const std::string disassembler = findOnPath("cuobjdump");
  if (!cuda || disassembler.empty())
    return;
  std::string path = directory + "/" + stem;
  std::string command = fmt::format("{} -sass {} > {} 2>/dev/null", quoted(disassembler), quoted(path + ".cubin"),
                                    quoted(path + ".sass"));
  if (std::system(command.c_str()) != 0) {
    std::error_code ignored;
    std::filesystem::remove(path + ".sass", ignored);
  }
}

} // namespace cermet
