// A residual sum before a norm becomes the norm's second result, unless there is no place where both could stand.
// RUN: cermet-opt %s -cermet-raise 2>/dev/null | FileCheck %s
// RUN: cermet-opt %s -cermet-raise 2>&1 >/dev/null | FileCheck %s --check-prefix=MISS --implicit-check-not="near miss"

!x = tensor<?x64xbf16, #cermet.symbols<["r0"]>>
!wide = tensor<?x64xf32, #cermet.symbols<["r0"]>>
!row = tensor<?x1xf32, #cermet.symbols<["r0"]>>
!w = tensor<64xbf16>
!wwide = tensor<64xf32>
!a = tensor<2x3x64xbf16>

// The residual stream: the next layer reads the sum.
// CHECK-LABEL: func.func @sum_read_later(
// CHECK-NEXT: %[[Y:.*]], %[[S:.*]] = cermet.add_rms_norm %arg0, %arg1, %arg2 {eps = 1.000000e-05 : f64, round_before_weight} : tensor<?x64xbf16, #cermet.symbols<["r0"]>>, tensor<?x64xbf16, #cermet.symbols<["r0"]>>, tensor<64xbf16> to tensor<?x64xbf16, #cermet.symbols<["r0"]>>, tensor<?x64xbf16, #cermet.symbols<["r0"]>>
// CHECK-NEXT: return %[[Y]], %[[S]]
func.func @sum_read_later(%a: !x, %b: !x, %w: !w) -> (!x, !x) {
  %x = cermet.add %a, %b : !x loc("add_0")
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %weights = cermet.broadcast %w : !w to !x loc("mul_2")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  return %y, %x : !x, !x
}

// CHECK-LABEL: func.func @sum_read_by_nobody_else(
// CHECK-NEXT: %[[Y:.*]], %{{.*}} = cermet.add_rms_norm %arg0, %arg1, %arg2 {eps = 1.000000e-05 : f64} : tensor<?x64xf32, #cermet.symbols<["r0"]>>, tensor<?x64xf32, #cermet.symbols<["r0"]>>, tensor<64xf32> to tensor<?x64xf32, #cermet.symbols<["r0"]>>, tensor<?x64xf32, #cermet.symbols<["r0"]>>
// CHECK-NEXT: return %[[Y]]
func.func @sum_read_by_nobody_else(%a: !wide, %b: !wide, %w: !wwide) -> !wide {
  %x = cermet.add %a, %b : !wide loc("add_0")
  %square = cermet.mul %x, %x : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %x, %scale : !wide loc("mul_1")
  %weights = cermet.broadcast %w : !wwide to !wide loc("mul_2")
  %y = cermet.mul %weights, %normalised : !wide loc("mul_2")
  return %y : !wide
}

// CHECK-LABEL: func.func @gemma(
// CHECK-NEXT: %[[Y:.*]], %{{.*}} = cermet.add_rms_norm %arg0, %arg1, %arg2 {eps = 1.000000e-05 : f64, weight_offset = 1.000000e+00 : f64}
// CHECK-NEXT: return %[[Y]]
func.func @gemma(%a: !x, %b: !x, %w: !w) -> !x {
  %x = cermet.add %a, %b : !x loc("add_0")
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %w32 = cermet.cast %w : !w to !wwide loc("to_2")
  %one = cermet.constant 1.0 : !wwide
  %offset = cermet.add %one, %w32 : !wwide loc("add_2")
  %weights = cermet.broadcast %offset : !wwide to !wide loc("mul_2")
  %product = cermet.mul %normalised, %weights : !wide loc("mul_2")
  %y = cermet.cast %product : !wide to !x loc("type_as_1")
  return %y : !x
}

