// How vectors of inputs come to a thread: from memory, by way of shared memory, or from another place of its own.
#include "compiler/cuda/Program.h"
#include "runtime/abi/Limits.h"
#include <fmt/format.h>

namespace cermet {

bool ProgramText::isLocal(int operand) const {
  const Schedule& schedule = spec.schedule;
  const Operand& input = program.operands[operand];
  const int64_t span = int64_t(schedule.threadsPerRow) * schedule.vector;
  if (input.of < 0 || schedule.skeleton != Skeleton::Row || schedule.vectorsPerThread == 0 || schedule.stages != 0 ||
      program.columns != span * schedule.vectorsPerThread || schedule.vector % 2 != 0)
    return false;
  return input.map.isWithin(span);
}

// What a thread has of a mapped input among its vectors of the tensor: `read` of the pack's member, the slot and
// whether neighbours change places.
std::string ProgramText::localRead(int operand,
                                   const std::function<std::string(const std::string&, bool)>& read) const {
  const Schedule& schedule = spec.schedule;
  const Operand& input = program.operands[operand];
  const int64_t span = int64_t(schedule.threadsPerRow) * schedule.vector;
  std::string value;
  for (const ColumnMap::Piece& piece : input.map.pieces) {
    const std::string own = read(fmt::format("packed.{}[slot + ({})]", field(input.of), piece.shift / span),
                                 piece.step == ColumnMap::Step::Pairs);
    value = value.empty() ? own : fmt::format("slot >= {} ? {} : {}", piece.begin / span, own, value);
  }
  return fmt::format("    if constexpr (Packed::kVector == {})\n      return {};\n    else\n      return {};\n",
                     schedule.vector, value, read(fmt::format("packed.{}[slot]", field(operand)), false));
}

std::string ProgramText::localValue(int operand) const {
  const DType dtype = program.operands[operand].dtype;
  const auto read = [dtype](const std::string& packed, bool swaps) -> std::string {
    const char* at = swaps ? "i ^ 1" : "i";
    return classOf(dtype) == ValueClass::Real ? fmt::format("float_at({}, {})", packed, at)
                                              : ProgramValues::fromMemory(dtype, fmt::format("{}.at[{}]", packed, at));
  };
  return fmt::format(
      "  template <class Packed> static DEVICE {} local_{}(const Packed& packed, int slot, int i) {{\n{}  }}",
      valueType(dtype), field(operand), localRead(operand, read));
}

std::string ProgramText::localPair(int operand) const {
  const auto read = [](const std::string& packed, bool swaps) {
    return swaps ? fmt::format("swapped(pair_at({}, i))", packed) : fmt::format("pair_at({}, i)", packed);
  };
  return fmt::format("  template <class Packed> static DEVICE Pair<{}> local_pair_{}(const Packed& packed, int slot, "
                     "int i) {{\n{}  }}",
                     deviceTypeOf(operand), field(operand), localRead(operand, read));
}

// The input's column that stands for the program's `column`.
static std::string sourceColumn(const ColumnMap& map) {
  std::string result = "column";
  for (size_t i = 0; i < map.pieces.size(); ++i) {
    const ColumnMap::Piece& piece = map.pieces[i];
    const std::string shifted = piece.shift == 0 ? "column" : fmt::format("column + ({})", piece.shift);
    result = i == 0 ? shifted : fmt::format("column >= {} ? {} : {}", piece.begin, shifted, result);
  }
  return map.pieces.empty() ? result : "(" + result + ")";
}

// A vector of an input whose columns do not all lie together: each vector is of one piece.
static std::string mappedLoad(const ColumnMap& map, const std::string& type, const std::string& base,
                              const std::string& start) {
  std::string result;
  for (const ColumnMap::Piece& piece : map.pieces) {
    const std::string from = piece.shift == 0 ? start : fmt::format("{} + ({})", start, piece.shift);
    const std::string own =
        piece.step == ColumnMap::Step::One
            ? fmt::format("load_vector<{}, V>({}, {} + column)", type, base, from)
            : fmt::format("load_{}<{}, V>({}, {}, column)", piece.step == ColumnMap::Step::Pairs ? "pairs" : "half",
                          type, base, from);
    result = result.empty() ? own : fmt::format("column >= {} ? {} : {}", piece.begin, own, result);
  }
  return result;
}

void ProgramText::loads() {
  const auto load = [&](const char* title, const char* pack, const std::vector<int>& inputs, const char* parameters,
                        bool offset) {
    const char* member = offset ? "tiles" : "columns";
    line(fmt::format(
        "  template <int V, int N>\n  static DEVICE void {}({}<V, N>& {}, int slot, const Arguments& arguments, {}) {{",
        title, pack, member, parameters));
    for (int i : inputs) {
      const std::string start = offset ? "offsets." + field(i) : "0";
      if (program.operands[i].kind == OperandKind::Gathered) {
        line(fmt::format("    tiles.{}[slot] = {};", field(i), gatheredLoad(i)));
        continue;
      }
      const ColumnMap& map = program.operands[i].map;
      if (isLocal(i))
        line(fmt::format("    if constexpr (V != {})", spec.schedule.vector));
      if (!map.isOneByOne()) {
        line(fmt::format("    {}.{}[slot] = {};", member, field(i),
                         mappedLoad(map, deviceTypeOf(i), fmt::format("arguments.operand[{}].base", i), start)));
        continue;
      }
      if (isTurned(i)) {
        line(fmt::format("    tiles.{}[slot] = load_turned<{}, kThreads / kThreadsPerRow, V>(shared_memory() + ({}), "
                         "arguments.operand[{}], {}, row, column);",
                         field(i), deviceTypeOf(i), turnedBefore(i), i, start));
        continue;
      }
      line(program.operands[i].isStrided
               ? fmt::format("    {0}.{1}[slot] = load_strided<{2}, V>(arguments.operand[{3}].base, {4}, column, "
                             "arguments.operand[{3}].step);",
                             member, field(i), deviceTypeOf(i), i, start)
               : fmt::format("    {}.{}[slot] = load_vector<{}, V>(arguments.operand[{}].base, {}{});", member,
                             field(i), deviceTypeOf(i), i, offset ? start + " + " : "", sourceColumn(map)));
    }
    line("  }");
  };
  const bool turns = spec.schedule.skeleton == Skeleton::Turned;
  load("load_tiles", "Tiles", tileInputs(),
       turns ? "const Offsets& offsets, int column, int row" : "const Offsets& offsets, int column", true);
  load("load_columns", "Columns", operands(OperandKind::Column, false), "int column", false);
}

std::string ProgramText::gatheredLoad(int i) const {
  const Operand& operand = program.operands[i];
  const std::string step = operand.isStrided ? fmt::format("arguments.operand[{}].step, ", i) : "";
  if (operand.from < 0)
    return fmt::format("load_gathered<{}, V>(arguments.operand[{}].base, offsets.{}, column, {}{})", deviceTypeOf(i), i,
                       field(i), step, missing(i));
  const std::string sums = operand.sums < 0 ? "no_sums()" : fmt::format("arguments.operand[{}]", operand.sums);
  return fmt::format(
      "load_sum<{}, {}, {}, V, {}, {}>(arguments.operand[{}], arguments.operand[{}], {}, offsets.{}, column)",
      deviceTypeOf(i), deviceType(operand.dtype), deviceTypeOf(operand.rowsFrom), operand.isStrided, kBagPart, i,
      operand.rowsFrom, sums, field(i));
}

std::string ProgramText::turnedBefore(int operand) const {
  std::string before;
  for (int i = 0; i < operand; ++i)
    if (isTurned(i))
      before += fmt::format("{}TurnedTile<{}, kThreads / kThreadsPerRow>::kBytes", before.empty() ? "" : " + ",
                            deviceTypeOf(i));
  return before.empty() ? "0" : before;
}

void ProgramText::turning() {
  std::string pieces;
  for (int i : tileInputs())
    if (isTurned(i))
      pieces +=
          fmt::format("{}has_pieces<{}>(arguments.operand[{}])", pieces.empty() ? "" : " && ", deviceTypeOf(i), i);
  line("  static DEVICE bool comes_in_pieces(const Arguments& arguments) { return " + pieces + "; }");
  line("  template <bool Pieces>\n  static DEVICE void turn_tiles(const Arguments& arguments, const Offsets& offsets, "
       "int row, int column) {");
  for (int i : tileInputs())
    if (isTurned(i))
      for (bool isPiece : {true, false})
        line(fmt::format(
            "    {}\n      turn_{}<{}, kColumns, kThreads / kThreadsPerRow, kThreads>(shared_memory() + ({}), "
            "arguments.operand[{}], offsets.{}, row, column);",
            isPiece ? "if constexpr (Pieces)" : "else", isPiece ? "pieces" : "tile", deviceTypeOf(i), turnedBefore(i),
            i, field(i)));
  line("  }");
}

// Tiles by way of shared memory: only where every one of them lies there as in global memory.
void ProgramText::staging() {
  line("  template <int V>\n  static DEVICE void copy_tiles(char* shared, const Arguments& arguments, const Offsets& "
       "offsets, int column) {");
  std::string before = "0";
  std::string takes;
  for (int i : tileInputs()) {
    const int size = byteSize(loadedType(program.operands[i]));
    const std::string place = fmt::format("shared + ({}) * kThreads + thread_index() * (V * {})", before, size);
    const bool isSum = program.operands[i].from >= 0;
    line(isSum ? fmt::format("    store_vector<{0}, V>({1}, 0, {2});", deviceTypeOf(i), place, gatheredLoad(i))
         : program.operands[i].kind == OperandKind::Gathered
             ? fmt::format("    copy_gathered<{}, V>({}, arguments.operand[{}].base, offsets.{}, column, {});",
                           deviceTypeOf(i), place, i, field(i), missing(i))
             : fmt::format("    copy_async<V * {0}>({1}, arguments.operand[{2}].base + (offsets.{3} + {4}) * {0});",
                           size, place, i, field(i), sourceColumn(program.operands[i].map)));
    takes += fmt::format("    move_vector<{0}, V>(reinterpret_cast<char*>(&tiles.{1}[slot]), {2});\n", deviceTypeOf(i),
                         field(i), place);
    before += fmt::format(" + V * {}", size);
  }
  line("  }");
  line("  template <int V, int N> static DEVICE void take_tiles(Tiles<V, N>& tiles, int slot, const char* shared) {");
  out += takes;
  line("  }");
}

} // namespace cermet
