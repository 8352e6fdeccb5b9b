// What a context asked for is a pack that serves another, which may make nothing.
#include "runtime/cache/Packs.h"
#include "tests/unit/runtime/TestDirectory.h"
#include "tests/unit/runtime/cache/SomeEntries.h"
#include "tests/unit/runtime/launch/CudaLaunch.h"
#include <filesystem>

namespace cermet {
namespace {

struct PackedContext : CudaLaunch {
  TestDirectory directory;
  const std::string path = directory / "model.cpack";

  Config only(const std::string& packs) {
    Config restricted = config;
    restricted.packs = packs;
    restricted.cacheOnly = true;
    restricted.compilerLibrary = "/nowhere.so";
    return restricted;
  }
  Status prepared(const std::shared_ptr<Context>& context, const Json& plan, const std::string& target) {
    const auto compiled = context->compile(plan.dump(), target);
    return compiled.ok() ? Executable::prepare(context, *compiled, 0).status() : compiled.status();
  }
};

TEST_F(PackedContext, ServesAContextThatMayMakeNothing) {
  const auto maker = *Context::create(config);
  ASSERT_TRUE(prepared(maker, scalePlan(), "host").ok());
  ASSERT_TRUE(prepared(maker, scalePlan("$TARGET", kCubin), "auto").ok());
  ASSERT_TRUE(maker->match(kMatch).ok() && maker->differentiate(kGradient, {}).ok());
  const auto written = maker->writePack(path);
  ASSERT_TRUE(written.ok()) << written.status().message();
  EXPECT_EQ(written->entries, 6u);
  const auto context = Context::create(only(path + "#" + written->digest));
  ASSERT_TRUE(context.ok()) << context.status().message();
  EXPECT_TRUE(prepared(*context, scalePlan(), "host").ok());
  EXPECT_TRUE(prepared(*context, scalePlan("$TARGET", kCubin), "auto").ok());
  EXPECT_TRUE((*context)->match(kMatch).ok() && (*context)->differentiate(kGradient, {}).ok());
  const cermet_counters counters = (*context)->counters().snapshot();
  EXPECT_EQ(counters.plans_from_packs, 4u);
  EXPECT_EQ(counters.kernels_from_packs, 2u);
  EXPECT_EQ(counters.cache_misses + counters.cache_failures, 0u);
  EXPECT_GT(counters.cache_bytes_read, 0u);
  // From the pack it makes the same pack.
  EXPECT_EQ((*context)->writePack(directory / "again.cpack")->digest, written->digest);
}

TEST_F(PackedContext, AMissNamesWhatIsMissingAndWhatWouldMakeIt) {
  writePack(path, {someEntries()[0]});
  const auto context = *Context::create(only(path));
  const Status plan = context->compile("func.func @norm(", "sm_90").status();
  EXPECT_EQ(plan.code(), CERMET_NOT_STORED);
  for (const char* part :
       {"the plan of 'sm_90 @norm' (", ".entry) is not stored, and CERMET_CACHE=only lets nothing be made",
        "asked were: packs '", "model.cpack', no directory", "`cermet compile GRAPH -t sm_90 -o more.cpack`",
        "cermet.record"})
    EXPECT_NE(plan.message().find(part), std::string::npos) << plan.message();
  const Status match = context->match("func.func @m(").status();
  EXPECT_EQ(match.code(), CERMET_NOT_STORED);
  EXPECT_NE(match.message().find("`cermet compile GRAPH --frontend -o more.cpack`"), std::string::npos);
  const Status kernel = context->kernelImages({"cermet.kernel.1\ntarget sm_90\nprogram norm 8\n"}).status();
  EXPECT_EQ(kernel.code(), CERMET_NOT_STORED);
  EXPECT_NE(kernel.message().find("the kernel of 'target sm_90 program norm 8'"), std::string::npos)
      << kernel.message();
  EXPECT_NE(kernel.message().find("-t sm_90 -o"), std::string::npos) << kernel.message();
  EXPECT_EQ(context->counters().cacheMisses, 3u);
}

TEST_F(PackedContext, TheDirectoryServesItToo) {
  config.cacheDirectory = directory / "cache";
  ASSERT_TRUE(prepared(*Context::create(config), scalePlan(), "host").ok());
  const auto context = *Context::create(only(""));
  EXPECT_TRUE(prepared(context, scalePlan(), "host").ok());
  const auto before = std::filesystem::last_write_time(directory / "cache");
  EXPECT_EQ(context->match("func.func @m(").status().code(), CERMET_NOT_STORED);
  EXPECT_EQ(std::filesystem::last_write_time(directory / "cache"), before) << "nothing is written";
}

TEST_F(PackedContext, AKernelThatDoesNotLoadIsMadeAgainOnce) {
  const auto maker = *Context::create(config);
  ASSERT_TRUE(prepared(maker, scalePlan(), "host").ok());
  ASSERT_TRUE(maker->writePack(path).ok());
  PackWriter broken;
  const auto whole = *Pack::open(path);
  for (const Pack::Item& item : whole->items()) {
    Entry entry = *whole->read(item);
    if (entry.kind == EntryKind::Kernel)
      entry.payload = "no ELF";
    broken.add(entry);
  }
  ASSERT_TRUE(broken.write(path).ok());
  const Status failure = prepared(*Context::create(only(path)), scalePlan(), "host");
  EXPECT_NE(failure.message().find("it came from a pack and CERMET_CACHE=only lets nothing be made"), std::string::npos)
      << failure.message();
  config.packs = path;
  config.cacheDirectory = directory / "cache";
  for (uint64_t made : {1u, 0u}) { // the next process finds it in the directory
    const auto context = *Context::create(config);
    EXPECT_TRUE(prepared(context, scalePlan(), "host").ok());
    EXPECT_EQ(context->counters().kernelsCompiled, made);
  }
}

TEST_F(PackedContext, ADumpCompilesAndOnlyDoesNot) {
  Config both = only("");
  both.dumpDirectory = directory / "dump";
  EXPECT_NE(Context::create(both).status().message().find("leave out one of the two"), std::string::npos);
}

} // namespace
} // namespace cermet
