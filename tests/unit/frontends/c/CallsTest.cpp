// Calls of the C interface in any order with any arguments (Caller.h). CERMET_CALLS makes more; the program bytes_calls
// of tests/fuzz/bytes looks for orders that reach new code.
#include "tests/unit/frontends/c/Caller.h"
#include "tests/unit/frontends/c/ContextTest.h"
#include <random>

namespace cermet {
namespace {

struct Calls : ContextTest {
  static void SetUpTestSuite() { useCompiler(FAKE_COMPILER); }
};

TEST_F(Calls, OfAnyOrderEndInAStatus) {
  const char* said = getenv("CERMET_CALLS");
  const int calls = said ? atoi(said) : 20000;
  int succeeded = 0, failed = 0, losses = 0;
  for (int first = 0; first < calls; first += 500) {
    Caller caller([random = std::mt19937_64(static_cast<uint64_t>(first))](int) mutable { return random(); });
    for (int turn = 0; turn < 500 && !HasFailure(); ++turn)
      caller.call();
    ASSERT_FALSE(HasFailure()) << "seed " << first;
    succeeded += caller.succeeded;
    failed += caller.failed;
    losses += caller.lossesLaunched();
  }
  EXPECT_GT(succeeded, calls / 20) << "of " << calls;
  EXPECT_GT(failed, calls / 20) << "of " << calls;
  EXPECT_GT(losses, calls / 200) << "of " << calls;
}

} // namespace
} // namespace cermet
