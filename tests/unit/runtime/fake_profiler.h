// A profiler as NVTX has them injected, which writes down what it is told. A test finds what it saw by
// dlsym("fakeProfiler").
#pragma once
#include <mutex>
#include <string>
#include <vector>

struct FakeProfiler {
  std::mutex mutex;
  std::vector<std::string> domains;
  std::vector<std::string> seen; // "launch scale" where a range begins, "." where the innermost ends
};

extern "C" FakeProfiler* fakeProfiler();
