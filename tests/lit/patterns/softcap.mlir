// Bounded logits become cermet.softcap where one number divides and multiplies, and say why where they do not.
// RUN: cermet-opt %s -cermet-raise 2>/dev/null | FileCheck %s
// RUN: cermet-opt %s -cermet-raise 2>&1 >/dev/null | FileCheck %s --check-prefix=MISS --implicit-check-not="near miss"

!x = tensor<?x64xbf16, #cermet.symbols<["r0"]>>
!wide = tensor<?x64xf32, #cermet.symbols<["r0"]>>

// Gemma 2's logits.
// CHECK-LABEL: func.func @gemma(
// CHECK-NEXT: %[[Y:.*]] = cermet.softcap %arg0 {cap = 3.000000e+01 : f64} : tensor<?x64xbf16, #cermet.symbols<["r0"]>>
// CHECK-NEXT: return %[[Y]]
func.func @gemma(%x: !x) -> !x {
  %cap = cermet.constant 30.0 : !x
  %quotient = cermet.div %x, %cap : !x loc("div_1")
  %tanh = cermet.tanh %quotient : !x loc("tanh_1")
  %y = cermet.mul %tanh, %cap : !x loc("mul_1")
  return %y : !x
}

// In f32, the product the other way round.
// CHECK-LABEL: func.func @swapped(
// CHECK-NEXT: %[[W:.*]] = cermet.cast %arg0
// CHECK-NEXT: %[[Y:.*]] = cermet.softcap %[[W]] {cap = 5.000000e+01 : f64} : tensor<?x64xf32, #cermet.symbols<["r0"]>>
// CHECK-NEXT: return %[[Y]]
func.func @swapped(%x: !x) -> !wide {
  %wide = cermet.cast %x : !x to !wide loc("float_1")
  %cap = cermet.constant 50.0 : tensor<f32>
  %caps = cermet.broadcast %cap : tensor<f32> to !wide
  %quotient = cermet.div %wide, %caps : !wide loc("div_1")
  %tanh = cermet.tanh %quotient : !wide loc("tanh_1")
  %again = cermet.constant 50.0 : !wide
  %y = cermet.mul %again, %tanh : !wide loc("mul_1")
  return %y : !wide
}

// Other rows inside.
// CHECK-LABEL: func.func @reshaped(
// CHECK-NEXT: %[[Y:.*]] = cermet.softcap %arg0 {cap = 5.000000e+01 : f64} : tensor<2x3x64xf32>
// CHECK-NEXT: return %[[Y]]
func.func @reshaped(%x: tensor<2x3x64xf32>) -> tensor<2x3x64xf32> {
  %view = cermet.reshape %x : tensor<2x3x64xf32> to tensor<6x64xf32> loc("view_1")
  %cap = cermet.constant 50.0 : tensor<6x64xf32>
  %quotient = cermet.div %view, %cap : tensor<6x64xf32> loc("div_1")
  %tanh = cermet.tanh %quotient : tensor<6x64xf32> loc("tanh_1")
  %back = cermet.reshape %tanh : tensor<6x64xf32> to tensor<2x3x64xf32> loc("view_2")
  %caps = cermet.constant 50.0 : tensor<2x3x64xf32>
  %y = cermet.mul %back, %caps : tensor<2x3x64xf32> loc("mul_1")
  return %y : tensor<2x3x64xf32>
}

// A tanh of a quotient that nothing scales, and one that a tensor scales, are no softcap.
// CHECK-LABEL: func.func @not_scaled(
// CHECK-NOT: cermet.softcap
func.func @not_scaled(%x: !x, %s: !x) -> !x {
  %cap = cermet.constant 30.0 : !x
  %quotient = cermet.div %x, %cap : !x loc("div_1")
  %tanh = cermet.tanh %quotient : !x loc("tanh_1")
  %y = cermet.mul %tanh, %s : !x loc("mul_1")
  return %y : !x
}

// CHECK-LABEL: func.func @two_numbers(
// CHECK-NOT: cermet.softcap
// MISS: near miss of softcap at mul_1: x is divided by 30 and the tanh multiplied by 50, expected one number{{$}}
func.func @two_numbers(%x: !x) -> !x {
  %cap = cermet.constant 30.0 : !x
  %quotient = cermet.div %x, %cap : !x loc("div_1")
  %tanh = cermet.tanh %quotient : !x loc("tanh_1")
  %other = cermet.constant 50.0 : !x
  %y = cermet.mul %tanh, %other : !x loc("mul_1")
  return %y : !x
}

// CHECK-LABEL: func.func @scaled_in_another_type(
// CHECK-NOT: cermet.softcap
// MISS: near miss of softcap at mul_1: the tanh is computed in f32 and scaled in bf16, expected one type{{$}}
func.func @scaled_in_another_type(%x: !wide) -> !x {
  %cap = cermet.constant 30.0 : !wide
  %quotient = cermet.div %x, %cap : !wide loc("div_1")
  %tanh = cermet.tanh %quotient : !wide loc("tanh_1")
  %half = cermet.cast %tanh : !wide to !x loc("to_1")
  %caps = cermet.constant 30.0 : !x
  %y = cermet.mul %half, %caps : !x loc("mul_1")
  return %y : !x
}

// CHECK-LABEL: func.func @other_rows_at_the_end(
// CHECK-NOT: cermet.softcap
// MISS: near miss of softcap at mul_1: x has shape [2, 3, 64], the result [6, 64], expected one shape{{$}}
func.func @other_rows_at_the_end(%x: tensor<2x3x64xf32>) -> tensor<6x64xf32> {
  %cap = cermet.constant 50.0 : tensor<2x3x64xf32>
  %quotient = cermet.div %x, %cap : tensor<2x3x64xf32> loc("div_1")
  %tanh = cermet.tanh %quotient : tensor<2x3x64xf32> loc("tanh_1")
  %view = cermet.reshape %tanh : tensor<2x3x64xf32> to tensor<6x64xf32> loc("view_1")
  %caps = cermet.constant 50.0 : tensor<6x64xf32>
  %y = cermet.mul %view, %caps : tensor<6x64xf32> loc("mul_1")
  return %y : tensor<6x64xf32>
}

// CHECK-LABEL: func.func @read_elsewhere(
// CHECK-NOT: cermet.softcap
// MISS: near miss of softcap at mul_1: inner value `tanh_1` has another user: neg_1{{$}}
func.func @read_elsewhere(%x: !x) -> (!x, !x) {
  %cap = cermet.constant 30.0 : !x
  %quotient = cermet.div %x, %cap : !x loc("div_1")
  %tanh = cermet.tanh %quotient : !x loc("tanh_1")
  %y = cermet.mul %tanh, %cap : !x loc("mul_1")
  %z = cermet.neg %tanh : !x loc("neg_1")
  return %y, %z : !x, !x
}
