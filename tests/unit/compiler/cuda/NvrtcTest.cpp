// Every kernel of the tests compiles for every architecture, without a GPU: for one as for users, for the others with
// less of NVRTC's optimisation, which takes two thirds of the time of the longest. NVRTC comes from CERMET_NVRTC or
// the project's virtual environment.
#include "compiler/cuda/Nvrtc.h"
#include "compiler/program/Dump.h"
#include "compiler/cuda/Emit.h"
#include "compiler/plan/Plan.h"
#include "compiler/program/Schedule.h"
#include "ir/gradient/Gradient.h"
#include "ir/text/Text.h"
#include "runtime/abi/Targets.h"
#include "tests/unit/compiler/GraphTexts.h"
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <thread>

using namespace cermet;
using namespace cermet::tests;

namespace {

std::string nvrtc() {
  if (const char* given = std::getenv("CERMET_NVRTC"); given && *given)
    return given;
  std::error_code ignored;
  std::filesystem::path packages = std::filesystem::path(SOURCE_DIR) / ".venv/lib";
  for (const auto& python : std::filesystem::directory_iterator(packages, ignored)) {
    std::filesystem::path folder = python.path() / "site-packages/nvidia/cu13/lib";
    if (std::filesystem::exists(folder / "libnvrtc.so.13", ignored))
      return folder;
  }
  return "";
}

class Nvrtc : public testing::Test {
protected:
  void SetUp() override {
    std::string error;
    CudaBinary binary;
    if (compileCuda("", "probe", kOptimised, nvrtc(), binary, error) == CERMET_NOT_FOUND)
      GTEST_SKIP() << "NVRTC is not installed: " << error;
    canHurry = binary.nvrtcVersion >= 13000; // older ones may not know the option
  }

  static constexpr const char* kOptimised = "sm_90";
  static inline bool canHurry = false;
  static std::vector<const char*> optionsFor(const std::string& architecture) {
    if (!canHurry || architecture == kOptimised)
      return {};
    return {"--Ofast-compile=mid"};
  }

  // The specs of a graph's plan.
  static std::vector<std::string> specs(const std::string& text, const std::string& target) {
    std::string answer, error;
    std::vector<std::string> result;
    EXPECT_EQ(compileGraph(text, target, Dump(), answer, error), CERMET_OK) << error << text;
    if (answer.empty())
      return result;
    const nlohmann::json plan = nlohmann::json::parse(answer);
    for (const auto& step : plan["steps"])
      if (step["kind"] == "kernel")
        result.push_back(step["spec"]);
    EXPECT_FALSE(result.empty()) << "no kernel in the plan of\n" << text;
    return result;
  }

  static void build(const std::string& text, const std::string& architecture) {
    for (const std::string& canonical : specs(text, architecture)) {
      KernelSpec spec;
      ASSERT_EQ(parse(canonical, spec), "");
      CudaBinary binary;
      std::string error;
      const std::vector<const char*> options = optionsFor(architecture);
      ASSERT_EQ(compileCuda(emitCuda(spec), spec.name(), architecture, nvrtc(), binary, error, options), CERMET_OK)
          << error << canonical;
      ASSERT_EQ(binary.cubin.substr(0, 4), "\x7f"
                                           "ELF");
      EXPECT_EQ(binary.log.find("warning"), std::string::npos) << binary.log << canonical;
      EXPECT_GE(binary.nvrtcVersion, 12080);
      KernelEntries entries = kernelEntries(spec);
      for (const std::string& entry : {entries.vector, entries.scalar, entries.fold})
        EXPECT_NE(binary.cubin.find(entry), std::string::npos) << entry;
      ++built;
    }
  }

  static inline int built = 0; // kernels, so that a suite that builds none cannot pass

