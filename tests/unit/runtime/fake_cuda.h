// A CUDA driver without a GPU: the functions that the runtime asks for, with memory on the host, and a record of what
// was launched. Loaded through Config::cudaLibrary; a test finds its state by dlsym("fakeCudaState").
#pragma once
#include "runtime/abi/RowArguments.h"
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

struct FakeLaunch {
  std::string kernel;
  unsigned grid[3], block[3], shared;
  void* stream;
  void* context; // that was current
  cermet::RowArguments arguments;
  // All that may be given; a kernel of several programs has the next one's argument behind the last operand of one.
  char bytes[cermet::kMaxPrograms * sizeof(cermet::RowArguments)];
};

struct FakeMemset {
  unsigned long long address;
  size_t bytes;
  void* stream;
};

struct FakeCudaState {
  // What the device is.
  int devices = 1, major = 9, minor = 0, multiprocessors = 132, version = 13000;
  // What happens next.
  int initResult = 0, loadResult = 0, launchResult = 0;
  bool capturing = false;
  // What pointers are: those in [deviceBegin, deviceEnd) are device memory of `pointerDevice`.
  uintptr_t deviceBegin = 0, deviceEnd = 0;
  int pointerDevice = 0;
  int streamDevice = 0; // of every stream
  // What was asked.
  bool record = true; // off: launches are only counted, for timing
  uint64_t launchCount = 0;
  std::vector<FakeLaunch> launches;
  std::vector<FakeMemset> memsets;
  int loads = 0, functionLoads = 0, unloads = 0, retained = 0, contextSets = 0;
  int largestDynamicShared = 0;
};

extern "C" FakeCudaState* fakeCudaState();
