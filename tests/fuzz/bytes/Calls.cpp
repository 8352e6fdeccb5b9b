// Sequences of C calls: the numbers that say which calls and what arguments (tests/unit/frontends/c/Caller.h) are
// bytes.
#include "tests/fuzz/bytes/Target.h"
#include "tests/unit/frontends/c/Caller.h"
#include "tests/unit/runtime/TestDirectory.h"
#include <memory>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace cermet;

constexpr int kMostCalls = 50; // of an input, each of which has what it needs from the first
constexpr int kSharing = 500;  // inputs

// Losses that are lent: with gradients in the type of each input, in f32, of rows that come one by one; and of each
// row.
struct LentLoss {
  int text;
  uint8_t gradients[LossCalls::kInputs];
  uint64_t budget;
  cermet_external product;
};
constexpr LentLoss kLosses[] = {{0, {1, 1, 1, 0}, 0, nullptr},
                                {1, {2, 2, 2, 0}, 2 * LossCalls::kRowBytes, LossCalls::product},
                                {0, {1, 1, 1, 0}, LossCalls::kRowBytes, LossCalls::product},
                                {LossCalls::kEach, {}, 3 * LossCalls::kRowBytes, nullptr}};

cermet_status prepare(cermet_context* context, const LentLoss& lent, LossCalls::Loss& loss) {
  const std::string& text = LossCalls::text(lent.text);
  loss.isEach = lent.text == LossCalls::kEach;
  std::copy_n(lent.gradients, LossCalls::kInputs, loss.gradients);
  cermet_linear_cross_entropy_options options{};
  options.size = sizeof(options);
  options.gradients = lent.gradients;
  options.gradient_count = LossCalls::kInputs;
  options.budget = lent.budget;
  options.product = lent.product;
  options.product_user = LossCalls::productUser();
  return cermet_linear_cross_entropy_prepare(context, text.data(), text.size(), "host", 0, &options, &loss.handle);
}

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
      for (const LentLoss& each : kLosses)
        if (LossCalls::Loss loss; prepare(context, each, loss) != CERMET_OK)
          _exit(1);
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

// A context and what launches, which so many inputs share, so that a short one gets beyond its first compile. What an
// input makes of its own ends with it; then this does, and a leak of either is seen.
class Shared {
public:
  Shared() {
    handles.contexts.emplace_back();
    must(cermet_context_create(nullptr, &handles.contexts[0]) == CERMET_OK, "a context is made");
    for (const Json& plan : {scalePlan(), sumPlan(), gatherPlan()}) {
      const std::string text = plan.dump();
      must(cermet_compile(handles.contexts[0], text.data(), text.size(), "host", &handles.plans.emplace_back()) ==
                   CERMET_OK &&
               cermet_prepare(handles.contexts[0], handles.plans.back(), 0, &handles.executables.emplace_back()) ==
                   CERMET_OK,
           "a plan of the pack is prepared");
    }
    for (const LentLoss& each : kLosses)
      must(prepare(handles.contexts[0], each, handles.losses.emplace_back()) == CERMET_OK,
           "a loss of the pack is prepared");
  }
  ~Shared() {
    for (const LossCalls::Loss& each : handles.losses)
      cermet_linear_cross_entropy_destroy(each.handle);
    for (auto* each : handles.executables)
      cermet_executable_destroy(each);
    for (auto* each : handles.plans)
      cermet_plan_destroy(each);
    for (auto* each : handles.contexts)
      cermet_context_destroy(each);
  }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  Caller::Lent handles;
};

} // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Place place;
  static std::unique_ptr<Shared> shared;
  static int inputs = 0;
  if (inputs++ % kSharing == 0) {
    shared.reset();
    shared = std::make_unique<Shared>();
  }
  size_t used = 0;
  Caller caller(
      [&](int bits) {
        uint64_t number = 0;
        for (; bits > 0; bits -= 8)
          number = number << 8 | (used < size ? data[used++] : 0);
        return number;
      },
      shared->handles);
  for (int calls = 0; used < size && calls < kMostCalls; ++calls)
    caller.call();
  return 0;
}
