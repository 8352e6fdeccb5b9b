// A failing case made small: operations, results, inputs and sizes go as long as it fails in the same way.
#pragma once
#include "tests/fuzz/Check.h"
#include <functional>

namespace cermet::fuzz {

using Checked = std::function<Failure(const Case&)>;

// `failure` becomes that of what is returned.
Case shrink(Case failing, Failure& failure, const Checked& check, int mostTrials);

int operationCount(const std::string& text);

} // namespace cermet::fuzz
