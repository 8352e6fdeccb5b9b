// Sequences of C calls: the numbers that say which calls and what arguments (tests/unit/frontends/c/Caller.h) are
// bytes.
#include "tests/fuzz/bytes/Target.h"
#include "tests/unit/frontends/c/Caller.h"
#include "tests/unit/runtime/TestDirectory.h"
#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace cermet;

constexpr int kMostCalls = 200;

// Kernels lie in a pack that a child wrote, so that none is made; the environment is read once in a process.
struct Place {
  Place() {
    setenv("CERMET_COMPILER_LIBRARY", FAKE_COMPILER, 1);
    setenv("CERMET_CUDA_LIBRARY", "libno-such-driver.so", 1);
    setenv("CERMET_THREADS", "1", 1);
    setenv("CERMET_CACHE_DIR", "", 1);
    setenv("CERMET_LOG", "off", 1);
    const std::string pack = directory / "a.cpack";
    const pid_t child = fork();
    if (child == 0) {
      cermet_context* context = nullptr;
      cermet_context_create(nullptr, &context);
      for (const Json& plan : {scalePlan(), sumPlan(), gatherPlan()}) {
        cermet_plan* compiled = nullptr;
        const std::string text = plan.dump();
        cermet_compile(context, text.data(), text.size(), "host", &compiled);
        if (cermet_compile_kernels(context, compiled) != CERMET_OK)
          _exit(1);
      }
      char* json = nullptr;
      _exit(cermet_context_write_pack(context, pack.c_str(), &json) == CERMET_OK ? 0 : 1);
    }
    int status = -1;
    must(waitpid(child, &status, 0) == child && status == 0, "a pack is written");
    setenv("CERMET_PACKS", pack.c_str(), 1);
    testing::GTEST_FLAG(throw_on_failure) = true; // which ends the process
  }
  TestDirectory directory;
};

} // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Place place;
  size_t used = 0;
  Caller caller([&](int bits) {
    uint64_t number = 0;
    for (; bits > 0; bits -= 8)
      number = number << 8 | (used < size ? data[used++] : 0);
    return number;
  });
  for (int calls = 0; used < size && calls < kMostCalls; ++calls)
    caller.call();
  return 0;
}
