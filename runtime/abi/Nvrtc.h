// Where NVRTC is looked for.
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

} // namespace cermet
