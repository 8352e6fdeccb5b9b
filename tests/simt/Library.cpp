#include "tests/simt/Library.h"

#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <stdexcept>

namespace cermet::simt {

Library::Library(const std::string& text) {
  char name[] = "/tmp/cermet-simt-XXXXXX";
  directory = mkdtemp(name);
  const std::string source = directory + "/kernel.cpp", library = directory + "/kernel.so";
  std::ofstream(source) << text;
  const std::string command = fmt::format("{} -shared {} -o {} 2>{}/log", KERNEL_COMPILER, source, library, directory);
  if (std::system(command.c_str()) != 0) {
    std::ifstream log(directory + "/log");
    throw std::runtime_error(command + "\n" + std::string(std::istreambuf_iterator<char>(log), {}));
  }
  handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    throw std::runtime_error(dlerror());
}

Library::~Library() {
  // Left open: a sanitizer's report may still name lines of it.
  std::filesystem::remove_all(directory);
}

void (*Library::kernel(const std::string& entry) const)(const void*) {
  void* symbol = dlsym(handle, entry.c_str());
  if (!symbol)
    throw std::runtime_error("no kernel named " + entry);
  return reinterpret_cast<void (*)(const void*)>(symbol);
}

void* Library::calls() const {
  return dlsym(handle, "simt_calls");
}

} // namespace cermet::simt
