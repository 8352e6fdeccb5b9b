// What a result was measured on, as bench/environment.py says it for the others: the processor and how busy it was,
// commit and time. CERMET_COMMIT, or git's answer in the current directory, is the commit.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <sys/utsname.h>
#include <thread>

namespace cermet::bench {

inline std::string commit() {
  if (const char* given = std::getenv("CERMET_COMMIT"))
    return given;
  char line[64] = "";
  if (FILE* asked = popen("git describe --always --dirty --abbrev=12 2>/dev/null", "r")) {
    if (!std::fgets(line, sizeof(line), asked))
      line[0] = 0;
    pclose(asked);
  }
  const std::string said = line;
  return said.empty() ? "unknown" : said.substr(0, said.find('\n'));
}

inline std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name"))
      return line.substr(line.find(':') + 2);
  return "unknown";
}

inline nlohmann::ordered_json environment() {
  utsname machine{};
  uname(&machine);
  double load = 0;
  (void)getloadavg(&load, 1);
  char now[32] = "";
  const std::time_t seconds = std::time(nullptr);
  std::strftime(now, sizeof(now), "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&seconds));
  return {{"machine", machine.machine},
          {"cpu", processor()},
          {"cores", std::thread::hardware_concurrency()},
          {"load", load},
          {"commit", commit()},
          {"time", now}};
}

} // namespace cermet::bench
