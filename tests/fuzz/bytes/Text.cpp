// Graph texts: an error or an answer. A plan that is answered is one that the runtime takes.
#include "runtime/abi/CompilerApi.h"
#include "runtime/plan/Plan.h"
#include "tests/fuzz/bytes/Target.h"
#include <string>
#include <vector>

// MLIR fills vectors and arenas that are declared here and takes from those that are filled here, and is not
// instrumented to say so.
extern "C" [[gnu::visibility("default")]] const char* __asan_default_options() {
  return "detect_container_overflow=0:allow_user_poisoning=0";
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const cermet_compiler_table* table = cermet_compiler_table_v1();
  const cermet_compiler_options options{"", "", nullptr, nullptr};
  const std::string text(reinterpret_cast<const char*>(data), size);
  const std::vector<uint8_t> wanted(size % 4 + 1, 1); // as many inputs as a small graph may have
  for (int question = 0; question < 3; ++question) {
    cermet_buffer answer{}, error{};
    cermet_status status = CERMET_OK;
    if (question == 0)
      status = table->compile(text.data(), size, "sm_90", &options, &answer, &error);
    else if (question == 1)
      status = table->match(text.data(), size, &options, &answer, &error);
    else
      status = table->differentiate(text.data(), size, wanted.data(), static_cast<int32_t>(wanted.size()), &options,
                                    &answer, &error);
    cermet::must(status == CERMET_OK || error.size > 0, "a failure says why");
    if (status == CERMET_OK && question == 0) {
      const auto plan = cermet::parsePlan(std::string(answer.data, answer.size));
      cermet::must(plan.ok(), plan.ok() ? "" : plan.status().message());
    }
    table->release(&answer);
    table->release(&error);
  }
  return 0;
}
