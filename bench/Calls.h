// What programs that measure the C interface share: the graph that they launch, and the end that a failure is.
#pragma once
#include "frontends/c/cermet.h"
#include <cerrno>
#include <cstdlib>
#include <fmt/format.h>
#include <string>

namespace cermet::bench {

constexpr int64_t kColumns = 4096;
constexpr const char* kGraph = R"(module attributes {cermet.version = 1 : i64} {
  func.func @rms_norm(%x: tensor<?x4096xbf16, #cermet.symbols<["r0"]>>, %weight: tensor<4096xbf16>)
      -> tensor<?x4096xbf16, #cermet.symbols<["r0"]>> {
    %y = cermet.rms_norm %x, %weight {eps = 1.0e-5 : f64, round_before_weight}
        : tensor<?x4096xbf16, #cermet.symbols<["r0"]>>, tensor<4096xbf16> to tensor<?x4096xbf16, #cermet.symbols<["r0"]>>
    return %y : tensor<?x4096xbf16, #cermet.symbols<["r0"]>>
  }
}
)";

[[noreturn]] inline void die(const std::string& what) {
  fmt::print(stderr, "{}: {}\n", program_invocation_short_name, what);
  std::exit(1);
}

inline void check(cermet_status status, const char* call) {
  if (status != CERMET_OK)
    die(fmt::format("{}: {}: {}", call, cermet_status_name(status), cermet_error_message()));
}

} // namespace cermet::bench
