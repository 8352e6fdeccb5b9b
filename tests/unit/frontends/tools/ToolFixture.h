// The command-line tool with a graph file of one norm, a cache directory of its own, and no GPU.
#pragma once
#include "tests/unit/runtime/CommandOutput.h"
#include "tests/unit/runtime/TestDirectory.h"
#include <fstream>
#include <gtest/gtest.h>
#include <string>

namespace cermet {

class ToolFixture : public testing::Test {
protected:
  // `name`: the function's, as graph texts write it.
  explicit ToolFixture(const std::string& name) {
    std::ofstream(graph) << "module attributes {cermet.version = 1 : i64} {\n  func.func @" << name << R"(
      (%x: tensor<?x256xbf16, #cermet.symbols<["rows"]>>, %w: tensor<256xbf16>)
      -> tensor<?x256xbf16, #cermet.symbols<["rows"]>> {
    %y = cermet.rms_norm %x, %w {eps = 1.0e-5 : f64, round_before_weight}
        : tensor<?x256xbf16, #cermet.symbols<["rows"]>>, tensor<256xbf16> to tensor<?x256xbf16, #cermet.symbols<["rows"]>>
    return %y : tensor<?x256xbf16, #cermet.symbols<["rows"]>>
  }
})";
  }
  void SetUp() override {
    if (std::string(COMPILER).empty())
      GTEST_SKIP() << "the compiler library is not part of this build";
  }
  // `streams`: where a shell sends the tool's output; stderr comes back.
  CommandOutput cermet(const std::string& arguments, const std::string& streams = "") const {
    return runCommand("{ " + environment + TOOL " " + arguments + " " + streams + "; }");
  }

  TestDirectory directory;
  std::string graph = directory / "graph.mlir";
  std::string environment = "env CERMET_CACHE_DIR=" + (directory / "cache") +
                            " CERMET_COMPILER_LIBRARY=" COMPILER " CERMET_CUDA_LIBRARY=libno-such-driver.so ";
};

#define EXPECT_CONTAINS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

} // namespace cermet
