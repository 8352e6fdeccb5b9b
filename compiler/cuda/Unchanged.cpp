// What tells whether a program multiplies a tensor by 1 in its own memory.
#include "compiler/cuda/Program.h"
#include "compiler/program/Scaling.h"
#include <fmt/format.h>

namespace cermet {

void ProgramText::unchanged() {
  const std::optional<Scaling> found = scalingOf(program);
  line(fmt::format("  static constexpr bool kScales = {};", found.has_value()));
  if (!found)
    return;
  const DType type = program.operands[found->by].dtype;
  line(
      fmt::format("  static DEVICE bool is_unchanged(const Arguments& arguments) {{\n"
                  "    return is_same(arguments.operand[{}], arguments.operand[{}]) && {} == 1.0f;\n  }}",
                  found->from, found->to,
                  ProgramValues::fromMemory(type, fmt::format("load_vector<{}, 1>(arguments.operand[{}].base, 0).at[0]",
                                                              deviceType(type), found->by))));
}

} // namespace cermet
