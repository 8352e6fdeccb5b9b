// Lowering keeps a graph's meaning: the row program, run number by number, gives exactly what the interpreter gives for
// the graph. And where there is no row program, the reason says so.
#include "compiler/plan/Lower.h"
#include "ir/transforms/Decompose.h"
#include "ir/gradient/Gradient.h"
#include "ir/dialect/ElementTypes.h"
#include "ir/meaning/Interpreter.h"
#include "ir/text/Text.h"
#include "runtime/abi/RowArguments.h"
#include "tests/unit/compiler/GraphTexts.h"
#include "tests/unit/compiler/plan/RandomGraph.h"
#include "tests/unit/compiler/plan/RowEvaluator.h"
#include <cmath>
#include <gtest/gtest.h>
#include <random>

using namespace cermet;
using namespace cermet::tests;

namespace {

using Modules = std::vector<mlir::OwningOpRef<mlir::ModuleOp>>;

class LowerTest : public testing::Test {
protected:
  LowerTest() { ir::registerDialects(context); }

  mlir::OwningOpRef<mlir::ModuleOp> parsed(const std::string& text) {
    std::string error;
    auto module = ir::parseGraph(text, context, error);
    EXPECT_TRUE(module) << error << "\n" << text;
    return module;
  }

  std::string lower(mlir::ModuleOp module, LoweredFunction& lowered) {
    mlir::OwningOpRef<mlir::ModuleOp> copy(module.clone());
    mlir::func::FuncOp function = ir::graphFunction(*copy);
    ir::decomposeFused(function);
    ir::simplify(function);
    return lowerToRowProgram(function, {}, lowered);
  }

  std::string reason(const std::string& text) {
    LoweredFunction lowered;
    auto module = parsed(text);
    return module ? lower(*module, lowered) : "";
  }

  // Runs both on the same random numbers; every output must be equal, bit by bit.
  void compare(mlir::ModuleOp module, const std::vector<std::vector<int64_t>>& inputs, std::mt19937_64& random) {
    LoweredFunction lowered;
    std::string why = lower(module, lowered);
    ASSERT_EQ(why, "") << ir::printGraph(module, false);
    RowProgram again;
    ASSERT_EQ(parse(print(lowered.program), again), "") << print(lowered.program);

    mlir::func::FuncOp function = ir::graphFunction(module);
    std::vector<ir::Array> arguments, expected;
    for (size_t i = 0; i < inputs.size(); ++i) {
      ir::Array& argument = arguments.emplace_back();
      argument.shape.assign(inputs[i].begin(), inputs[i].end());
      int64_t count = 1;
      for (int64_t size : inputs[i])
        count *= size;
      mlir::Type element = mlir::getElementTypeOrSelf(function.getArgumentTypes()[i]);
      std::normal_distribution<double> normal;
      for (int64_t k = 0; k < count; ++k)
        argument.data.push_back(ir::roundTo(element, (llvm::isa<mlir::FloatType>(element) ? 1 : 4) * normal(random)));
    }
    std::string error;
    ASSERT_TRUE(ir::interpret(module, arguments, true, expected, error)) << error;

    const RowProgram& program = lowered.program;
    OperandData data(program.operands.size());
    int64_t rows = 1;
    for (size_t i = 0; i < program.operands.size(); ++i) {
      const Operand& operand = program.operands[i];
      const ir::Array& array = operand.isOutput ? expected[lowered.positions[i]] : arguments[lowered.positions[i]];
      if (operand.kind == OperandKind::Tile)
        rows = static_cast<int64_t>(array.data.size()) / program.columns;
      if (operand.kind == OperandKind::Row)
        rows = static_cast<int64_t>(array.data.size());
      if (!operand.isOutput)
        data[i] = array.data;
    }
    evaluate(program, rows, data);
    for (size_t i = 0; i < program.operands.size(); ++i) {
      if (!program.operands[i].isOutput)
        continue;
      const std::vector<double>& wanted = expected[lowered.positions[i]].data;
      ASSERT_EQ(data[i].size(), wanted.size()) << program.operands[i].name;
      for (size_t k = 0; k < wanted.size(); ++k) {
        ++(std::isfinite(wanted[k]) ? finite : other);
        ASSERT_TRUE(data[i][k] == wanted[k] || (std::isnan(data[i][k]) && std::isnan(wanted[k])))
            << program.operands[i].name << "[" << k << "] is " << data[i][k] << ", expected " << wanted[k] << "\n"
            << ir::printGraph(module, false) << print(program);
      }
    }
  }

