// NVRTC, opened when the first kernel is compiled. The process keeps what it opened. Generated sources need no header,
// so nothing else of a CUDA toolkit is needed. Safe from several threads; compiles run in parallel.
#pragma once
#include "frontends/c/cermet.h"
#include <string>
#include <vector>

namespace cermet {

struct CudaBinary {
  std::string cubin;
  std::string ptx;
  std::string log;      // warnings and ptxas' lines, also on failure
  int nvrtcVersion = 0; // major * 1000 + minor * 10
};

// Compiles header-free CUDA C++ for one of "sm_80" ... `name` titles the messages. `library` is a path of
// libnvrtc.so.*, a colon-separated list of directories that hold one, or "" to search by name. On failure `error` holds
// the log, the numbered source lines that it names, and the versions. `more` are further options of NVRTC's.
cermet_status compileCuda(const std::string& source, const std::string& name, const std::string& architecture,
                          const std::string& library, CudaBinary& binary, std::string& error,
                          const std::vector<const char*>& more = {});

} // namespace cermet