// One of the two is cast up to meet the other: both keep their own type.
// CHECK-LABEL: func.func @autocast(
// CHECK-NEXT: %[[Y:.*]], %[[S:.*]] = cermet.add_rms_norm %arg0, %arg1, %arg2 {eps = 1.000000e-05 : f64} : tensor<?x64xf32, #cermet.symbols<["r0"]>>, tensor<?x64xbf16, #cermet.symbols<["r0"]>>, tensor<64xf32> to tensor<?x64xf32, #cermet.symbols<["r0"]>>, tensor<?x64xf32, #cermet.symbols<["r0"]>>
// CHECK-NEXT: return %[[Y]], %[[S]]
func.func @autocast(%a: !wide, %b: !x, %w: !wwide) -> (!wide, !wide) {
  %promoted = cermet.cast %b : !x to !wide loc("add_0")
  %x = cermet.add %a, %promoted : !wide loc("add_0")
  %square = cermet.mul %x, %x : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %x, %scale : !wide loc("mul_1")
  %weights = cermet.broadcast %w : !wwide to !wide loc("mul_2")
  %y = cermet.mul %weights, %normalised : !wide loc("mul_2")
  return %y, %x : !wide, !wide
}

// A sum in f32 of two values in bf16 is no promotion: one of them stays cast.
// CHECK-LABEL: func.func @both_cast_up(
// CHECK-NEXT: %[[B:.*]] = cermet.cast %arg1
// CHECK-NEXT: %[[Y:.*]], %{{.*}} = cermet.add_rms_norm %arg0, %[[B]], %arg2 {eps = 1.000000e-05 : f64} : tensor<?x64xbf16, #cermet.symbols<["r0"]>>, tensor<?x64xf32, #cermet.symbols<["r0"]>>, tensor<64xf32> to tensor<?x64xf32, #cermet.symbols<["r0"]>>, tensor<?x64xf32, #cermet.symbols<["r0"]>>
// CHECK-NEXT: return %[[Y]]
func.func @both_cast_up(%a: !x, %b: !x, %w: !wwide) -> !wide {
  %a32 = cermet.cast %a : !x to !wide loc("to_8")
  %b32 = cermet.cast %b : !x to !wide loc("to_9")
  %x = cermet.add %a32, %b32 : !wide loc("add_0")
  %square = cermet.mul %x, %x : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %x, %scale : !wide loc("mul_1")
  %weights = cermet.broadcast %w : !wwide to !wide loc("mul_2")
  %y = cermet.mul %weights, %normalised : !wide loc("mul_2")
  return %y : !wide
}

// A reader of the sum amid the norm comes after the operation that takes its place.
// CHECK-LABEL: func.func @sum_before_the_cast_back(
// CHECK-NEXT: %[[Y:.*]], %[[S:.*]] = cermet.add_rms_norm %arg0, %arg1, %arg2
// CHECK-NEXT: %[[E:.*]] = cermet.neg %[[S]]
// CHECK-NEXT: return %[[Y]], %[[E]]
func.func @sum_before_the_cast_back(%a: !x, %b: !x, %w: !w) -> (!x, !x) {
  %x = cermet.add %a, %b : !x loc("add_0")
  %early = cermet.neg %x : !x loc("neg_1")
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %weights = cermet.broadcast %w : !w to !x loc("mul_2")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  return %y, %early : !x, !x
}

