// The cumulative sums that a program's stages read.
#include "compiler/cuda/Program.h"
#include <fmt/format.h>

namespace cermet {

std::vector<int> ProgramText::cumsumsOf(int stage, bool integers) const {
  std::vector<int> result;
  const Needed needed = neededBy(stage);
  for (int i : cumsums())
    if (needed[i] && (classOf(program.instructions[i].type) == ValueClass::Integer) == integers)
      result.push_back(i);
  return result;
}

ProgramValues::Needed ProgramText::summedBy(int stage) const {
  Needed needed(program.instructions.size());
  for (bool integers : {false, true})
    for (int i : cumsumsOf(stage, integers))
      values.need(program.instructions[i].inputs[0], needed);
  return needed;
}

// What makes the cumulative sums that each stage reads.
void ProgramText::sums() {
  std::string cumulate, offset;
  for (bool integers : {false, true}) {
    std::string count;
    for (int stage = 0; stage < values.stageCount(); ++stage)
      if (const size_t sums = cumsumsOf(stage, integers).size())
        count += fmt::format("S == {} ? {} : ", stage, sums);
    line(fmt::format("  template <int S> static constexpr int k{}Sums = {}0;", integers ? "Whole" : "Real", count));
  }
  line(fmt::format("  static constexpr bool kBackward = {};", program.runsBackward()));
  for (int stage = 0; stage < values.stageCount(); ++stage) {
    const Needed needed = summedBy(stage);
    const std::string open = fmt::format("    if constexpr (S == {}) {{\n", stage);
    cumulate += open + values.statements(needed, "      ", keeping, stage);
    offset += open;
    for (bool integers : {false, true}) {
      const std::vector<int> sums = cumsumsOf(stage, integers);
      for (size_t n = 0; n < sums.size(); ++n) {
        const std::string value = values.use(program.instructions[sums[n]].inputs[0]);
        const std::string place = fmt::format("{}[{}]", integers ? "wholes" : "reals", n);
        cumulate += fmt::format("      element.sum{0} = {1} = added({1}, {2});\n", sums[n], place, value);
        offset += fmt::format("      element.sum{0} = added({1}, element.sum{0});\n", sums[n], place);
      }
    }
    cumulate += "    }\n";
    offset += "    }\n";
  }
  line("  template <int S, int Reals, int Wholes, class Kept>\n  static DEVICE void cumulate(Element& element, const "
       "Row& row, float (&reals)[Reals], i64 (&wholes)[Wholes], Kept& kept,\n                              int "
       "keptSlot) {");
  out += cumulate;
  line("  }\n  template <int S, int Reals, int Wholes>\n  static DEVICE void offset(Element& element, const float "
       "(&reals)[Reals], const i64 (&wholes)[Wholes]) {");
  out += offset;
  line("  }");
}

} // namespace cermet
