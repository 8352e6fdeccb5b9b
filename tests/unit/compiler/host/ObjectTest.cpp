// The shared object itself: what it exports and needs, how it is made, and what is said when it cannot be.
#include "tests/unit/compiler/host/HostKernel.h"
#include "tests/unit/compiler/host/Programs.h"
#include <csignal>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <llvm/AsmParser/Parser.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Object/ELFObjectFile.h>
#include <llvm/Support/SourceMgr.h>
#include <set>
#include <thread>

namespace cermet::test {
namespace {

KernelSpec specOf(const RowProgram& program, const std::string& target) {
  return {.target = target, .numerics = "traced", .programs = {{program, {}}}};
}

std::string build(const KernelSpec& spec, const std::string& dump = "") {
  std::string image, error;
  EXPECT_TRUE(buildHostKernel(spec, dump, image, error)) << error;
  return image;
}

constexpr const char* kLevels[] = {"host:x86-64-v2", "host:x86-64-v3", "host:x86-64-v4"};

constexpr int kPrograms = 9;

RowProgram programOf(int which, int64_t columns, DType dtype) {
  constexpr RowProgram (*makers[])(int64_t, DType) = {rmsNorm, rmsNormBackward,  addRmsNorm,
                                                      siluGlu, siluGluBackward,  softmaxSquares,
                                                      geluGlu, causalLogSoftmax, everyFunction};
  return makers[which](columns, dtype);
}

TEST(Object, ExportsItsEntriesAndNeedsNothing) {
  for (int which = 0; which < kPrograms; ++which)
    for (DType dtype : {DType::F32, DType::BF16, DType::F16})
      for (const char* target : kLevels) {
        KernelSpec spec = specOf(programOf(which, 200, dtype), target);
        std::string image = build(spec);
        auto object = llvm::object::ObjectFile::createELFObjectFile(llvm::MemoryBufferRef(image, "kernel"));
        ASSERT_TRUE(static_cast<bool>(object));
        const auto& elf = llvm::cast<llvm::object::ELF64LEObjectFile>(**object);
        std::set<std::string> exported;
        for (const auto& symbol : elf.getDynamicSymbolIterators()) {
          uint32_t flags = llvm::cantFail(symbol.getFlags());
          std::string name = llvm::cantFail(symbol.getName()).str();
          if (name.empty())
            continue;
          EXPECT_FALSE(flags & llvm::object::SymbolRef::SF_Undefined) << name;
          exported.insert(name);
        }
        HostEntries entries = hostEntries(spec);
        std::set<std::string> expected{entries.main};
        if (!entries.fold.empty())
          expected.insert(entries.fold);
        EXPECT_EQ(exported, expected) << target;
        for (const auto& entry : llvm::cantFail(elf.getELFFile().dynamicEntries()))
          EXPECT_NE(entry.d_tag, llvm::ELF::DT_NEEDED);
      }
}

TEST(Object, EqualSpecsGiveEqualBytes) {
  KernelSpec spec = specOf(rmsNormBackward(96, DType::BF16), "host:x86-64-v3");
  EXPECT_EQ(build(spec), build(spec));
}

// A dumped kernel shows its wide registers, and that nothing is called but its own functions.
TEST(Object, IsVectorisedAtTheWidthOfItsLevel) {
  namespace fs = std::filesystem;
  for (int which = 0; which < kPrograms; ++which)
    for (auto [target, wide] : {std::pair{kLevels[1], "%ymm"}, std::pair{kLevels[2], "%zmm"}}) {
      fs::path directory = fs::path(testing::TempDir()) / "cermet_host_dump";
      fs::remove_all(directory);
      fs::create_directory(directory);
      build(specOf(programOf(which, 4096, DType::BF16), target), directory.string());
      std::set<std::string> extensions;
      std::string assembly;
      for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
        extensions.insert(entry.path().extension());
        if (entry.path().extension() == ".s")
          assembly = std::string(std::istreambuf_iterator<char>(std::ifstream(entry.path()).rdbuf()), {});
      }
      fs::remove_all(directory);
      EXPECT_EQ(extensions, (std::set<std::string>{".mlir", ".ll", ".s"})); // .ll: of .opt.ll
      size_t uses = 0, at = 0;
      while ((at = assembly.find(std::string("ps\t"), at)) != std::string::npos) {
        size_t end = assembly.find('\n', at);
        uses += assembly.substr(at, end - at).find(wide) != std::string::npos;
        at = end;
      }
      EXPECT_GT(uses, 2) << target << ": packed f32 operations on " << wide;
      static const std::set<std::string> functions{"softplus", "gelu", "log", "tanh", "erf", "gelu_tanh", "pow"};
      for (at = 0; (at = assembly.find("call", at)) != std::string::npos; ++at) {
        size_t name = assembly.find_first_not_of(" \t", assembly.find_first_of(" \t", at));
        EXPECT_TRUE(functions.count(assembly.substr(name, assembly.find_first_of("@ \t\n", name) - name)))
            << assembly.substr(at, assembly.find('\n', at) - at);
      }
      EXPECT_EQ(assembly.find("vfmadd"), std::string::npos);
    }
}

// LLVM and lld like to catch signals to clean up after themselves; the process belongs to somebody else.
TEST(Object, BuildingLeavesSignalsAlone) {
  auto handlers = [] {
    std::vector<void*> all;
    for (int number = 1; number < SIGRTMIN; ++number) {
      struct sigaction action = {};
      sigaction(number, nullptr, &action);
      all.push_back(reinterpret_cast<void*>(action.sa_handler));
    }
    return all;
  };
  std::vector<void*> before = handlers();
  build(specOf(siluGlu(64, DType::F32), kLevels[1]));
  EXPECT_EQ(handlers(), before);
}

TEST(Object, SourceIsTitledLlvmIr) {
  std::string error;
  std::string source = hostKernelSource(specOf(rmsNorm(4096, DType::BF16), "host:x86-64-v3"), error);
  EXPECT_EQ(error, "");
  EXPECT_EQ(source[0], ';');
  EXPECT_NE(source.find("define void @rms_norm_host(ptr"), std::string::npos) << source;
  EXPECT_NE(source.find("<16 x float>"), std::string::npos);
  EXPECT_NE(source.find("\"target-cpu\"=\"x86-64-v3\""), std::string::npos);
}

TEST(Object, SourceOfEveryProgramVerifies) {
  for (int which = 0; which < kPrograms; ++which)
    for (DType dtype : {DType::F32, DType::BF16, DType::F16})
      for (const char* target : kLevels) {
        std::string error;
        std::string source = hostKernelSource(specOf(programOf(which, 77, dtype), target), error);
        llvm::LLVMContext context;
        llvm::SMDiagnostic diagnostic;
        auto module = llvm::parseAssemblyString(source, diagnostic, context);
        ASSERT_TRUE(module) << diagnostic.getMessage().str();
        llvm::raw_string_ostream stream(error);
        EXPECT_FALSE(llvm::verifyModule(*module, &stream)) << error;
      }
}

TEST(Object, UnknownTargetSaysWhatIsExpected) {
  std::string image, error;
  for (const char* target : {"host:x86-64-v5", "host:", "sm_90", "host:x86-64-v33", ""}) {
    EXPECT_FALSE(buildHostKernel(specOf(rmsNorm(8, DType::F32), target), {}, image, error));
    EXPECT_EQ(error, "target '" + std::string(target) +
                         "' is no host target; expected one of host:x86-64-v2 host:x86-64-v3 host:x86-64-v4");
    EXPECT_EQ(hostKernelSource(specOf(rmsNorm(8, DType::F32), target), error), "");
  }
}

TEST(Object, BuildsFromSeveralThreadsAtOnce) {
  std::vector<std::string> images(8);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < images.size(); ++i)
    threads.emplace_back([&, i] { images[i] = build(specOf(programOf(i % 4, 333, DType::BF16), kLevels[1])); });
  for (std::thread& thread : threads)
    thread.join();
  for (size_t i = 0; i < images.size(); ++i) {
    EXPECT_FALSE(images[i].empty());
    EXPECT_EQ(images[i], build(specOf(programOf(i % 4, 333, DType::BF16), kLevels[1])));
  }
}

} // namespace
} // namespace cermet::test
