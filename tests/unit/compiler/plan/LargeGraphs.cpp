#include "tests/unit/compiler/plan/LargeGraphs.h"
#include <fmt/format.h>

namespace cermet::tests {
namespace {

// A value of a text that is being written.
struct Written {
  std::string name, type;
};

class Writer {
public:
  Written argument(const std::string& type) {
    Written value{fmt::format("%a{}", inputs++), type};
    arguments += (arguments.empty() ? "" : ", ") + value.name + ": " + type;
    return value;
  }

  // `operation` with `{}` for each operand's name, and its types as they stand in the text.
  template <typename... Operands>
  Written op(const std::string& type, const std::string& operation, const std::string& types,
             const Operands&... names) {
    Written value{fmt::format("%v{}", operations++), type};
    body += fmt::format("    {} = cermet.{} : {}\n", value.name, fmt::format(fmt::runtime(operation), names.name...),
                        types);
    return value;
  }
  Written unary(const char* operation, const Written& x) {
    return op(x.type, fmt::format("{} {{}}", operation), x.type, x);
  }
  Written binary(const char* operation, const Written& x, const Written& y) {
    return op(x.type, fmt::format("{} {{}}, {{}}", operation), x.type, x, y);
  }
  Written to(const char* operation, const Written& x, const std::string& type, const std::string& attributes = "") {
    return op(type, fmt::format("{} {{}}{}", operation, attributes), x.type + " to " + type, x);
  }
  Written number(double value, const std::string& type) { return op(type, fmt::format("constant {:e}", value), type); }
  Written product(const Written& x, const Written& weight, const std::string& type) {
    return op(type, "matmul {}, {}", fmt::format("{}, {} to {}", x.type, weight.type, type), x, weight);
  }

  void result(const Written& value) {
    returned += (returned.empty() ? "" : ", ") + value.name;
    types += (types.empty() ? "" : ", ") + value.type;
  }

  size_t count() const { return operations; }

  std::string text() const {
    return fmt::format("module attributes {{cermet.version = 1 : i64}} {{\n  func.func @large({}) -> ({}) {{\n{}"
                       "    return {} : {}\n  }}\n}}\n",
                       arguments, types, body, returned, types);
  }