  // A graph, its forward and its backward; `rows` are the sizes of the symbols in the text's order.
  void compareWithGradient(const std::string& text, const std::vector<int64_t>& tile) {
    SCOPED_TRACE(text);
    std::mt19937_64 random(std::random_device{}());
    auto module = parsed(text);
    ASSERT_TRUE(module);
    auto sizesOf = [&](mlir::ModuleOp graph) {
      std::vector<std::vector<int64_t>> sizes;
      for (mlir::Type type : ir::graphFunction(graph).getArgumentTypes()) {
        auto tensor = llvm::cast<mlir::RankedTensorType>(type);
        std::vector<int64_t>& one = sizes.emplace_back();
        for (int64_t i = 0; i < tensor.getRank(); ++i)
          one.push_back(tensor.isDynamicDim(i) ? tile[i] : tensor.getDimSize(i));
      }
      return sizes;
    };
    compare(*module, sizesOf(*module), random);
    ir::Gradient gradient;
    std::string error;
    llvm::SmallVector<bool> wanted(ir::graphFunction(*module).getNumArguments(), true);
    ASSERT_TRUE(ir::differentiate(*module, wanted, gradient, error)) << error;
    compare(*gradient.forward, sizesOf(*gradient.forward), random);
    compare(*gradient.backward, sizesOf(*gradient.backward), random);
  }