// The first norm makes the sum, the second reads it.
// CHECK-LABEL: func.func @two_norms_of_one_sum(
// CHECK-NEXT: %[[Y:.*]], %[[S:.*]] = cermet.add_rms_norm %arg0, %arg1, %arg2
// CHECK-NEXT: %[[Z:.*]] = cermet.rms_norm %[[S]], %arg3
// CHECK-NEXT: return %[[Y]], %[[Z]]
func.func @two_norms_of_one_sum(%a: !x, %b: !x, %w: !w, %v: !w) -> (!x, !x) {
  %x = cermet.add %a, %b : !x loc("add_0")
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %weights = cermet.broadcast %w : !w to !x loc("mul_2")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  %wide_b = cermet.cast %x : !x to !wide loc("to_11")
  %square_b = cermet.mul %wide_b, %wide_b : !wide loc("pow_11")
  %sum_b = cermet.reduce_sum %square_b : !wide to !row loc("mean_11")
  %columns_b = cermet.constant 64.0 : !row
  %mean_b = cermet.div %sum_b, %columns_b : !row loc("mean_11")
  %eps_b = cermet.constant 1.0e-5 : !row
  %variance_b = cermet.add %mean_b, %eps_b : !row loc("add_11")
  %root_b = cermet.rsqrt %variance_b : !row loc("rsqrt_11")
  %scale_b = cermet.broadcast %root_b : !row to !wide loc("mul_11")
  %normalised_b = cermet.mul %wide_b, %scale_b : !wide loc("mul_11")
  %rounded_b = cermet.cast %normalised_b : !wide to !x loc("to_12")
  %weights_b = cermet.broadcast %v : !w to !x loc("mul_12")
  %y_b = cermet.mul %weights_b, %rounded_b : !x loc("mul_12")
  return %y, %y_b : !x, !x
}

// Two blocks of a residual stream.
// CHECK-LABEL: func.func @chain(
// CHECK-NEXT: %[[Y:.*]], %[[S:.*]] = cermet.add_rms_norm %arg0, %arg1, %arg2
// CHECK-NEXT: %[[Z:.*]], %[[H:.*]] = cermet.add_rms_norm %[[S]], %[[Y]], %arg3
// CHECK-NEXT: return %[[Z]], %[[H]]
func.func @chain(%a: !x, %b: !x, %w: !w, %v: !w) -> (!x, !x) {
  %x = cermet.add %a, %b : !x loc("add_0")
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %weights = cermet.broadcast %w : !w to !x loc("mul_2")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  %h = cermet.add %x, %y : !x loc("add_10")
  %wide_b = cermet.cast %h : !x to !wide loc("to_11")
  %square_b = cermet.mul %wide_b, %wide_b : !wide loc("pow_11")
  %sum_b = cermet.reduce_sum %square_b : !wide to !row loc("mean_11")
  %columns_b = cermet.constant 64.0 : !row
  %mean_b = cermet.div %sum_b, %columns_b : !row loc("mean_11")
  %eps_b = cermet.constant 1.0e-5 : !row
  %variance_b = cermet.add %mean_b, %eps_b : !row loc("add_11")
  %root_b = cermet.rsqrt %variance_b : !row loc("rsqrt_11")
  %scale_b = cermet.broadcast %root_b : !row to !wide loc("mul_11")
  %normalised_b = cermet.mul %wide_b, %scale_b : !wide loc("mul_11")
  %rounded_b = cermet.cast %normalised_b : !wide to !x loc("to_12")
  %weights_b = cermet.broadcast %v : !w to !x loc("mul_12")
  %y_b = cermet.mul %weights_b, %rounded_b : !x loc("mul_12")
  return %y_b, %h : !x, !x
}

// CHECK-LABEL: func.func @bias_is_no_residual(
// CHECK-NEXT: {{.*}}cermet.broadcast %arg1
// CHECK-NEXT: %[[X:.*]] = cermet.add %arg0
// CHECK-NEXT: %[[Y:.*]] = cermet.rms_norm %[[X]], %arg2
// CHECK-NEXT: return %[[Y]]
func.func @bias_is_no_residual(%a: !x, %b: !w, %w: !w) -> !x {
  %bias = cermet.broadcast %b : !w to !x loc("add_0")
  %x = cermet.add %a, %bias : !x loc("add_0")
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %weights = cermet.broadcast %w : !w to !x loc("mul_2")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  return %y : !x
}

