// What must hold of a graph: it compiles; on every target that can run here it computes what the interpreter does and
// writes nothing else; its gradient does too; and NVRTC takes its kernels.
#pragma once
#include "tests/fuzz/Generator.h"

namespace cermet::fuzz {

struct Case {
  std::string text;
  std::vector<Sizes> sizes;         // one run for each; a symbol that is not there is 3
  uint64_t seed = 0;                // of the inputs' numbers and layouts; the second run has the next
  bool host = true;                 // run on this CPU
  bool gradient = false;            // also differentiate for all float inputs, and run forward and backward
  bool simt = false;                // run the CUDA text of sm_90 on tests/simt's machine
  std::vector<std::string> targets; // compile the kernels for these with NVRTC
  // A planted defect: the compiler is given the text with the first string replaced by the second.
  std::pair<std::string, std::string> plant;
};

struct Failure {
  std::string kind; // "" for none, else one of compile, launch, numbers, memory, gradient, simt, nvrtc, crash
  std::string message;
  explicit operator bool() const { return !kind.empty(); }
  // Whether it is the same defect, as far as one can tell.
  bool isLike(const Failure& other) const;
};

// In this process; what crashes takes it along. A graph whose values are not finite is not compared (and `compared` not
// raised).
Failure check(const Case& given, int& compared);

// In a process of their own, one after another; a failure for each, in order. A crash or an endless loop is a failure
// like another.
std::vector<Failure> checkApart(const std::vector<Case>& given, int& compared);
Failure checkApart(const Case& given);

// The library that NVRTC cases use, "" where there is none.
std::string nvrtcLibrary();

} // namespace cermet::fuzz