  std::string body;

private:
  std::string arguments, returned, types;
  size_t inputs = 0, operations = 0;
};

std::string tile(const std::string& shape, const char* dtype = "bf16") {
  return fmt::format("tensor<{}x{}>", shape, dtype);
}

// As a traced RMSNorm.
Written norm(Writer& graph, const Written& x, const std::string& rows, const std::string& columns,
             const Written& weight) {
  const std::string wide = tile(rows + "x" + columns, "f32"), row = tile(rows + "x1", "f32");
  const Written cast = graph.to("cast", x, wide);
  const Written sum = graph.to("reduce_sum", graph.binary("mul", cast, cast), row);
  const Written mean = graph.binary("div", sum, graph.number(1024, row));
  const Written root = graph.unary("rsqrt", graph.binary("add", mean, graph.number(1e-5, row)));
  const Written scaled = graph.binary("mul", cast, graph.to("broadcast", root, wide));
  return graph.binary("mul", graph.to("broadcast", weight, x.type), graph.to("cast", scaled, x.type));
}

Written rotated(Writer& graph, const Written& x, const std::string& heads, const Written& cosine, const Written& sine) {
  const std::string half = tile("2x" + heads + "x512x32");
  const Written left = graph.to("slice", x, half, " [0, 0, 0, 0]");
  const Written right = graph.to("slice", x, half, " [0, 0, 0, 32]");
  const Written turned = graph.op(x.type, "concat {}, {} {{dim = 3 : i64}}",
                                  fmt::format("{0}, {0} to {1}", half, x.type), graph.unary("neg", right), left);
  return graph.binary("add", graph.binary("mul", x, graph.to("broadcast", cosine, x.type)),
                      graph.binary("mul", turned, graph.to("broadcast", sine, x.type)));
}

} // namespace

std::string layersGraph(size_t operations) {
  const std::string stream = tile("2x512x1024"), weight = tile("1024"), wide = tile("2x512x2816");
  Writer graph;
  Written x = graph.argument(stream);
  const Written cosine = graph.argument(tile("2x1x512x64")), sine = graph.argument(tile("2x1x512x64"));
  while (graph.count() < operations) {
    const Written normed = norm(graph, x, "2x512", "1024", graph.argument(weight));
    std::vector<Written> heads;
    for (const std::string count : {"16", "4", "4"}) {
      const std::string columns = count == "16" ? "1024" : "256";
      const Written projected =
          graph.product(normed, graph.argument(tile("1024x" + columns)), tile("2x512x" + columns));
      const Written split = graph.to("reshape", projected, tile("2x512x" + count + "x64"));
      heads.push_back(graph.to("transpose", split, tile("2x" + count + "x512x64"), " [0, 2, 1, 3]"));
    }
    const Written q = rotated(graph, heads[0], "16", cosine, sine), k = rotated(graph, heads[1], "4", cosine, sine);
    const Written attended =
        graph.op(q.type, "opaque \"aten.scaled_dot_product_attention\"({}, {}, {}) {{effect = \"pure\"}}",
                 fmt::format("({}, {}, {}) -> {}", q.type, k.type, k.type, q.type), q, k, heads[2]);
    const Written back =
        graph.to("reshape", graph.to("transpose", attended, tile("2x512x16x64"), " [0, 2, 1, 3]"), stream);
    x = graph.binary("add", x, graph.product(back, graph.argument(tile("1024x1024")), stream));
    const Written second = norm(graph, x, "2x512", "1024", graph.argument(weight));
    const Written gate = graph.product(second, graph.argument(tile("1024x2816")), wide);
    const Written up = graph.product(second, graph.argument(tile("1024x2816")), wide);
    const Written down =
        graph.product(graph.binary("mul", graph.unary("silu", gate), up), graph.argument(tile("2816x1024")), stream);
    x = graph.binary("add", x, down);
  }
  graph.result(norm(graph, x, "2x512", "1024", graph.argument(weight)));
  return graph.text();
}

std::string chainGraph(size_t operations) {
  Writer graph;
  Written x = graph.argument(tile("64x64", "f32"));
  while (graph.count() < operations)
    x = graph.unary("neg", x);
  graph.result(x);
  return graph.text();
}

std::string reductionsGraph(size_t operations) {
  const std::string type = tile("64x64", "f32"), row = tile("64x1", "f32");
  Writer graph;
  Written x = graph.argument(type);
  while (graph.count() < operations) {
    const Written shifted =
        graph.unary("exp", graph.binary("sub", x, graph.to("broadcast", graph.to("reduce_max", x, row), type)));
    x = graph.binary("div", shifted, graph.to("broadcast", graph.to("reduce_sum", shifted, row), type));
  }
  graph.result(x);
  return graph.text();
}

std::string fanGraph(size_t operations) {
  Writer graph;
  const Written x = graph.argument(tile("64x64", "f32"));
  while (graph.count() < operations)
    graph.result(graph.binary("mul", x, graph.number(double(graph.count()), x.type)));
  return graph.text();
}

std::string treeGraph(size_t operations) {
  Writer graph;
  const Written x = graph.argument(tile("64x64", "f32"));
  std::vector<Written> level;
  while (graph.count() < operations / 2)
    level.push_back(graph.binary("mul", x, graph.number(double(graph.count()), x.type)));
  while (level.size() > 1) {
    std::vector<Written> next;
    for (size_t i = 0; i + 1 < level.size(); i += 2)
      next.push_back(graph.binary("add", level[i], level[i + 1]));
    if (level.size() % 2)
      next.push_back(level.back());
    level = std::move(next);
  }
  graph.result(level.front());
  return graph.text();
}

std::string residualsGraph(size_t operations) {
  Writer graph;
  const Written weight = graph.argument(tile("1024x1024"));
  Written x = graph.argument(tile("512x1024"));
  const Written first = x;
  while (graph.count() < operations) {
    const Written made = graph.product(graph.unary("tanh", graph.binary("add", x, first)), weight, x.type);
    x = graph.binary("add", x, graph.binary("mul", made, graph.unary("sigmoid", made)));
  }
  graph.result(x);
  return graph.text();
}

std::string indicesGraph(size_t operations) {
  const std::string type = tile("64x64", "i64"), real = tile("64x64", "f32");
  Writer graph;
  const Written x = graph.argument(real);
  Written index = graph.op(type, "iota 1", type);
  while (graph.count() < operations)
    index = graph.binary("add", index, index);
  graph.result(graph.binary("add", x, graph.to("cast", index, real)));
  return graph.text();
}

std::string rowsGraph(size_t operations) {
  const std::string type = tile("64x64", "f32"), row = tile("64x1", "f32");
  Writer graph;
  const Written x = graph.argument(type);
  Written number = graph.argument(row);
  while (graph.count() < operations)
    number = graph.binary("add", number, number);
  graph.result(graph.binary("add", x, graph.to("broadcast", number, type)));
  return graph.text();
}

std::string viewsGraph(size_t operations) {
  Writer graph;
  size_t rows = operations + 2;
  Written x = graph.argument(tile(fmt::format("{}x64", rows), "f32"));
  bool turned = false;
  while (graph.count() < operations) {
    turned = !turned;
    x = graph.to("transpose", x,
                 turned ? tile(fmt::format("64x{}", rows), "f32") : tile(fmt::format("{}x64", rows), "f32"), " [1, 0]");
    --rows;
    x = graph.to("slice", x, turned ? tile(fmt::format("64x{}", rows), "f32") : tile(fmt::format("{}x64", rows), "f32"),
                 turned ? " [0, 1]" : " [1, 0]");
  }
  graph.result(graph.unary("neg", x));
  return graph.text();
}

std::string concatGraph(size_t operations) {
  const std::string part = tile("1x64", "f32");
  Writer graph;
  const Written x = graph.argument(part);
  const size_t parts = operations;
  std::string names, types;
  for (size_t i = 0; i < parts; ++i) {
    names += (i ? ", " : "") + x.name;
    types += (i ? ", " : "") + part;
  }
  const std::string whole = tile(fmt::format("{}x64", parts), "f32");
  graph.result(graph.op(whole, fmt::format("concat {} {{{{dim = 0 : i64}}}}", names), types + " to " + whole));
  return graph.text();
}

std::string slicesGraph(size_t operations) {
  const std::string row = tile("1x64", "f32");
  Writer graph;
  const Written x = graph.argument(tile(fmt::format("{}x64", operations / 2 + 1), "f32"));
  Written sum = graph.to("slice", x, row, " [0, 0]");
  for (size_t i = 1; graph.count() < operations; ++i)
    sum = graph.binary("add", sum, graph.to("slice", x, row, fmt::format(" [{}, 0]", i)));
  graph.result(sum);
  return graph.text();
}

std::string rotationsGraph(size_t operations) {
  Writer graph;
  const Written cosine = graph.argument(tile("2x1x512x64")), sine = graph.argument(tile("2x1x512x64"));
  Written x = graph.argument(tile("2x16x512x64"));
  while (graph.count() < operations)
    x = rotated(graph, x, "16", cosine, sine);
  graph.result(x);
  return graph.text();
}

} // namespace cermet::tests
