#include "tests/unit/compiler/plan/RandomGraph.h"
#include "tests/unit/compiler/GraphTexts.h"
#include <random>

namespace cermet::tests {
namespace {

enum Kind { Tile, Row, Column, Single };

struct Value {
  std::string name;
  Kind kind;
  std::string dtype;
};

class Generator {
public:
  explicit Generator(uint64_t seed) : random(seed) {}

  RandomGraph run() {
    int rank = pick(5);
    for (int i = 0; i < rank; ++i) {
      sizes.push_back(1 + pick(3));
      dimensions.push_back(pick(3) ? "r" + std::to_string(i) : std::to_string(sizes.back()));
    }
    sizes.push_back(1 + pick(9));
    dimensions.push_back(std::to_string(sizes.back()));

    RandomGraph graph;
    std::string arguments;
    for (int i = 0, count = 1 + pick(5); i < count; ++i) {
      Value value{"%a" + std::to_string(i), i == 0 ? Tile : Kind(pick(4)), dtype()};
      arguments += (i ? ", " : "") + value.name + ": " + type(value);
      graph.inputs.push_back(concrete(value.kind));
      values.push_back(value);
    }
    for (int i = 0, count = pick(20); i < count; ++i)
      step();
    std::string results, types;
    auto giveTyped = [&](const Value& value, const std::string& type) {
      results += (results.empty() ? "" : ", ") + value.name;
      types += (types.empty() ? "" : ", ") + type;
    };
    auto give = [&](const Value& value) { giveTyped(value, type(value)); };
    give(last(Tile));
    if (pick(2))
      give(any(Tile));
    if (pick(2))
      give(any(Row));
    if (rank > 0 && pick(2)) {
      Value summed = cast(any(Tile), "f32");
      std::string column = tensor({dimensions.back()}, "f32");
      Value sum = emit(fmt::format("cermet.sum_rows {} : {} to {}", summed.name, type(summed), column), Column, "f32");
      values.pop_back(); // nothing may read it
      std::string narrow = dtype();
      if (narrow != "f32") {
        std::string to = tensor({dimensions.back()}, narrow);
        sum = emit(fmt::format("cermet.cast {} : {} to {}", sum.name, column, to), Column, narrow);
        column = to;
      }
      giveTyped(sum, column);
    }
    graph.text = tests::graph("random", arguments, types, body + fmt::format("    return {} : {}\n", results, types));
    return graph;
  }

private:
  int pick(int count) { return static_cast<int>(random() % count); }
  std::string dtype() { return std::vector<std::string>{"f32", "bf16", "f16"}[pick(3)]; }

  std::vector<std::string> shape(Kind kind) {
    std::vector<std::string> result = dimensions;
    if (kind == Column)
      return {dimensions.back()};
    if (kind == Single)
      return {"1"};
    if (kind == Row)
      result.back() = "1";
    return result;
  }
  std::vector<int64_t> concrete(Kind kind) {
    std::vector<int64_t> result = sizes;
    if (kind == Column)
      return {sizes.back()};
    if (kind == Single)
      return {1};
    if (kind == Row)
      result.back() = 1;
    return result;
  }
  std::string type(const Value& value) { return tensor(shape(value.kind), value.dtype); }

  Value last(Kind kind) {
    for (size_t i = values.size(); i-- > 0;)
      if (values[i].kind == kind)
        return values[i];
    return values[0];
  }
  Value any(Kind kind) {
    std::vector<Value> fitting;
    for (const Value& value : values)
      if (value.kind == kind)
        fitting.push_back(value);
    return fitting.empty() ? values[0] : fitting[pick(static_cast<int>(fitting.size()))];
  }

  Value emit(const std::string& operation, Kind kind, const std::string& dtype) {
    Value value{"%v" + std::to_string(count++), kind, dtype};
    body += fmt::format("    {} = {}\n", value.name, operation);
    values.push_back(value);
    return value;
  }
  Value cast(Value value, const std::string& dtype) {
    if (value.dtype == dtype)
      return value;
    return emit(fmt::format("cermet.cast {} : {} to {}", value.name, type(value), tensor(shape(value.kind), dtype)),
                value.kind, dtype);
  }
  Value spread(Value value, Kind kind) {
    if (value.kind == kind)
      return value;
    return emit(
        fmt::format("cermet.broadcast {} : {} to {}", value.name, type(value), tensor(shape(kind), value.dtype)), kind,
        value.dtype);
  }

  void step() {
    Value a = values[pick(static_cast<int>(values.size()))];
    switch (pick(8)) {
    case 0:
      cast(a, dtype());
      return;
    case 1:
      spread(a, a.kind == Single ? Kind(pick(4)) : a.kind == Column || pick(2) ? Tile : a.kind);
      return;
    case 2: {
      Value tile = spread(a, Tile);
      emit(fmt::format("cermet.reduce_sum {} : {} to {}", tile.name, type(tile), tensor(shape(Row), a.dtype)), Row,
           a.dtype);
      return;
    }
    case 3: {
      Kind kind = Kind(pick(4));
      std::string type = dtype();
      emit(fmt::format("cermet.constant {:e} : {}", (pick(2000) - 1000) / 300.0, tensor(shape(kind), type)), kind,
           type);
      return;
    }
    case 4: {
      const char* operations[] = {"neg", "exp", "rsqrt", "sigmoid", "silu"};
      emit(fmt::format("cermet.{} {} : {}", operations[pick(5)], a.name, type(a)), a.kind, a.dtype);
      return;
    }
    default: {
      Value b = cast(values[pick(static_cast<int>(values.size()))], a.dtype);
      Kind kind = a.kind == b.kind ? a.kind : a.kind == Single ? b.kind : b.kind == Single ? a.kind : Tile;
      const char* operations[] = {"add", "sub", "mul", "div"};
      std::string left = spread(a, kind).name, right = spread(b, kind).name;
      emit(fmt::format("cermet.{} {}, {} : {}", operations[pick(4)], left, right, tensor(shape(kind), a.dtype)), kind,
           a.dtype);
    }
    }
  }

  std::mt19937_64 random;
  std::vector<int64_t> sizes;
  std::vector<std::string> dimensions;
  std::vector<Value> values;
  std::string body;
  int count = 0;
};

} // namespace

RandomGraph randomGraph(uint64_t seed) {
  return Generator(seed).run();
}

} // namespace cermet::tests