// CHECK-LABEL: func.func @number_is_no_residual(
// CHECK-NEXT: {{.*}}cermet.constant
// CHECK-NEXT: %[[X:.*]] = cermet.add %arg0
// CHECK-NEXT: %[[Y:.*]] = cermet.rms_norm %[[X]], %arg1
// CHECK-NEXT: return %[[Y]]
func.func @number_is_no_residual(%a: !x, %w: !w) -> !x {
  %one = cermet.constant 1.0 : !x
  %x = cermet.add %a, %one : !x loc("add_0")
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %weights = cermet.broadcast %w : !w to !x loc("mul_2")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  return %y : !x
}

// The weight is made of the sum: nothing can make both at once.
// CHECK-LABEL: func.func @weight_after_the_sum(
// CHECK: %[[X:.*]] = cermet.add %arg0, %arg1
// CHECK: %[[W:.*]] = cermet.opaque "make"
// CHECK-NEXT: %[[Y:.*]] = cermet.rms_norm %[[X]], %[[W]]
// CHECK-NEXT: return %[[Y]], %[[X]]
// MISS: near miss of add_rms_norm at mul_2: the sum `add_0` is used before the weight `make_1` exists{{$}}
func.func @weight_after_the_sum(%a: !x, %b: !x) -> (!x, !x) {
  %x = cermet.add %a, %b : !x loc("add_0")
  %early = cermet.neg %x : !x loc("neg_1")
  %w = cermet.opaque "make"(%early) : (!x) -> !w loc("make_1")
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %weights = cermet.broadcast %w : !w to !x loc("mul_2")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  return %y, %x : !x, !x
}

// A frontend that adds after the weight exists would read what the write has changed.
// CHECK-LABEL: func.func @residual_written_before_the_weight(
// CHECK: %[[X:.*]] = cermet.add %arg0, %arg1
// CHECK: cermet.rms_norm %[[X]]
// MISS: near miss of add_rms_norm at mul_2: residual `{{.*}}` is written in place by `mul_` before the weight `make_1` exists{{$}}
func.func @residual_written_before_the_weight(%a: !x, %b: !x) -> (!x, !x) {
  %x = cermet.add %a, %b : !x loc("add_0")
  %c = cermet.opaque "mul_"(%b) {effect = "write", versions = 1 : i64} : (!x) -> !x loc("mul_")
  %w = cermet.opaque "make"() {effect = "effectful"} : () -> !w loc("make_1")
  %wide = cermet.cast %x : !x to !wide loc("to_1")
  %square = cermet.mul %wide, %wide : !wide loc("pow_1")
  %sum = cermet.reduce_sum %square : !wide to !row loc("mean_1")
  %columns = cermet.constant 64.0 : !row
  %mean = cermet.div %sum, %columns : !row loc("mean_1")
  %eps = cermet.constant 1.0e-5 : !row
  %variance = cermet.add %mean, %eps : !row loc("add_1")
  %root = cermet.rsqrt %variance : !row loc("rsqrt_1")
  %scale = cermet.broadcast %root : !row to !wide loc("mul_1")
  %normalised = cermet.mul %wide, %scale : !wide loc("mul_1")
  %rounded = cermet.cast %normalised : !wide to !x loc("to_2")
  %weights = cermet.broadcast %w : !w to !x loc("mul_2")
  %y = cermet.mul %weights, %rounded : !x loc("mul_2")
  return %y, %c : !x, !x
}

