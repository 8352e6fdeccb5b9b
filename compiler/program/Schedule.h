// How a row program runs on an architecture: tables and rules, no measurement.
#pragma once
#include "compiler/program/KernelSpec.h"

namespace cermet {

Schedule chooseSchedule(const RowProgram& program, const std::string& target);

} // namespace cermet
