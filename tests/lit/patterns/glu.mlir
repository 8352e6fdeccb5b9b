// A gated activation becomes cermet.glu where nothing else reads the activation, and says why where it does not.
// RUN: cermet-opt %s -cermet-raise 2>/dev/null | FileCheck %s
// RUN: cermet-opt %s -cermet-raise 2>&1 >/dev/null | FileCheck %s --check-prefix=MISS --implicit-check-not="near miss"

!x = tensor<?x64xbf16, #cermet.symbols<["r0"]>>
!wide = tensor<?x64xf32, #cermet.symbols<["r0"]>>
!row = tensor<?x1xf32, #cermet.symbols<["r0"]>>
!w = tensor<64xbf16>
!wwide = tensor<64xf32>
!packed = tensor<?x128xbf16, #cermet.symbols<["r0"]>>
!a = tensor<2x3x64xbf16>
!b = tensor<6x64xbf16>

// CHECK-LABEL: func.func @swiglu(
// CHECK-NEXT: %[[Y:.*]] = cermet.glu %arg0, %arg1 : tensor<?x64xbf16, #cermet.symbols<["r0"]>>
// CHECK-NEXT: return %[[Y]]
func.func @swiglu(%gate: !x, %up: !x) -> !x {
  %act = cermet.silu %gate : !x loc("silu_1")
  %y = cermet.mul %act, %up : !x loc("mul_1")
  return %y : !x
}

// CHECK-LABEL: func.func @swapped(
// CHECK-NEXT: %[[Y:.*]] = cermet.glu %arg0, %arg1 : tensor<?x64xf32, #cermet.symbols<["r0"]>>
// CHECK-NEXT: return %[[Y]]
func.func @swapped(%gate: !wide, %up: !wide) -> !wide {
  %act = cermet.silu %gate : !wide loc("silu_1")
  %y = cermet.mul %up, %act : !wide loc("mul_1")
  return %y : !wide
}

// The up projection stands between.
// CHECK-LABEL: func.func @up_comes_later(
// CHECK-NEXT: %[[U:.*]] = cermet.matmul
// CHECK-NEXT: %[[Y:.*]] = cermet.glu %arg0, %[[U]]
// CHECK-NEXT: return %[[Y]]
func.func @up_comes_later(%gate: !x, %h: !x, %p: tensor<64x64xbf16>) -> !x {
  %act = cermet.silu %gate : !x loc("silu_1")
  %up = cermet.matmul %h, %p {transpose_rhs} : !x, tensor<64x64xbf16> to !x loc("linear_2")
  %y = cermet.mul %act, %up : !x loc("mul_1")
  return %y : !x
}

