// Where NVRTC is looked for, and which version lies there. The compiler opens what is found; a process whose kernels
// all come from the cache only asks for the version, which names of files tell, so that nothing is opened.
#pragma once
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

namespace cermet {

constexpr const char* kNvrtcNames[] = {"libnvrtc.so.13", "libnvrtc.so.12"};

// What to open, in order, for the path of a library, a colon-separated list of directories, or "": by name.
inline std::vector<std::string> nvrtcCandidates(const std::string& request) {
  std::vector<std::string> result;
  if (request.empty())
    return {std::begin(kNvrtcNames), std::end(kNvrtcNames)};
  std::istringstream parts(request);
  for (std::string part; std::getline(parts, part, ':');) {
    std::error_code ignored;
    if (!std::filesystem::is_directory(part, ignored))
      result.push_back(part);
    else
      for (const char* name : kNvrtcNames)
        result.push_back(part + "/" + name);
  }
  return result;
}

// major * 1000 + minor * 10 of the first candidate that exists; 0 where none does or its version cannot be told. One
// that is in the process already is asked. Else it is in the library's own name (libnvrtc.so.12.4.127) or in that of
// its built-ins beside it (libnvrtc-builtins.so.13.0), which the library itself looks for under this name.
int nvrtcVersionByName(const std::string& request);

// The file that the loader would open for a name: in a directory that it searches, or in its cache ("" for none; the
// argument is for tests). "" where it knows none.
std::string fileOfLibrary(const std::string& name, const std::string& loaderCache = "/etc/ld.so.cache");

} // namespace cermet