  int64_t finite = 0, other = 0; // numbers compared: equal NaNs prove little
  mlir::MLIRContext context{mlir::MLIRContext::Threading::DISABLED};
};

TEST_F(LowerTest, RmsNormAndItsGradientKeepTheirMeaning) {
  for (const char* attributes : {"eps = 1.0e-6, round_before_weight", "eps = 1.0e-5", "eps = 0.0, weight_offset = 1.0"})
    for (const char* type : {"bf16", "f32", "f16"})
      compareWithGradient(rmsNorm({"r0", "r1", "40"}, type, type, type, attributes), {3, 5, 40});
  compareWithGradient(rmsNorm({"r0", "33"}, "bf16", "f32", "f32", "eps = 1.0e-6, round_before_weight"), {7, 33});
  compareWithGradient(rmsNorm({"r0", "r1", "r2", "3", "8"}, "bf16", "bf16", "bf16", "eps = 1.0e-6"), {2, 1, 3, 3, 8});
}

TEST_F(LowerTest, AddRmsNormAndItsGradientKeepTheirMeaning) {
  for (const char* type : {"bf16", "f32", "f16"})
    compareWithGradient(addRmsNorm({"r0", "r1", "40"}, type, type, type, "eps = 1.0e-6, round_before_weight"),
                        {3, 5, 40});
}

TEST_F(LowerTest, GluAndItsGradientKeepTheirMeaning) {
  for (const char* type : {"bf16", "f32", "f16"})
    compareWithGradient(glu({"r0", "r1", "40"}, type), {3, 5, 40});
}

TEST_F(LowerTest, RandomGraphsKeepTheirMeaning) {
  uint64_t first = std::random_device{}();
  int lowered = 0;
  for (uint64_t seed = first; seed < first + 500; ++seed) {
    SCOPED_TRACE(seed);
    RandomGraph graph = randomGraph(seed);
    auto module = parsed(graph.text);
    ASSERT_TRUE(module);
    std::mt19937_64 random(seed);
    compare(*module, graph.inputs, random);
    if (HasFatalFailure())
      return;
    ++lowered;
  }
  EXPECT_EQ(lowered, 500);
  EXPECT_GT(finite, other);
}

// Rows of a table by numbers of which some are no row's: alone, with their norm, and shared by the rows of a larger
// tile.
TEST_F(LowerTest, GatheredRowsKeepTheirMeaning) {
  std::mt19937_64 random(std::random_device{}());
  std::string table = tensor({"v", "24"}, "bf16"), w = tensor({"24"}, "bf16"), x = tensor({"a", "b", "24"}, "bf16");
  for (const char* type : {"i64", "i32", "i16", "i8", "ui8"}) {
    std::string ids = tensor({"a", "b"}, type),
                gather = "    %e = cermet.gather %t, %i : " + table + ", " + ids + " to ";
    auto alone = parsed(graph("f", "%t: " + table + ", %i: " + ids, x, gather + x + "\n    return %e : " + x + "\n"));
    compare(*alone, {{5, 24}, {3, 4}}, random);
    auto norm =
        parsed(graph("f", "%t: " + table + ", %i: " + ids + ", %w: " + w, x + ", " + x,
                     gather + x + "\n    %n = cermet.rms_norm %e, %w {eps = 1.0e-6, round_before_weight} : " + x +
                         ", " + w + " to " + x + "\n    return %n, %e : " + x + ", " + x + "\n"));
    compare(*norm, {{5, 24}, {3, 4}, {24}}, random);
    // The table is an operand of its own, too.
    std::string positions = tensor({"v"}, type), sum = tensor({"v", "24"}, "bf16");
    auto both = parsed(graph("f", "%t: " + table + ", %i: " + positions, sum,
                             "    %e = cermet.gather %t, %i : " + table + ", " + positions + " to " + sum +
                                 "\n    %s = cermet.add %e, %t : " + sum + "\n    return %s : " + sum + "\n"));
    compare(*both, {{7, 24}, {7}}, random);
  }
  EXPECT_GT(4 * finite, other);
  EXPECT_GT(4 * other, finite);
}

TEST_F(LowerTest, AGatherIsAnOperandOfItsOwnKind) {
  std::string table = tensor({"v", "8"}, "bf16"), ids = tensor({"r0"}, "i32"), x = tensor({"r0", "8"}, "bf16");
  LoweredFunction lowered;
  ASSERT_EQ(lower(*parsed(graph("f", "%table: " + table + ", %ids: " + ids, x,
                                "    %e = cermet.gather %table, %ids : " + table + ", " + ids + " to " + x +
                                    "\n    %y = cermet.neg %e : " + x + "\n    return %y : " + x + "\n")),
                  lowered),
            "");
  EXPECT_EQ(print(lowered.program),
            "program f 8\nin ids row i32\nin table gathered bf16 rows ids\nout result0 tile bf16\n"
            "%0 = load table : bf16 element 0\n%1 = neg %0 : bf16 element 0\n"
            "%2 = store %1 result0 : bf16 element 0\n");
  EXPECT_EQ(lowered.positions, (std::vector<int>{1, 0, 0}));
}

TEST_F(LowerTest, ABagHasAListAndItsBounds) {
  std::string table = tensor({"n", "8"}, "bf16"), list = tensor({"m"}, "i32"), bounds = tensor({"r0"}, "i64"),
              x = tensor({"r0", "8"}, "bf16");
  LoweredFunction lowered;
  ASSERT_EQ(lower(*parsed(graph("f", "%table: " + table + ", %list: " + list + ", %b: " + bounds + ", %e: " + bounds, x,
                                "    %s = cermet.embedding_bag %table, %list, %b, %e : " + table + ", " + list + ", " +
                                    bounds + " to " + x + "\n    return %s : " + x + "\n")),
                  lowered),
            "");
  EXPECT_EQ(print(lowered.program),
            "program f 8\nin list list i32\nin b row i64\nin e row i64\n"
            "in table gathered bf16 rows list from b to e\nout result0 tile bf16\n"
            "%0 = load table : bf16 element 0\n%1 = store %0 result0 : bf16 element 0\n");
}

TEST_F(LowerTest, CumulativeSums) {
  const std::string x = tensor({"r0", "8"}, "f32"), row = tensor({"r0", "1"}, "f32");
  const auto of = [&](const std::string& body, const std::string& type) {
    return reason(graph("f", "%x: " + type, type, body + "    return %y : " + type + "\n"));
  };
  const auto sum = [](const char* to, const char* from, const char* direction, const std::string& type) {
    return fmt::format("    %{} = cermet.cumsum %{}{} : {}\n", to, from, direction, type);
  };
  EXPECT_EQ(of(sum("y", "x", " {reverse}", x), x), "");
  EXPECT_EQ(of(sum("a", "x", "", x) + sum("y", "a", "", x), x),
            "a cumulative sum of what another one gives, which is a walk of its own");
  EXPECT_EQ(of(sum("a", "x", "", x) + sum("b", "x", " {reverse}", x) + "    %y = cermet.mul %a, %b : " + x + "\n", x),
            "cumulative sums in both directions, which are two walks");
  // A number of a row that a sum was reduced to is none of its columns.
  EXPECT_EQ(of(sum("a", "x", "", x) + "    %r = cermet.reduce_sum %a : " + x + " to " + row +
                   "\n    %b = cermet.broadcast %r : " + row + " to " + x + "\n    %m = cermet.mul %x, %b : " + x +
                   "\n" + sum("y", "m", "", x),
               x),
            "");
  const std::string symbol = tensor({"r0", "c"}, "f32"), longest = tensor({"r0", "300000"}, "f32");
  EXPECT_EQ(of(sum("y", "x", "", symbol), symbol),
            "the last dimension of [r0, c] is symbolic; a kernel that sums is compiled for a number of columns");
  EXPECT_EQ(of(sum("y", "x", "", longest), longest),
            "cermet.cumsum has 300000 columns; a kernel adds up one behind the other at most 262144");
}

TEST_F(LowerTest, SaysWhyAGatherIsNone) {
  std::string table = tensor({"v", "8"}, "f32"), ids = tensor({"r0"}, "i32"), x = tensor({"r0", "8"}, "f32");
  std::string eight = tensor({"8"}, "i32"), square = tensor({"8", "8"}, "f32");
  EXPECT_EQ(reason(graph("f", "%t: " + table + ", %i: " + eight, square,
                         "    %n = cermet.neg %i : " + eight + "\n    %e = cermet.gather %t, %n : " + table + ", " +
                             eight + " to " + square + "\n    return %e : " + square + "\n")),
            "cermet.gather reads cermet.neg, which the same kernel computes; it reads what is stored");
  EXPECT_EQ(reason(graph("f", "%t: " + table + ", %i: " + ids, x + ", " + table,
                         "    %n = cermet.neg %t : " + table + "\n    %e = cermet.gather %n, %i : " + table + ", " +
                             ids + " to " + x + "\n    return %e, %n : " + x + ", " + table + "\n")),
            "cermet.gather has shape [r0, 8], which is no tile, row or column of [v, 8]");
  std::string wide = tensor({"v", "c"}, "f32"), y = tensor({"r0", "c"}, "f32");
  EXPECT_EQ(reason(graph("f", "%t: " + wide + ", %i: " + ids, y,
                         "    %e = cermet.gather %t, %i : " + wide + ", " + ids + " to " + y +
                             "\n    return %e : " + y + "\n")),
            "the last dimension of [r0, c] is symbolic; a kernel that gathers is compiled for a number of columns");
}

// What is left of a sum where all columns but one are 0, by numbers of which some are no column's.
TEST_F(LowerTest, ASumOfOneColumnIsAPick) {
  std::mt19937_64 random(std::random_device{}());
  const auto text = [](const std::string& predicate, const std::string& type, const std::string& other) {
    const std::string x = tensor({"r0", "5"}, "bf16"), f = tensor({"r0", "5"}, "f32"), c = tensor({"r0", "5"}, type),
                      b = tensor({"r0", "5"}, "i1"), n = tensor({"r0", "1"}, type), r = tensor({"r0", "1"}, "f32");
    const bool isEqual = predicate == "eq";
    return graph("f", "%x: " + x + ", %n: " + n, r,
                 "    %w = cermet.cast %x : " + x + " to " + f + "\n    %e = cermet.exp %w : " + f +
                     "\n    %c = cermet.iota 1 : " + c + "\n    %m = cermet.broadcast %n : " + n + " to " + c +
                     "\n    %h = cermet.compare \"" + predicate + "\", %m, %c : " + c + " to " + b +
                     "\n    %o = cermet.constant " + other + " : " + f + "\n    %s = cermet.select %h, " +
                     (isEqual ? "%e, %o" : "%o, %e") + " : " + b + ", " + f + "\n    %v = cermet.neg %s : " + f +
                     "\n    %r = cermet.reduce_sum " + (isEqual ? "%s" : "%v") + " : " + f + " to " + r +
                     "\n    return %r : " + r + "\n");
  };
  for (const char* predicate : {"eq", "ne"}) {
    auto module = parsed(text(predicate, "i64", "0.0"));
    LoweredFunction lowered;
    ASSERT_EQ(lower(*module, lowered), "");
    EXPECT_EQ(print(lowered.program), "program f 5\nin x tile bf16\nin n row i64\nout result0 row f32\n"
                                      "%0 = load x : bf16 element 0\n%1 = load n : i64 row 0\n"
                                      "%2 = exp %0 : f32 element 0\n" +
                                          std::string(predicate == std::string("eq")
                                                          ? "%3 = pick %2 %1 : f32 row 0\n"
                                                            "%4 = store %3 result0 : f32 row 0\n"
                                                          : "%3 = neg %2 : f32 element 0\n%4 = pick %3 %1 : f32 row 0\n"
                                                            "%5 = store %4 result0 : f32 row 0\n"));
    compare(*module, {{64, 5}, {64, 1}}, random);
  }
  for (const auto& [type, other] : {std::pair{"i64", "1.0"}, {"i8", "0.0"}}) {
    LoweredFunction lowered;
    ASSERT_EQ(lower(*parsed(text("eq", type, other)), lowered), "");
    EXPECT_EQ(print(lowered.program).find("pick"), std::string::npos);
  }
}

// What a pick gives is NaN where no column has the number, and so is the sum of its gradient's row: neither is a pass.
TEST_F(LowerTest, APickAndTheSumOfItsGradientReadOneColumn) {
  const std::string x = tensor({"r0", "5"}, "f32"), c = tensor({"r0", "5"}, "i64"), b = tensor({"r0", "5"}, "i1"),
                    n = tensor({"r0", "1"}, "i64"), r = tensor({"r0", "1"}, "f32");
  auto module = parsed(graph(
      "f", "%x: " + x + ", %n: " + n + ", %g: " + r, r + ", " + r,
      "    %y = cermet.pick %x, %n : " + x + ", " + n + " to " + r + "\n    %z = cermet.constant 0.0 : " + x +
          "\n    %o = cermet.pick %z, %n : " + x + ", " + n + " to " + r + "\n    %c = cermet.iota 1 : " + c +
          "\n    %m = cermet.broadcast %n : " + n + " to " + c + "\n    %h = cermet.compare \"eq\", %c, %m : " + c +
          " to " + b + "\n    %w = cermet.broadcast %g : " + r + " to " + x + "\n    %e = cermet.broadcast %o : " + r +
          " to " + x + "\n    %d = cermet.select %h, %w, %e : " + b + ", " + x +
          "\n    %s = cermet.reduce_sum %d : " + x + " to " + r + "\n    return %y, %s : " + r + ", " + r + "\n"));
  LoweredFunction lowered;
  ASSERT_EQ(lower(*module, lowered), "");
  EXPECT_EQ(print(lowered.program),
            "program f 5\nin x tile f32\nin n row i64\nin g row f32\nout result0 row f32\nout result1 row f32\n"
            "%0 = load x : f32 element 0\n%1 = load n : i64 row 0\n%2 = load g : f32 row 0\n"
            "%3 = pick %0 %1 nan : f32 row 0\n%4 = cast %2 : f32 element 0\n%5 = pick %4 %1 nan : f32 row 0\n"
            "%6 = store %3 result0 : f32 row 0\n%7 = store %5 result1 : f32 row 0\n");
  EXPECT_EQ(lowered.program.stages(), 1);
  std::mt19937_64 random(std::random_device{}());
  compare(*module, {{64, 5}, {64, 1}, {64, 1}}, random);
}

TEST_F(LowerTest, EqualGraphsGiveEqualPrograms) {
  LoweredFunction a, b;
  std::string text = addRmsNorm({"r0", "64"}, "bf16", "bf16", "bf16", "eps = 1.0e-6");
  ASSERT_EQ(lower(*parsed(text), a), "");
  ASSERT_EQ(lower(*parsed(text), b), "");
  EXPECT_EQ(print(a.program), print(b.program));
}

TEST_F(LowerTest, NoTraceOfWhatIsUnused) {
  std::string t = tensor({"r0", "64"}, "f32");
  std::string text =
      graph("f", "%a: " + t + ", %unused: " + t, t,
            "    %d = cermet.exp %a : " + t + "\n    %b = cermet.neg %a : " + t + "\n    return %b : " + t + "\n");
  LoweredFunction lowered;
  ASSERT_EQ(lower(*parsed(text), lowered), "");
  EXPECT_EQ(print(lowered.program), "program f 64\nin a tile f32\nout result0 tile f32\n%0 = load a : f32 element 0\n"
                                    "%1 = neg %0 : f32 element 0\n%2 = store %1 result0 : f32 element 0\n");
  EXPECT_EQ(lowered.positions, (std::vector<int>{0, 0}));
}

TEST_F(LowerTest, AConstantIsWhatItsTypeHolds) {
  for (auto [type, held] : {std::pair{"bf16", 0.10009765625}, {"f16", 0.0999755859375}, {"f32", double(0.1f)}}) {
    std::string t = tensor({"r0", "64"}, type);
    LoweredFunction lowered;
    ASSERT_EQ(lower(*parsed(graph("f", "%a: " + t, t,
                                  "    %c = cermet.constant 0.1 : " + t + "\n    %b = cermet.mul %a, %c : " + t +
                                      "\n    return %b : " + t + "\n")),
                    lowered),
              "");
    EXPECT_EQ(lowered.program.instructions[1].constant, held) << type;
  }
}

TEST_F(LowerTest, AnInputReturnedTwiceIsStoredTwice) {
  std::string t = tensor({"r0", "64"}, "bf16");
  LoweredFunction lowered;
  ASSERT_EQ(lower(*parsed(graph("f", "%a: " + t, t + ", " + t, "    return %a, %a : " + t + ", " + t + "\n")), lowered),
            "");
  EXPECT_EQ(lowered.program.operands.size(), 3u);
  EXPECT_EQ(lowered.program.instructions.size(), 3u);
  EXPECT_EQ(lowered.positions, (std::vector<int>{0, 0, 1}));
}

TEST_F(LowerTest, SaysWhyThereIsNone) {
  auto unary = [](const std::string& type) {
    return graph("f", "%a: " + type, type, "    %b = cermet.neg %a : " + type + "\n    return %b : " + type + "\n");
  };
  EXPECT_EQ(reason(graph("f", "", "", "    return\n")), "it returns nothing");
  EXPECT_EQ(
      reason(unary(tensor({"r0", "4"}, "f64"))),
      "a is tensor<?x4xf64, #cermet.symbols<[\"r0\"]>>; kernels take tensors of f32 bf16 f16 f8e4m3 f8e5m2 i64 i32 "
      "i16 i8 u8 i1");
  std::string wide = tensor({"r0", "c"}, "f32"), sums = tensor({"r0", "1"}, "f32");
  EXPECT_EQ(
      reason(graph("f", "%a: " + wide, sums,
                   "    %b = cermet.reduce_sum %a : " + wide + " to " + sums + "\n    return %b : " + sums + "\n")),
      "the last dimension of [r0, c] is symbolic; a kernel that sums is compiled for a number of columns");

  std::string t = tensor({"r0", "8"}, "f32"), column = tensor({"8"}, "f32");
  EXPECT_EQ(reason(graph("f", "%a: " + t, column,
                         "    %s = cermet.sum_rows %a : " + t + " to " + column +
                             "\n    %b = cermet.neg %s : " + column + "\n    return %b : " + column + "\n")),
            "cermet.sum_rows is read again by cermet.neg; a sum over rows is complete only when the kernel ends");
  std::string half = tensor({"r0", "8"}, "bf16"), halfColumn = tensor({"8"}, "bf16");
  EXPECT_EQ(reason(graph("f", "%a: " + half, column,
                         "    %s = cermet.sum_rows %a : " + half + " to " + halfColumn +
                             "\n    %b = cermet.cast %s : " + halfColumn + " to " + column +
                             "\n    return %b : " + column + "\n")),
            "cermet.sum_rows is bf16 before cermet.cast");
  std::string flat = tensor({"n", "8"}, "f32");
  EXPECT_EQ(reason(graph("f", "%a: " + t + ", %b: " + flat, t + ", " + flat,
                         "    return %a, %b : " + t + ", " + flat + "\n")),
            "b has shape [n, 8], which is no tile, row or column of [r0, 8]");
  EXPECT_EQ(reason(graph("f", "%a: " + t, tensor({"n", "8"}, "f32"),
                         "    %b = cermet.reshape %a : " + t + " to " + flat + "\n    return %b : " + flat + "\n")),
            "cermet.reshape has shape [n, 8], which is no tile, row or column of [r0, 8]");
  EXPECT_EQ(reason(graph("f", "%a: " + t + ", %w: " + column, t + ", " + column,
                         "    return %a, %w : " + t + ", " + column + "\n")),
            "it returns w of shape [8]; a kernel stores [r0, 8], one value a row, or sums over rows");
  EXPECT_EQ(
      reason(graph("f", "%a: " + t, t,
                   "    %b = cermet.opaque \"aten.sort\"(%a) : (" + t + ") -> " + t + "\n    return %b : " + t + "\n")),
      "cermet.opaque does not work row by row");
  std::string arguments, sum, previous = "%a0";
  for (int i = 0; i < kMaxOperands; ++i)
    arguments += (i ? ", %a" : "%a") + std::to_string(i) + ": " + t;
  for (int i = 1; i < kMaxOperands; ++i) {
    sum += "    %s" + std::to_string(i) + " = cermet.add " + previous + ", %a" + std::to_string(i) + " : " + t + "\n";
    previous = "%s" + std::to_string(i);
  }
  EXPECT_EQ(reason(graph("f", arguments, t, sum + "    return " + previous + " : " + t + "\n")),
            "it has 33 operands, a kernel takes 32");
}

} // namespace
