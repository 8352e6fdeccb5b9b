// What CERMET_DUMP writes: every text on the way from a graph to a kernel's machine code, one stem per graph and
// kernel. Nothing here fails a compile: what cannot be written is left out, and said.
//
//   <graph>-<key>.graph.mlir .raised.mlir .small.mlir .program
//                     the text that came, its fused form, what kernels are made of, its plan's programs
//   <kernel>-<key>.spec .cu|.ll .log .ptx .sass .cubin|.so   and .sh, which compiles that kernel again
#pragma once
#include "compiler/program/KernelSpec.h"
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace cermet {

struct Dump {
  // Told of what cannot be written, and why. Does not throw.
  using Failed = std::function<void(const std::string& what)>;

  Dump() = default;
  Dump(std::string directory, Failed failed = nullptr) : directory(std::move(directory)), failed(std::move(failed)) {}

  std::string directory; // "" for none
  Failed failed;

  bool enabled() const { return !directory.empty(); }
  void write(const std::string& stem, std::string_view extension, std::string_view content) const;
  // Everything of one kernel; `image` may be empty when its compile failed.
  void writeKernel(const KernelSpec& spec, const std::string& source, const std::string& log, const std::string& ptx,
                   const std::string& image) const;
};

// A file's name, whatever a graph's function is called: "<name>-<16 hex digits of the text's hash>".
std::string dumpStem(const std::string& name, std::string_view text);

} // namespace cermet
