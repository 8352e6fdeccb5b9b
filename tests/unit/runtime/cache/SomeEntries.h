// Entries of this build that nobody made, and packs of such.
#pragma once
#include "BuildId.h"
#include "runtime/cache/Pack.h"
#include "tests/unit/runtime/Plans.h"
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace cermet {

inline const std::string kMatch = R"({"format": "cermet.match.1"})", kGradient = R"({"format": "cermet.gradient.1"})";

// One of each kind, and a kernel by two versions of NVRTC.
inline std::vector<Entry> someEntries() {
  const std::string build = CERMET_BUILD_ID "\n";
  return {{EntryKind::Plan, build + "sm_90\nfunc.func @scale(", scalePlan().dump(), 0, ""},
          {EntryKind::Match, build + "\nfunc.func @m(", kMatch, 0, ""},
          {EntryKind::Gradient, build + "1\nfunc.func @g(", kGradient, 0, ""},
          {EntryKind::Kernel, build + "cermet.kernel.1\ntarget host:x86-64-v3\nprogram p 8\n", "an image", 0, ""},
          {EntryKind::Kernel, build + "cermet.kernel.1\ntarget sm_90\nprogram p 8\n", "by 12.8", 12080, ""},
          {EntryKind::Kernel, build + "cermet.kernel.1\ntarget sm_90\nprogram p 8\n", "by 13.0", 13000, ""}};
}

inline PackWriter::Written writePack(const std::string& path, const std::vector<Entry>& entries) {
  PackWriter writer;
  for (const Entry& entry : entries)
    writer.add(entry);
  auto written = writer.write(path);
  EXPECT_TRUE(written.ok()) << written.status().message();
  return *written;
}

} // namespace cermet
