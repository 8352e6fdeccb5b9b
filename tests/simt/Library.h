// A kernel's text, compiled for the CPU with the sanitizers and loaded.
#pragma once
#include "compiler/program/KernelSpec.h"
#include <string>

namespace cermet::simt {

class Library {
public:
  // Compiles `text` (emitKernel's, possibly altered) behind tests/simt/prelude.h. Aborts the test with the compiler's
  // words if it does not compile.
  explicit Library(const std::string& text);
  ~Library();
  Library(const Library&) = delete;

  void (*kernel(const std::string& entry) const)(const void*);
  void* calls() const;

private:
  std::string directory;
  void* handle = nullptr;
};

} // namespace cermet::simt
