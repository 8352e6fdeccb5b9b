// A failing case made small: operations, results, inputs and sizes go as long as it fails in the same way.
#pragma once
#include "tests/fuzz/Check.h"
#include <functional>

namespace cermet::fuzz {

using Checked = std::function<Failure(const Case&)>;

// How long a case is made smaller: what hangs takes a check's whole time in each trial.
struct ShrinkLimits {
  int trials = 300;
  double seconds = 60;
};

// `failure` becomes that of what is returned.
Case shrink(Case failing, Failure& failure, const Checked& check, const ShrinkLimits& limits);

int operationCount(const std::string& text);

} // namespace cermet::fuzz