  // A graph, its forward and its backward, for every architecture.
  static void buildWithGradient(const std::string& text) {
    mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
    ir::registerDialects(context);
    std::string error;
    auto module = ir::parseGraph(text, context, error);
    ASSERT_TRUE(module) << error;
    ir::Gradient gradient;
    llvm::SmallVector<bool> wanted;
    mlir::func::FuncOp function = ir::graphFunction(*module);
    for (mlir::BlockArgument input : function.getArguments())
      wanted.push_back(isWantedInput(wantedInputs(text), ir::argumentName(function, input.getArgNumber()),
                                     llvm::isa<mlir::FloatType>(mlir::getElementTypeOrSelf(input.getType()))));
    ASSERT_TRUE(ir::differentiate(*module, wanted, gradient, error)) << error;
    std::string forward = ir::printGraph(*gradient.forward, false),
                backward = ir::printGraph(*gradient.backward, false);
    int before = built;
    for (const CudaTarget& target : kCudaTargets) {
      build(text, target.name);
      build(forward, target.name);
      build(backward, target.name);
    }
    EXPECT_GE(built - before, 3 * static_cast<int>(std::size(kCudaTargets)));
  }
};

TEST_F(Nvrtc, RmsNormBf16) {
  buildWithGradient(rmsNorm({"r0", "r1", "4096"}, "bf16", "bf16", "bf16", "eps = 1.0e-6, round_before_weight"));
}
TEST_F(Nvrtc, RmsNormF32) {
  buildWithGradient(rmsNorm({"r0", "96"}, "f32", "f32", "f32", "eps = 1.0e-6"));
}
TEST_F(Nvrtc, RmsNormF16OfOddColumns) {
  buildWithGradient(rmsNorm({"r0", "r1", "r2", "77"}, "f16", "f32", "f32", "eps = 1.0e-6, weight_offset = 1.0"));
}
TEST_F(Nvrtc, RmsNormOfHeads) {
  buildWithGradient(rmsNorm({"r0", "r1", "r2", "128"}, "bf16", "bf16", "bf16", "eps = 1.0e-6, round_before_weight"));
}
TEST_F(Nvrtc, RmsNormOfLongRows) {
  buildWithGradient(rmsNorm({"r0", "80000"}, "bf16", "bf16", "bf16", "eps = 1.0e-6"));
}
TEST_F(Nvrtc, AddRmsNormBf16) {
  buildWithGradient(addRmsNorm({"r0", "r1", "4096"}, "bf16", "bf16", "bf16", "eps = 1.0e-6, round_before_weight"));
}
TEST_F(Nvrtc, GluBf16) {
  buildWithGradient(glu({"r0", "r1", "14336"}, "bf16"));
}
TEST_F(Nvrtc, GluF32OfOddColumns) {
  buildWithGradient(glu({"r0", "33"}, "f32"));
}

// The norm of gathered rows, one gather without a reduction, and one under a sum over rows.
TEST_F(Nvrtc, GatheredRows) {
  std::string table = tensor({"v", "640"}, "f16"), ids = tensor({"r0"}, "i16"), x = tensor({"r0", "640"}, "f16"),
              sums = tensor({"640"}, "f32"), wide = tensor({"r0", "640"}, "f32");
  std::string gather = "    %e = cermet.gather %t, %i : " + table + ", " + ids + " to " + x + "\n";
  std::string summed =
      graph("f", "%t: " + table + ", %i: " + ids + ", %g: " + x, sums,
            gather + "    %p = cermet.mul %e, %g : " + x + "\n    %c = cermet.cast %p : " + x + " to " + wide +
                "\n    %s = cermet.sum_rows %c : " + wide + " to " + sums + "\n    return %s : " + sums + "\n");
  std::string strided = graph("f", "%t: " + table + " {cermet.strides = array<i64: 1, 7>}, %i: " + ids, x,
                              gather + "    return %e : " + x + "\n");
  for (const CudaTarget& target : kCudaTargets) {
    for (const char* index : {"i64", "ui8"})
      build(embeddingNorm(index, "bf16", "2048"), target.name);
    build(embeddingNorm("i32", "f32", "77"), target.name);
    build(summed, target.name);
    build(strided, target.name);
  }
}

TEST_F(Nvrtc, EmbeddingBags) {
  for (const char* type : {"bf16", "f32"}) {
    const std::string table = tensor({"n", "640"}, type), list = tensor({"m"}, "i64"), bounds = tensor({"r0"}, "i64"),
                      parts = tensor({"p", "640"}, "f32"), x = tensor({"r0", "640"}, type);
    const std::string bag = "    %s = cermet.embedding_bag %t, %i, %b, %e sums %p : " + table + ", " + list + ", " +
                            bounds + " sums " + parts + " to " + x + "\n    %r = cermet.add %s, %y : " + x + "\n    return %r : " + x + "\n";
    for (const CudaTarget& target : kCudaTargets)
      for (const char* strides : {"", " {cermet.strides = array<i64: 1, 7>}"})
        build(graph("f", "%t: " + table + strides + ", %i: " + list + ", %b: " + bounds + ", %e: " + bounds + ", %p: " + parts +
                        ", %y: " + x,
                    x, bag),
              target.name);
  }
}

// Copies of transposed tensors, and several of them beside a dense one, of vectors and of single elements.
TEST_F(Nvrtc, TurnedTiles) {
  for (const char* columns : {"4096", "77"}) {
    const std::string strided = " {cermet.strides = array<i64: 1, -1>}", f = tensor({"r0", columns}, "f32"),
                      h = tensor({"r0", columns}, "bf16"), b = tensor({"r0", columns}, "i1");
    const std::string mixed =
        graph("f", "%x: " + f + strided + ", %y: " + h + strided + ", %m: " + b + strided + ", %z: " + f, f,
              "    %c = cermet.cast %y : " + h + " to " + f + "\n    %s = cermet.select %m, %x, %c : " + b + ", " + f +
                  "\n    %r = cermet.mul %s, %z : " + f + "\n    return %r : " + f + "\n");
    EXPECT_NE(specs(mixed, "sm_90")[0].find("schedule turned"), std::string::npos);
    for (const CudaTarget& target : kCudaTargets) {
      build(mixed, target.name);
      for (const char* dtype : {"f8E4M3FN", "i64"}) {
        const std::string t = tensor({"r0", columns}, dtype);
        build(graph("f", "%x: " + t + strided, t, "    return %x : " + t + "\n"), target.name);
      }
    }
  }
}

// Queries and keys, elementwise and after norms.
TEST_F(Nvrtc, CumulativeSums) {
  for (const char* columns : {"7", "640", "50257"}) {
    const std::string x = tensor({"r0", columns}, "bf16"), f = tensor({"r0", columns}, "f32"),
                      n = tensor({"r0", columns}, "i32"), i = tensor({"r0", columns}, "i64");
    for (const char* direction : {"", " {reverse}"}) {
      const std::string text =
          graph("f", "%x: " + x + ", %n: " + n, f + ", " + i,
                "    %w = cermet.cast %x : " + x + " to " + f + "\n    %a = cermet.cumsum %w" + direction + " : " + f +
                    "\n    %l = cermet.cast %n : " + n + " to " + i + "\n    %b = cermet.cumsum %l" + direction +
                    " : " + i + "\n    return %a, %b : " + f + ", " + i + "\n");
      for (const CudaTarget& target : kCudaTargets)
        build(text, target.name);
    }
  }
}

TEST_F(Nvrtc, ProgramsSideBySide) {
  const std::string w = tensor({"128"}, "bf16"), c = tensor({"b", "1", "s", "128"}, "bf16");
  for (bool isNormed : {false, true}) {
    std::string body;
    for (const auto& [name, heads] : {std::pair{"q", "32"}, {"k", "8"}}) {
      const std::string t = tensor({"b", heads, "s", "128"}, "bf16");
      if (isNormed)
        body += fmt::format("    %n{0} = cermet.rms_norm %{0}, %w {{eps = 1.0e-6}} : {1}, {2} to {1}\n", name, t, w);
      body += fmt::format("    %c{0} = cermet.broadcast %c : {1} to {2}\n    %r{0} = cermet.mul %{3}{0}, %c{0} : {2}\n",
                          name, c, t, isNormed ? "n" : "");
    }
    const std::string q = tensor({"b", "32", "s", "128"}, "bf16"), k = tensor({"b", "8", "s", "128"}, "bf16");
    const std::string text = graph("heads", fmt::format("%q: {}, %k: {}, %c: {}, %w: {}", q, k, c, w), q + ", " + k,
                                   body + fmt::format("    return %rq, %rk : {}, {}\n", q, k));
    ASSERT_EQ(specs(text, "sm_90").size(), 1u);
    for (const CudaTarget& target : kCudaTargets)
      build(text, target.name);
  }
}

struct PlainGraphs : Nvrtc, testing::WithParamInterface<GraphFile> {};
TEST_P(PlainGraphs, Compile) {
  buildWithGradient(GetParam().text);
}
INSTANTIATE_TEST_SUITE_P(Nvrtc, PlainGraphs, testing::ValuesIn(graphFiles()),
                         [](const auto& info) { return std::filesystem::path(info.param.name).stem().string(); });

TEST_F(Nvrtc, AFailureShowsTheLineTheLogAndTheVersions) {
  CudaBinary binary;
  std::string error;
  EXPECT_EQ(compileCuda("// one\n// two\nextern \"C\" __global__ void f() { wrong(); }\n// four\n", "broken", "sm_90",
                        nvrtc(), binary, error),
            CERMET_COMPILE_FAILED);
  for (const char* part :
       {"broken for sm_90: NVRTC_ERROR_COMPILATION", "broken.cu(3): error: identifier \"wrong\" is undefined",
        "    1 | // one\n", "    3 | extern \"C\" __global__ void f() { wrong(); }\n", "    4 | // four\n", "NVRTC 1"})
    EXPECT_NE(error.find(part), std::string::npos) << part << "\n" << error;
}

TEST_F(Nvrtc, AnArchitectureItDoesNotKnow) {
  CudaBinary binary;
  std::string error;
  EXPECT_EQ(compileCuda("", "old", "sm_20", nvrtc(), binary, error), CERMET_UNSUPPORTED);
  EXPECT_NE(error.find("does not compile for sm_20; it knows sm_75 sm_80"), std::string::npos) << error;
}

TEST_F(Nvrtc, ThreadsCompileAtOnce) {
  std::vector<CudaBinary> binaries(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < binaries.size(); ++i)
    threads.emplace_back([&, i] {
      std::string error, source = fmt::format("extern \"C\" __global__ void f(int* p) {{ *p = {}; }}", i);
      EXPECT_EQ(compileCuda(source, "f", "sm_90", nvrtc(), binaries[i], error), CERMET_OK) << error;
    });
  for (std::thread& thread : threads)
    thread.join();
  for (const CudaBinary& binary : binaries) {
    EXPECT_FALSE(binary.cubin.empty());
    EXPECT_FALSE(binary.ptx.empty());
  }
}

TEST(NvrtcSearch, SaysWhatItTriedAndWhatToDo) {
  CudaBinary binary;
  std::string error;
  EXPECT_EQ(compileCuda("", "f", "sm_90", "/nowhere/libnvrtc.so.13", binary, error), CERMET_NOT_FOUND);
  EXPECT_NE(
      error.find("set CERMET_NVRTC to libnvrtc.so.13 or a directory that holds it. Tried:\n  /nowhere/libnvrtc.so.13:"),
      std::string::npos)
      << error;
  EXPECT_EQ(compileCuda("", "f", "sm_90", "/usr/lib/x86_64-linux-gnu/libz.so.1", binary, error), CERMET_NOT_FOUND);
  EXPECT_NE(error.find("it is not NVRTC"), std::string::npos) << error;
}

} // namespace