// A norm of the sum in other rows, which come back.
// CHECK-LABEL: func.func @norm_of_a_view(
// CHECK-NEXT: %[[Y:.*]], %[[S:.*]] = cermet.add_rms_norm %arg0, %arg1, %arg2 {eps = 1.000000e-05 : f64, round_before_weight} : tensor<2x3x64xbf16>, tensor<2x3x64xbf16>, tensor<64xbf16> to tensor<2x3x64xbf16>, tensor<2x3x64xbf16>
// CHECK-NEXT: return %[[Y]], %[[S]]
func.func @norm_of_a_view(%a: !a, %b: !a, %w: !w) -> (!a, !a) {
  %x = cermet.add %a, %b : !a loc("add_0")
  %view = cermet.reshape %x : !a to tensor<6x64xbf16> loc("view_1")
  %wide = cermet.cast %view : tensor<6x64xbf16> to tensor<6x64xf32> loc("to_1")
  %square = cermet.mul %wide, %wide : tensor<6x64xf32> loc("pow_1")
  %sum = cermet.reduce_sum %square : tensor<6x64xf32> to tensor<6x1xf32> loc("mean_1")
  %columns = cermet.constant 64.0 : tensor<6x1xf32>
  %mean = cermet.div %sum, %columns : tensor<6x1xf32> loc("mean_1")
  %eps = cermet.constant 1.0e-5 : tensor<6x1xf32>
  %variance = cermet.add %mean, %eps : tensor<6x1xf32> loc("add_1")
  %root = cermet.rsqrt %variance : tensor<6x1xf32> loc("rsqrt_1")
  %scale = cermet.broadcast %root : tensor<6x1xf32> to tensor<6x64xf32> loc("mul_1")
  %normalised = cermet.mul %wide, %scale : tensor<6x64xf32> loc("mul_1")
  %rounded = cermet.cast %normalised : tensor<6x64xf32> to tensor<6x64xbf16> loc("to_2")
  %weights = cermet.broadcast %w : !w to tensor<6x64xbf16> loc("mul_2")
  %product = cermet.mul %weights, %rounded : tensor<6x64xbf16> loc("mul_2")
  %y = cermet.reshape %product : tensor<6x64xbf16> to !a loc("view_2")
  return %y, %x : !a, !a
}

// They do not come back: the norm stands alone.
// CHECK-LABEL: func.func @norm_in_other_rows(
// CHECK-NEXT: %[[S:.*]] = cermet.add %arg0, %arg1
// CHECK-NEXT: %[[V:.*]] = cermet.reshape %[[S]]
// CHECK-NEXT: %[[Y:.*]] = cermet.rms_norm %[[V]], %arg2
// CHECK-NEXT: return %[[Y]], %[[S]]
// MISS: near miss of add_rms_norm at mul_2: the sum has shape [2, 3, 64], its norm [6, 64], expected one shape{{$}}
func.func @norm_in_other_rows(%a: !a, %b: !a, %w: !w) -> (tensor<6x64xbf16>, !a) {
  %x = cermet.add %a, %b : !a loc("add_0")
  %view = cermet.reshape %x : !a to tensor<6x64xbf16> loc("view_1")
  %wide = cermet.cast %view : tensor<6x64xbf16> to tensor<6x64xf32> loc("to_1")
  %square = cermet.mul %wide, %wide : tensor<6x64xf32> loc("pow_1")
  %sum = cermet.reduce_sum %square : tensor<6x64xf32> to tensor<6x1xf32> loc("mean_1")
  %columns = cermet.constant 64.0 : tensor<6x1xf32>
  %mean = cermet.div %sum, %columns : tensor<6x1xf32> loc("mean_1")
  %eps = cermet.constant 1.0e-5 : tensor<6x1xf32>
  %variance = cermet.add %mean, %eps : tensor<6x1xf32> loc("add_1")
  %root = cermet.rsqrt %variance : tensor<6x1xf32> loc("rsqrt_1")
  %scale = cermet.broadcast %root : tensor<6x1xf32> to tensor<6x64xf32> loc("mul_1")
  %normalised = cermet.mul %wide, %scale : tensor<6x64xf32> loc("mul_1")
  %rounded = cermet.cast %normalised : tensor<6x64xf32> to tensor<6x64xbf16> loc("to_2")
  %weights = cermet.broadcast %w : !w to tensor<6x64xbf16> loc("mul_2")
  %product = cermet.mul %weights, %rounded : tensor<6x64xbf16> loc("mul_2")
  return %product, %x : tensor<6x64xbf16>, !a
}
