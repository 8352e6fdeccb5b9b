// Which version of NVRTC lies where it is looked for. The compiler opens what is found; a process whose kernels all come
// from the cache only asks for the version, which names of files tell, so that nothing is opened.
#pragma once
#include <string>

namespace cermet {

// major * 1000 + minor * 10 of the first candidate that exists; 0 where none does or its version cannot be told. One
// that is in the process already is asked. Else it is in the library's own name (libnvrtc.so.12.4.127) or in that of
// its built-ins beside it (libnvrtc-builtins.so.13.0), which the library itself looks for under this name.
int nvrtcVersionByName(const std::string& request);

// The file that the loader would open for a name: in a directory that it searches, or in its cache ("" for none; the
// argument is for tests). "" where it knows none.
std::string fileOfLibrary(const std::string& name, const std::string& loaderCache = "/etc/ld.so.cache");

} // namespace cermet
