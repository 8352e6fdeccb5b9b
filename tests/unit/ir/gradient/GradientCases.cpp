// The graphs whose gradients tests/unit/ir/gradient/GradientTest.cpp holds against central differences: every operation
// that has a gradient, in every form, and the fused ones.
#include "tests/unit/ir/gradient/GradientTest.h"

namespace cermet::ir {

std::string norm(const std::string& x, const std::string& weight, const std::string& result, const std::string& extra) {
  auto tensor = [](const std::string& element) { return "tensor<?x5x" + element + ", #cermet.symbols<[\"r0\"]>>"; };
  return "func.func @norm(%x: " + tensor(x) + ", %w: tensor<5x" + weight + ">) -> " + tensor(result) +
         " { %0 = cermet.rms_norm %x, %w {eps = 1.0e-2 : f64" + extra + "} : " + tensor(x) + ", tensor<5x" + weight +
         "> to " + tensor(result) + " return %0 : " + tensor(result) + " }";
}

std::string addNorm(const std::string& x, const std::string& residual, const std::string& sum,
                    const std::string& weight, const std::string& result, const std::string& extra) {
  auto tensor = [](const std::string& element) { return "tensor<2x?x5x" + element + ", #cermet.symbols<[\"r0\"]>>"; };
  return "func.func @add_norm(%x: " + tensor(x) + ", %residual: " + tensor(residual) + ", %w: tensor<5x" + weight +
         ">) -> (" + tensor(result) + ", " + tensor(sum) +
         ") { %0:2 = cermet.add_rms_norm %x, %residual, %w {eps = 1.0e-2 : f64" + extra + "} : " + tensor(x) + ", " +
         tensor(residual) + ", tensor<5x" + weight + "> to " + tensor(result) + ", " + tensor(sum) +
         " return %0#0, %0#1 : " + tensor(result) + ", " + tensor(sum) + " }";
}

namespace {

Case unary(const std::string& op, double lowest = -2, double highest = 2, bool apart = false) {
  return {op,
          "func.func @f(%x: tensor<3x4xf32>) -> tensor<3x4xf32> { %0 = cermet." + op +
              " %x : tensor<3x4xf32> return %0 : tensor<3x4xf32> }",
          lowest, highest, apart};
}

Case binary(const std::string& op, double lowest = -2, double highest = 2, bool apart = false) {
  return {op,
          "func.func @f(%x: tensor<3x4xf64>, %y: tensor<3x4xf64>) -> tensor<3x4xf64> { %0 = cermet." + op +
              " %x, %y : tensor<3x4xf64> return %0 : tensor<3x4xf64> }",
          lowest, highest, apart};
}

// x to a constant power.
Case power(const std::string& name, const std::string& exponent, double lowest, double highest) {
  return {name,
          "func.func @f(%x: tensor<3x4xf32>) -> tensor<3x4xf32> { %c = cermet.constant " + exponent +
              " : tensor<3x4xf32> %0 = cermet.pow %x, %c : tensor<3x4xf32> return %0 : tensor<3x4xf32> }",
          lowest, highest};
}

// One operation from a shape to another, times an input of the result's shape, so that its cotangent is no constant.
Case shaped(const std::string& name, const std::string& op, std::string from, std::string to,
            const std::string& list = "", bool apart = false) {
  from = "tensor<" + from + ">", to = "tensor<" + to + ">";
  return {name,
          "func.func @f(%x: " + from + ", %y: " + to + ") -> " + to + " { %0 = cermet." + op + " %x " + list + " : " +
              from + " to " + to + " %1 = cermet.mul %0, %y : " + to + " return %1 : " + to + " }",
          -2, 2, apart};
}

// Rows of [5, 3] by numbers from 0 to 4.
Case gather(const std::string& name, const std::string& index, const std::string& to) {
  return {name,
          "func.func @f(%x: tensor<5x3xf32>, %i: tensor<" + index + ">) -> tensor<" + to +
              "> { %0 = cermet.gather %x, %i : tensor<5x3xf32>, tensor<" + index + "> to tensor<" + to +
              "> return %0 : tensor<" + to + "> }",
          0, 5};
}

// One of five columns, by numbers from 0 to 4.
Case picked(const std::string& name, const std::string& from, const std::string& index, const std::string& to) {
  return {name,
          "func.func @f(%x: tensor<" + from + ">, %i: tensor<" + index + ">) -> tensor<" + to +
              "> { %0 = cermet.pick %x, %i : tensor<" + from + ">, tensor<" + index + "> to tensor<" + to +
              "> return %0 : tensor<" + to + "> }",
          0, 5};
}

// One operation from a packed [2, 6] to [2, 3].
Case packed(const std::string& name, const std::string& attributes, const std::string& element) {
  std::string from = "tensor<2x6x" + element + ">", to = "tensor<2x3x" + element + ">";
  return {name, "func.func @f(%x: " + from + ") -> " + to + " { %0 = cermet.packed_glu %x " + attributes + " : " +
                    from + " to " + to + " return %0 : " + to + " }"};
}

Case glu(const std::string& name, const std::string& attributes, const std::string& element) {
  std::string type = "tensor<3x4x" + element + ">";
  return {name, "func.func @glu(%gate: " + type + ", %up: " + type + ") -> " + type + " { %0 = cermet.glu %gate, %up " +
                    attributes + " : " + type + " return %0 : " + type + " }"};
}

// Of [4, 3] hidden and [5, 3] weight, labels from 0 to 4 of which 1 is ignored, and a bias.
Case linearCrossEntropy(const std::string& name, const std::string& attributes, const std::string& result = "f32") {
  return {name,
          "func.func @f(%x: tensor<4x3xf32>, %w: tensor<5x3xf32>, %l: tensor<4xi64>, %b: tensor<5xf32>) -> tensor<" +
              result + "> { %0 = cermet.linear_cross_entropy %x, %w, %l, %b {ignore_index = 1 : i64" + attributes +
              "} : tensor<4x3xf32>, tensor<5x3xf32>, tensor<4xi64>, tensor<5xf32> to tensor<" + result +
              "> return %0 : tensor<" + result + "> }",
          0, 4.9};
}

Case matmul(const std::string& name, const std::string& lhs, const std::string& rhs, const std::string& result,
            const std::string& attributes) {
  return {name, "func.func @f(%x: tensor<" + lhs + "xf32>, %y: tensor<" + rhs + "xf32>) -> tensor<" + result +
                    "xf32> { %0 = cermet.matmul %x, %y " + attributes + " : tensor<" + lhs + "xf32>, tensor<" + rhs +
                    "xf32> to tensor<" + result + "xf32> return %0 : tensor<" + result + "xf32> }"};
}

INSTANTIATE_TEST_SUITE_P(
    Elementwise, GradientTest,
    testing::Values(
        binary("add"), binary("sub"), binary("mul"), binary("div", 0.5, 2), binary("pow", 0.5, 2),
        binary("max", -2, 2, true), binary("min", -2, 2, true), unary("neg"), unary("abs", -2, 2, true), unary("exp"),
        unary("log", 0.5, 3), unary("sqrt", 0.5, 3), unary("tanh"), unary("erf"), unary("relu", -2, 2, true),
        unary("gelu", -4, 4), unary("gelu_tanh", -4, 4), power("pow_0", "0.0", -2, 2), power("pow_1", "1.0", -2, 2),
        power("pow_2", "2.0", -2, 2), power("pow_3", "3.0", -2, 2), power("pow_half", "0.5", 0.5, 2),
        power("pow_negative", "-1.5", 0.5, 2), unary("rsqrt", 0.5, 3), unary("sigmoid"), unary("softplus", -4, 4),
        unary("silu", -4, 4), shaped("cast", "cast", "3x4xf32", "3x4xbf16"),
        Case{"square", "func.func @f(%x: tensor<3x4xf32>) -> tensor<3x4xf32> { %0 = "
                       "cermet.mul %x, %x : tensor<3x4xf32> return %0 : "
                       "tensor<3x4xf32> }"},
        Case{"select_given",
             R"(func.func @f(%c: tensor<3x4xi32>, %x: tensor<3x4xf32>, %y: tensor<3x4xf32>) -> tensor<3x4xf32> {
                                           %zero = cermet.constant 0.0 : tensor<3x4xi32>
                                           %0 = cermet.compare "ge", %c, %zero : tensor<3x4xi32> to tensor<3x4xi1>
                                           %1 = cermet.select %0, %x, %y : tensor<3x4xi1>, tensor<3x4xf32>
                                           return %1 : tensor<3x4xf32> })",
             -3, 3},
        Case{"select_compared", R"(func.func @f(%x: tensor<3x4xf32>, %y: tensor<3x4xf32>) -> tensor<3x4xf32> {
                                           %0 = cermet.compare "lt", %x, %y : tensor<3x4xf32> to tensor<3x4xi1>
                                           %1 = cermet.mul %x, %y : tensor<3x4xf32>
                                           %2 = cermet.select %0, %1, %y : tensor<3x4xi1>, tensor<3x4xf32>
                                           return %2 : tensor<3x4xf32> })",
             -2, 2, true}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Shapes, GradientTest,
    testing::Values(
        shaped("columns", "broadcast", "4xf32", "3x4xf32"), shaped("rows", "broadcast", "3x1xf32", "3x4xf32"),
        shaped("scalar", "broadcast", "f32", "3x4xf32"), shaped("one", "broadcast", "1xf32", "2x3x4xf32"),
        shaped("matrix", "broadcast", "3x4xf32", "2x3x4xf32"), shaped("outer", "broadcast", "2x1x1xf32", "2x3x4xf32"),
        shaped("both_ends", "broadcast", "1x3x1xf32", "2x3x4xf32"),
        shaped("leading_ones", "broadcast", "3x4xf32", "1x3x4xf32"),
        shaped("symbolic_rows", "broadcast", "?x1xf32, #cermet.symbols<[\"r\"]>", "?x4xf32, #cermet.symbols<[\"r\"]>"),
        shaped("symbolic_columns", "broadcast", "4xf32", "?x?x4xf32, #cermet.symbols<[\"a\", \"b\"]>"),
        shaped("middle", "broadcast", "2x1x4xf32", "2x3x4xf32"),
        shaped("two_middles", "broadcast", "2x1x3x1x2xf64", "2x3x3x4x2xf64"),
        shaped("middle_and_ends", "broadcast", "3x1x2x1xf32", "2x3x4x2x3xf32"),
        shaped("middle_of_symbols", "broadcast", "?x1x?xf32, #cermet.symbols<[\"a\", \"b\"]>",
               "?x2x?xf32, #cermet.symbols<[\"a\", \"b\"]>"),
        shaped("symbolic_middle", "broadcast", "2x1x4xf32", "2x?x4xf32, #cermet.symbols<[\"a\"]>"),
        shaped("outer_of_symbols", "broadcast", "?x4xf32, #cermet.symbols<[\"a\"]>",
               "2x?x4xf32, #cermet.symbols<[\"a\"]>"),
        shaped("transpose", "transpose", "2x3x4xf32", "4x2x3xf32", "[2, 0, 1]"),
        shaped("transpose_symbols", "transpose", "2x?x4xbf16, #cermet.symbols<[\"a\"]>",
               "?x4x2xbf16, #cermet.symbols<[\"a\"]>", "[1, 2, 0]"),
        shaped("slice", "slice", "3x5x6xf32", "2x5x3xf32", "[1, 0, 2]"),
        shaped("slice_front", "slice", "?x6xf32, #cermet.symbols<[\"a\"]>", "?x4xf32, #cermet.symbols<[\"a\"]>",
               "[0, 0]"),
        shaped("slice_back", "slice", "5xf32", "1xf32", "[4]"),
        Case{"slices", R"(func.func @f(%x: tensor<2x7xf32>) -> tensor<2x2xf32> {
          %0 = cermet.slice %x [0, 0] : tensor<2x7xf32> to tensor<2x2xf32>
          %1 = cermet.slice %x [0, 5] : tensor<2x7xf32> to tensor<2x2xf32>
          %2 = cermet.slice %x [0, 2] : tensor<2x7xf32> to tensor<2x2xf32>
          %3 = cermet.mul %0, %1 : tensor<2x2xf32>
          %4 = cermet.mul %3, %2 : tensor<2x2xf32>
          return %4 : tensor<2x2xf32> })"},
        Case{"slices_overlap", R"(func.func @f(%x: tensor<2x7xf32>) -> tensor<2x4xf32> {
          %0 = cermet.slice %x [0, 0] : tensor<2x7xf32> to tensor<2x4xf32>
          %1 = cermet.slice %x [0, 3] : tensor<2x7xf32> to tensor<2x4xf32>
          %2 = cermet.mul %0, %1 : tensor<2x4xf32>
          return %2 : tensor<2x4xf32> })"},
        Case{
            "concat",
            R"(func.func @f(%x: tensor<?x2x3xf32, #cermet.symbols<["a"]>>, %y: tensor<?x1x3xf32, #cermet.symbols<["a"]>>) -> tensor<?x5x3xf32, #cermet.symbols<["a"]>> {
          %0 = cermet.concat %x, %y, %x {dim = 1 : i64} : tensor<?x2x3xf32, #cermet.symbols<["a"]>>, tensor<?x1x3xf32, #cermet.symbols<["a"]>>, tensor<?x2x3xf32, #cermet.symbols<["a"]>> to tensor<?x5x3xf32, #cermet.symbols<["a"]>>
          %1 = cermet.mul %0, %0 : tensor<?x5x3xf32, #cermet.symbols<["a"]>>
          return %1 : tensor<?x5x3xf32, #cermet.symbols<["a"]>> })"},
        Case{"iota", R"(func.func @f(%x: tensor<3x4xf32>) -> tensor<3x4xf32> {
          %0 = cermet.iota 1 : tensor<3x4xf32>
          %1 = cermet.mul %x, %0 : tensor<3x4xf32>
          return %1 : tensor<3x4xf32> })"},
        Case{"random", R"(func.func @f(%x: tensor<3x4xf32>, %s: tensor<i64>) -> tensor<3x4xf32> {
          %0 = cermet.random %s : tensor<i64> to tensor<3x4xi64>
          %1 = cermet.cast %0 : tensor<3x4xi64> to tensor<3x4xf32>
          %2 = cermet.constant 4294967296.0 : tensor<3x4xf32>
          %3 = cermet.div %1, %2 : tensor<3x4xf32>
          %4 = cermet.mul %x, %3 : tensor<3x4xf32>
          return %4 : tensor<3x4xf32> })"},
        gather("gather", "4xi64", "4x3xf32"), gather("gather_rank_0", "i32", "3xf32"),
        gather("gather_rank_2", "?x2xi8, #cermet.symbols<[\"a\"]>", "?x2x3xf32, #cermet.symbols<[\"a\"]>"),
        picked("pick", "3x5xf32", "3x1xi64", "3x1xf32"),
        picked("pick_rank_3", "?x2x5xf64, #cermet.symbols<[\"a\"]>", "?x2x1xi8, #cermet.symbols<[\"a\"]>",
               "?x2x1xf64, #cermet.symbols<[\"a\"]>"),
        shaped("reduce_max", "reduce_max", "2x3x5xf32", "2x3x1xf32", "", true),
        shaped("reduce_min", "reduce_min", "?x5xf64, #cermet.symbols<[\"a\"]>", "?x1xf64, #cermet.symbols<[\"a\"]>", "",
               true),
        unary("cumsum"), Case{"cumsum_reverse", R"(func.func @f(%x: tensor<3x5xf64>) -> tensor<3x5xf64> {
          %0 = cermet.cumsum %x {reverse} : tensor<3x5xf64>
          %1 = cermet.mul %0, %x : tensor<3x5xf64>
          return %1 : tensor<3x5xf64> })"},
        Case{"softmax", R"(func.func @f(%x: tensor<3x5xf32>) -> tensor<3x5xf32> {
          %0 = cermet.reduce_max %x : tensor<3x5xf32> to tensor<3x1xf32>
          %1 = cermet.broadcast %0 : tensor<3x1xf32> to tensor<3x5xf32>
          %2 = cermet.sub %x, %1 : tensor<3x5xf32>
          %3 = cermet.exp %2 : tensor<3x5xf32>
          %4 = cermet.reduce_sum %3 : tensor<3x5xf32> to tensor<3x1xf32>
          %5 = cermet.broadcast %4 : tensor<3x1xf32> to tensor<3x5xf32>
          %6 = cermet.div %3, %5 : tensor<3x5xf32>
          return %6 : tensor<3x5xf32> })",
             -2, 2, true},
        Case{"rows_of_unread_input", R"(func.func @f(%x: tensor<?x4xf32, #cermet.symbols<["a"]>>) -> tensor<4xf32> {
          %0 = cermet.sum_rows %x : tensor<?x4xf32, #cermet.symbols<["a"]>> to tensor<4xf32>
          return %0 : tensor<4xf32> })"},
        Case{"gather_from_symbol",
             R"(func.func @f(%x: tensor<?x4xf32, #cermet.symbols<["rows"]>>, %i: tensor<2xi32>) -> tensor<2x4xf32> {
          %0 = cermet.gather %x, %i : tensor<?x4xf32, #cermet.symbols<["rows"]>>, tensor<2xi32> to tensor<2x4xf32>
          return %0 : tensor<2x4xf32> })",
             0, 3},
        shaped("reshape", "reshape", "3x4xf32", "2x6xf32"),
        shaped("reduce_sum", "reduce_sum", "2x3x4xf32", "2x3x1xf32"),
        shaped("sum_rows", "sum_rows", "2x3x4xf32", "4xf32"), matmul("matmul", "3x4", "4x2", "3x2", ""),
        matmul("matmul_batch", "2x3x4", "4x2", "2x3x2", ""),
        matmul("matmul_transpose_rhs", "2x3x4", "2x4", "2x3x2", "{transpose_rhs}"),
        matmul("matmul_transpose_lhs", "2x3x4", "2x3x5", "4x5", "{transpose_lhs}")),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Fused, GradientTest,
    testing::Values(
        Case{"rms_norm_f32", norm("f32", "f32", "f32", "")},
        Case{"rms_norm_f64", norm("f64", "f64", "f64", ", round_before_weight")},
        Case{"rms_norm_bf16", norm("bf16", "bf16", "bf16", ", round_before_weight")},
        Case{"rms_norm_mixed", norm("bf16", "f32", "f32", ", round_before_weight")},
        Case{"rms_norm_gemma", norm("f16", "f16", "f16", ", weight_offset = 1.0 : f64")},
        Case{"add_rms_norm_f32", addNorm("f32", "f32", "f32", "f32", "f32", "")},
        Case{"add_rms_norm_bf16", addNorm("bf16", "bf16", "bf16", "bf16", "bf16", ", round_before_weight")},
        Case{"add_rms_norm_mixed", addNorm("bf16", "f32", "f32", "f32", "f32", ", round_before_weight")},
        glu("glu_f32", "", "f32"), glu("glu_bf16", "", "bf16"), glu("glu_gelu", "{activation = \"gelu\"}", "f32"),
        glu("glu_gelu_tanh", "{activation = \"gelu_tanh\"}", "bf16"), packed("packed_glu", "", "bf16"),
        packed("packed_glu_up_first", "{up_first}", "f32"), packed("packed_glu_gelu", "{activation = \"gelu\"}", "f64"),
        packed("packed_glu_gelu_tanh", "{activation = \"gelu_tanh\", up_first}", "bf16"),
        linearCrossEntropy("linear_cross_entropy", ""),
        linearCrossEntropy("linear_cross_entropy_smoothed", ", label_smoothing = 0.3 : f64, reduction = \"sum\""),
        linearCrossEntropy("linear_cross_entropy_of_each_row",
                           ", softcap = 3.0 : f64, z_loss = 0.2 : f64, reduction = \"none\"", "4xf32")),
    [](const auto& info) { return info.param.name; });

} // namespace
} // namespace cermet::ir