// Halves of one projection.
// CHECK-LABEL: func.func @one_projection(
// CHECK-NEXT: %[[P:.*]]:2 = cermet.opaque "chunk"
// CHECK-NEXT: %[[Y:.*]] = cermet.glu %[[P]]#0, %[[P]]#1
// CHECK-NEXT: return %[[Y]]
func.func @one_projection(%both: tensor<?x128xbf16, #cermet.symbols<["r0"]>>) -> !x {
  %parts:2 = cermet.opaque "chunk"(%both) : (tensor<?x128xbf16, #cermet.symbols<["r0"]>>) -> (!x, !x) loc("chunk_1")
  %act = cermet.silu %parts#0 : !x loc("silu_1")
  %y = cermet.mul %act, %parts#1 : !x loc("mul_1")
  return %y : !x
}

// CHECK-LABEL: func.func @two_activations(
// CHECK-NEXT: %[[S:.*]] = cermet.silu %arg1
// CHECK-NEXT: %[[Y:.*]] = cermet.glu %arg0, %[[S]]
// CHECK-NEXT: return %[[Y]]
func.func @two_activations(%gate: !x, %up: !x) -> !x {
  %act = cermet.silu %gate : !x loc("silu_1")
  %other = cermet.silu %up : !x loc("silu_2")
  %y = cermet.mul %act, %other : !x loc("mul_1")
  return %y : !x
}

// A scaled activation has no gate, and there is nothing to report.
// CHECK-LABEL: func.func @scaled(
// CHECK-NOT: cermet.glu
func.func @scaled(%gate: !x) -> !x {
  %act = cermet.silu %gate : !x loc("silu_1")
  %two = cermet.constant 2.0 : !x
  %y = cermet.mul %act, %two : !x loc("mul_1")
  return %y : !x
}

// CHECK-LABEL: func.func @alone(
// CHECK-NEXT: %[[S:.*]] = cermet.silu %arg0
// CHECK-NEXT: return %[[S]]
func.func @alone(%gate: !x) -> !x {
  %act = cermet.silu %gate : !x loc("silu_1")
  return %act : !x
}

// CHECK-LABEL: func.func @read_elsewhere(
// CHECK-NOT: cermet.glu
// MISS: near miss of glu at mul_1: inner value `silu_1` has another user: add_9{{$}}
func.func @read_elsewhere(%gate: !x, %up: !x) -> (!x, !x) {
  %act = cermet.silu %gate : !x loc("silu_1")
  %y = cermet.mul %act, %up : !x loc("mul_1")
  %z = cermet.add %act, %up : !x loc("add_9")
  return %y, %z : !x, !x
}

// CHECK-LABEL: func.func @two_products(
// CHECK-NOT: cermet.glu
// MISS: near miss of glu at mul_1: inner value `silu_1` has another user: mul_2{{$}}
func.func @two_products(%gate: !x, %up: !x, %other: !x) -> (!x, !x) {
  %act = cermet.silu %gate : !x loc("silu_1")
  %y = cermet.mul %act, %up : !x loc("mul_1")
  %z = cermet.mul %other, %act : !x loc("mul_2")
  return %y, %z : !x, !x
}

// CHECK-LABEL: func.func @returned(
// CHECK-NOT: cermet.glu
// MISS: near miss of glu at mul_1: inner value `silu_1` is returned by the function{{$}}
func.func @returned(%gate: !x, %up: !x) -> (!x, !x) {
  %act = cermet.silu %gate : !x loc("silu_1")
  %y = cermet.mul %act, %up : !x loc("mul_1")
  return %y, %act : !x, !x
}

// CHECK-LABEL: func.func @multiplied_in_place(
// CHECK-NOT: cermet.glu
// MISS: near miss of glu at mul__1: inner value `silu_1` is written in place by `mul__1`{{$}}
func.func @multiplied_in_place(%gate: !x, %up: !x) -> !x {
  %act = cermet.silu %gate : !x loc("silu_1")
  %y = cermet.opaque "mul_"(%act, %up) {effect = "write", versions = 1 : i64} : (!x, !x) -> !x loc("mul__1")
  return %y : !x
}

// CHECK-LABEL: func.func @written_in_place(
// CHECK-NOT: cermet.glu
// MISS: near miss of glu at mul_1: inner value `silu_1` is written in place by `add__1`{{$}}
func.func @written_in_place(%gate: !x, %up: !x) -> (!x, !x) {
  %act = cermet.silu %gate : !x loc("silu_1")
  %y = cermet.mul %act, %up : !x loc("mul_1")
  %z = cermet.opaque "add_"(%act) {effect = "write", versions = 1 : i64} : (!x) -> !x loc("add__1")
  return %y, %z : !x, !x
}

// CHECK-LABEL: func.func @gate_of_a_written_cast(
// CHECK-NOT: cermet.glu
// MISS: near miss of glu at mul_1: inner value `to_1` is written in place by `add__1`{{$}}
func.func @gate_of_a_written_cast(%h: !x, %up: !wide) -> !wide {
  %cast = cermet.cast %h : !x to !wide loc("to_1")
  %gate = cermet.opaque "add_"(%cast) {effect = "write", versions = 1 : i64} : (!wide) -> !wide loc("add__1")
  %act = cermet.silu %gate : !wide loc("silu_1")
  %y = cermet.mul %act, %up : !wide loc("mul_1")
  return %y : !wide
}

// CHECK-LABEL: func.func @mixed_types(
// CHECK-NOT: cermet.glu
// MISS: near miss of glu at mul_1: the activation is computed in bf16 and meets up in f32, expected one type{{$}}
func.func @mixed_types(%gate: !x, %up: !wide) -> !wide {
  %act = cermet.silu %gate : !x loc("silu_1")
  %wide = cermet.cast %act : !x to !wide loc("mul_1")
  %y = cermet.mul %wide, %up : !wide loc("mul_1")
  return %y : !wide
}

// CHECK-LABEL: func.func @activation_rounded_twice(
// CHECK-NOT: cermet.glu
// MISS: near miss of glu at mul_1: the activation is computed in f32 and meets up in bf16, expected one type{{$}}
func.func @activation_rounded_twice(%gate: !wide, %up: !x) -> !x {
  %act = cermet.silu %gate : !wide loc("silu_1")
  %half = cermet.cast %act : !wide to !x loc("to_2")
  %y = cermet.mul %half, %up : !x loc("mul_1")
  return %y : !x
}

// CHECK-LABEL: func.func @up_cast_by_the_product(
// CHECK-NOT: cermet.glu
// MISS: near miss of glu at mul_1: up is a cast from bf16 to f32 that `mul_1` itself makes, expected a value of the graph{{$}}
func.func @up_cast_by_the_product(%gate: !wide, %up: !x) -> !wide {
  %act = cermet.silu %gate : !wide loc("silu_1")
  %wide = cermet.cast %up : !x to !wide loc("mul_1")
  %y = cermet.mul %act, %wide : !wide loc("mul_1")
  return %y : !wide
}

// CHECK-LABEL: func.func @up_of_one_row(
// CHECK-NOT: cermet.glu
// MISS: near miss of glu at mul_1: up has shape [64], expected the gate's [r0, 64]{{$}}
func.func @up_of_one_row(%gate: !x, %up: !w) -> !x {
  %act = cermet.silu %gate : !x loc("silu_1")
  %all = cermet.broadcast %up : !w to !x loc("mul_1")
  %y = cermet.mul %act, %all : !x loc("mul_1")
  return %y : !x
}

// CHECK-LABEL: func.func @squared(
// CHECK-NOT: cermet.glu
// MISS: near miss of glu at mul_1: the activation is multiplied by itself, expected by another value{{$}}
func.func @squared(%gate: !x) -> !x {
  %act = cermet.silu %gate : !x loc("silu_1")
  %y = cermet.mul %act, %act : !x loc("mul_1")
  return %y : !x
}

// CHECK-LABEL: func.func @f64(
// CHECK-NOT: cermet.glu
// MISS: near miss of glu at mul_1: dtype f64 is not supported{{$}}
func.func @f64(%gate: tensor<?x64xf64, #cermet.symbols<["r0"]>>, %up: tensor<?x64xf64, #cermet.symbols<["r0"]>>) -> tensor<?x64xf64, #cermet.symbols<["r0"]>> {
  %act = cermet.silu %gate : tensor<?x64xf64, #cermet.symbols<["r0"]>> loc("silu_1")
  %y = cermet.mul %act, %up : tensor<?x64xf64, #cermet.symbols<["r0"]>> loc("mul_1")
  return %y : tensor<?x64xf64, #cermet.symbols<["r0"]>>
}

// CHECK-LABEL: func.func @strided(
// CHECK-NOT: cermet.glu
// MISS: near miss of glu at mul_1: the last dimension of up has stride 64, expected stride 1{{$}}
func.func @strided(%gate: !x, %up: !x {cermet.strides = array<i64: 1, 64>}) -> !x {
  %act = cermet.silu %gate : !x loc("silu_1")
  %y = cermet.mul %act, %up : !x loc("mul_1")
  return %y : !x
}

// CHECK-LABEL: func.func @gelu(
// CHECK-NEXT: %[[Y:.*]] = cermet.glu %arg0, %arg1 {activation = "gelu"} : tensor<?x64xbf16
// CHECK-NEXT: return %[[Y]]
func.func @gelu(%gate: !x, %up: !x) -> !x {
  %act = cermet.gelu %gate : !x loc("gelu_1")
  %y = cermet.mul %act, %up : !x loc("mul_1")
  return %y : !x
}

// CHECK-LABEL: func.func @gelu_tanh(
// CHECK-NEXT: %[[Y:.*]] = cermet.glu %arg0, %arg1 {activation = "gelu_tanh"} : tensor<?x64xf32
// CHECK-NEXT: return %[[Y]]
func.func @gelu_tanh(%gate: !wide, %up: !wide) -> !wide {
  %act = cermet.gelu_tanh %gate : !wide loc("gelu_1")
  %y = cermet.mul %up, %act : !wide loc("mul_1")
  return %y : !wide
}

// Two halves of one tensor are read as they lie.
// CHECK-LABEL: func.func @packed(
// CHECK-NEXT: %[[Y:.*]] = cermet.packed_glu %arg0 : tensor<?x128xbf16, #cermet.symbols<["r0"]>> to tensor<?x64xbf16, #cermet.symbols<["r0"]>>
// CHECK-NEXT: return %[[Y]]
func.func @packed(%both: !packed) -> !x {
  %left = cermet.slice %both [0, 0] : !packed to !x loc("chunk_1")
  %right = cermet.slice %both [0, 64] : !packed to !x loc("chunk_2")
  %act = cermet.silu %left : !x loc("silu_1")
  %y = cermet.mul %act, %right : !x loc("mul_1")
  return %y : !x
}

// CHECK-LABEL: func.func @packed_up_first(
// CHECK-NEXT: %[[Y:.*]] = cermet.packed_glu %arg0 {activation = "gelu_tanh", up_first}
// CHECK-NEXT: return %[[Y]]
func.func @packed_up_first(%both: !packed) -> !x {
  %left = cermet.slice %both [0, 0] : !packed to !x loc("chunk_1")
  %right = cermet.slice %both [0, 64] : !packed to !x loc("chunk_2")
  %act = cermet.gelu_tanh %right : !x loc("gelu_1")
  %y = cermet.mul %left, %act : !x loc("mul_1")
  return %y : !x
}

// A half that something else reads stays.
// CHECK-LABEL: func.func @packed_read_elsewhere(
// CHECK-NEXT: %[[Y:.*]] = cermet.packed_glu %arg0
// CHECK-NEXT: %[[R:.*]] = cermet.slice %arg0 [0, 64]
// CHECK-NEXT: %[[Z:.*]] = cermet.exp %[[R]]
// CHECK-NEXT: return %[[Y]], %[[Z]]
func.func @packed_read_elsewhere(%both: !packed) -> (!x, !x) {
  %left = cermet.slice %both [0, 0] : !packed to !x loc("chunk_1")
  %right = cermet.slice %both [0, 64] : !packed to !x loc("chunk_2")
  %act = cermet.gelu %left : !x loc("gelu_1")
  %y = cermet.mul %act, %right : !x loc("mul_1")
  %z = cermet.exp %right : !x loc("exp_1")
  return %y, %z : !x, !x
}

// Two thirds, the same half twice, halves of two tensors: gate and up are slices.
// CHECK-LABEL: func.func @two_of_three(
// CHECK: %[[Y:.*]] = cermet.glu %{{.*}}, %{{.*}} : tensor<?x64xbf16
// CHECK-NEXT: return %[[Y]]
func.func @two_of_three(%all: tensor<?x192xbf16, #cermet.symbols<["r0"]>>) -> !x {
  %left = cermet.slice %all [0, 0] : tensor<?x192xbf16, #cermet.symbols<["r0"]>> to !x loc("chunk_1")
  %right = cermet.slice %all [0, 64] : tensor<?x192xbf16, #cermet.symbols<["r0"]>> to !x loc("chunk_2")
  %act = cermet.silu %left : !x loc("silu_1")
  %y = cermet.mul %act, %right : !x loc("mul_1")
  return %y : !x
}

// CHECK-LABEL: func.func @one_half_twice(
// CHECK: %[[Y:.*]] = cermet.glu %[[S:.*]], %[[S]] : tensor<?x64xbf16
// CHECK-NEXT: return %[[Y]]
func.func @one_half_twice(%both: !packed) -> !x {
  %half = cermet.slice %both [0, 64] : !packed to !x loc("chunk_1")
  %act = cermet.silu %half : !x loc("silu_1")
  %y = cermet.mul %act, %half : !x loc("mul_1")
  return %y : !x
}

// CHECK-LABEL: func.func @halves_of_two(
// CHECK: %[[Y:.*]] = cermet.glu %{{.*}}, %{{.*}} : tensor<?x64xbf16
// CHECK-NEXT: return %[[Y]]
func.func @halves_of_two(%one: !packed, %two: !packed) -> !x {
  %left = cermet.slice %one [0, 0] : !packed to !x loc("chunk_1")
  %right = cermet.slice %two [0, 64] : !packed to !x loc("chunk_2")
  %act = cermet.silu %left : !x loc("silu_1")
  %y = cermet.mul %act, %right : !x loc("mul_1")
  return %y : !x
}

// The activation in other rows than its gate, which come back.
// CHECK-LABEL: func.func @other_rows_inside(
// CHECK-NEXT: %[[Y:.*]] = cermet.glu %arg0, %arg1 : tensor<2x3x64xbf16>
// CHECK-NEXT: return %[[Y]]
func.func @other_rows_inside(%gate: !a, %up: !a) -> !a {
  %act = cermet.silu %gate : !a loc("silu_1")
  %merged = cermet.reshape %act : !a to !b loc("view_1")
  %flat = cermet.reshape %up : !a to !b loc("view_2")
  %product = cermet.mul %merged, %flat : !b loc("mul_1")
  %y = cermet.reshape %product : !b to !a loc("view_3")
  return %y : !a
}

// The gate of a view meets up in the rows that were there before.
// CHECK-LABEL: func.func @gate_of_a_view(
// CHECK-NEXT: %[[Y:.*]] = cermet.glu %arg0, %arg1 {activation = "gelu"} : tensor<2x3x64xbf16>
// CHECK-NEXT: return %[[Y]]
func.func @gate_of_a_view(%gate: !a, %up: !a) -> !a {
  %flat = cermet.reshape %gate : !a to !b loc("view_1")
  %act = cermet.gelu %flat : !b loc("gelu_1")
  %back = cermet.reshape %act : !b to !a loc("view_2")
  %y = cermet.mul %back, %up : !a loc("mul_1")
  return %y : !a
}

// CHECK-LABEL: func.func @other_rows_at_the_end(
// CHECK-NOT: cermet.glu
// MISS: near miss of glu at mul_1: gate has shape [2, 3, 64] and up [6, 64], expected one shape{{$}}
func.func @other_rows_at_the_end(%gate: !a, %up: !b) -> !b {
  %act = cermet.silu %gate : !a loc("silu_1")
  %merged = cermet.reshape %act : !a to !b loc("view_1")
  %y = cermet.mul %merged, %up : !b loc("mul_1")
  return %y : !b
}

// What is written out rounds at every step.
// CHECK-LABEL: func.func @silu_written_out(
// CHECK-NOT: cermet.glu
// MISS: near miss of glu at mul_2: the activation is written out with `sigmoid_1` and rounded at each step, expected silu in one operation{{$}}
func.func @silu_written_out(%gate: !x, %up: !x) -> !x {
  %sigmoid = cermet.sigmoid %gate : !x loc("sigmoid_1")
  %act = cermet.mul %gate, %sigmoid : !x loc("mul_1")
  %y = cermet.mul %act, %up : !x loc("mul_2")
  return %y : !x
}

// CHECK-LABEL: func.func @gelu_written_out(
// CHECK-NOT: cermet.glu
// MISS: near miss of glu at mul_3: the activation is written out with `erf_1` and rounded at each step, expected gelu in one operation{{$}}
func.func @gelu_written_out(%gate: !wide, %up: !wide) -> !wide {
  %half = cermet.constant 0.5 : !wide
  %halved = cermet.mul %gate, %half : !wide loc("mul_1")
  %root = cermet.constant 1.4142135623730951 : !wide
  %scaled = cermet.div %gate, %root : !wide loc("div_1")
  %erf = cermet.erf %scaled : !wide loc("erf_1")
  %one = cermet.constant 1.0 : !wide
  %sum = cermet.add %erf, %one : !wide loc("add_1")
  %act = cermet.mul %halved, %sum : !wide loc("mul_2")
  %y = cermet.mul %act, %up : !wide loc("mul_3")
  return %y : !wide
}

// CHECK-LABEL: func.func @gelu_read_elsewhere(
// CHECK-NOT: cermet.glu
// MISS: near miss of glu at mul_1: inner value `gelu_1` has another user: neg_1{{$}}
func.func @gelu_read_elsewhere(%both: !packed) -> (!x, !x) {
  %left = cermet.slice %both [0, 0] : !packed to !x loc("chunk_1")
  %right = cermet.slice %both [0, 64] : !packed to !x loc("chunk_2")
  %act = cermet.gelu %left : !x loc("gelu_1")
  %y = cermet.mul %act, %right : !x loc("mul_1")
  %z = cermet.neg %act : !x loc("neg_1")
  return %y, %z : !x, !x
}

// CHECK-LABEL: func.func @symbolic_columns(
// CHECK-NOT: cermet.glu
// MISS: near miss of glu at mul_1: the last dimension of gate is the symbol n, expected a number{{$}}
func.func @symbolic_columns(%gate: tensor<?x?xbf16, #cermet.symbols<["r0", "n"]>>, %up: tensor<?x?xbf16, #cermet.symbols<["r0", "n"]>>) -> tensor<?x?xbf16, #cermet.symbols<["r0", "n"]>> {
  %act = cermet.silu %gate : tensor<?x?xbf16, #cermet.symbols<["r0", "n"]>> loc("silu_1")
  %y = cermet.mul %act, %up : tensor<?x?xbf16, #cermet.symbols<["r0", "n"]>> loc("mul_1")
  return %y : tensor<?x?xbf16, #cermet.symbols<["r0", "n"]>>
}
